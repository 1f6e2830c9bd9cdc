"""What is known of the members of a job as a whole, kept while one of them changes at a time.

There may be a hundred thousand: none of their ends may look through all of them. Holds no member
itself; made on first use, and thrown away when a job gets other members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from jobyard.model.details import Member

# Fewer are searched one by one.
FEW: Final = 16


@final
class MemberIndex:
    """Where members stand, how many are open, and what all weigh."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members
        self.open_count: i64 = 0
        # As fields.
        self.size: i64 = 0
        # By the id of the job, the first where it stands under several names; None for few.
        self._places: dict[int, int] | None = None
        self._has_twins: bool = False
        # By name, the first of each, once somebody asks for one; the others by their places.
        self._labels: dict[str, int] | None = None
        self._namesakes: list[int] = []
        for member in members:
            self._count(member, 1)

    def _count(self, member: Member, by: i64) -> None:
        self.size += by * member.weight()
        if member.is_open():
            self.open_count += by

    def find_open(self, child_id: i64) -> Member | None:
        """Return the member that is this job, if it is still waited for."""
        members = self._members
        places = self._known_places()
        if places is not None:
            place: i64 = places.get(int(child_id), -1)
            if place < 0:
                return None
            if members[place].is_open():
                return members[place]
            if not self._has_twins:
                return None
        for member in members:
            if member.child_id == child_id and member.is_open():
                return member
        return None

    def place_of(self, child_id: i64, label: str) -> i64:
        """Return where the member stands that is this job under this name, or -1."""
        members = self._members
        places = self._known_places()
        if places is not None:
            place: i64 = places.get(int(child_id), -1)
            if place < 0 or members[place].label == label:
                return place
            if not self._has_twins:
                return -1
        for i in range(len(members)):
            if members[i].child_id == child_id and members[i].label == label:
                return i
        return -1

    def named(self, label: str) -> Member | None:
        """Return the member of that name; where there are several, one that is waited for."""
        members = self._members
        if self._labels is None:
            self._labels = {}
            for i in range(len(members)):
                self._note_label(self._labels, members[i].label, i)
        place: i64 = self._labels.get(label, -1)
        if place < 0:
            return None
        if not members[place].is_open():
            for other in self._namesakes:
                if members[other].label == label and members[other].is_open():
                    return members[other]
        return members[place]

    def _note_label(self, labels: dict[str, int], label: str, place: i64) -> None:
        if labels.setdefault(label, int(place)) != place:
            self._namesakes.append(int(place))

    def add(self, member: Member) -> None:
        """Take on a new member before anybody looks for one."""
        assert self._places is None
        assert self._labels is None
        self._count(member, 1)
        self._members.append(member)

    def put(self, member: Member) -> None:
        """Take on a member, or news of one that is known."""
        members = self._members
        place = self.place_of(member.child_id, member.label)
        self._count(member, 1)
        if place >= 0:
            self._count(members[place], -1)
            members[place] = member
            return
        if self._places is not None:
            self._note_place(self._places, member, len(members))
        if self._labels is not None:
            self._note_label(self._labels, member.label, len(members))
        members.append(member)

    def _known_places(self) -> dict[int, int] | None:
        places = self._places
        members = self._members
        if places is None and len(members) >= FEW:
            places = {}
            for i in range(len(members)):
                self._note_place(places, members[i], i)
            self._places = places
        return places

    def _note_place(self, places: dict[int, int], member: Member, place: i64) -> None:
        if places.setdefault(int(member.child_id), int(place)) != place:
            self._has_twins = True
