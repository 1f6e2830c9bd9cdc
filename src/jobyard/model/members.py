"""The members of a job, which are jobs that it waits for, and an index over them.

A job may have a hundred thousand members, so the end of one must not scan them all: the index is
updated as single members change. It holds no member itself, is made on first use, and is dropped
when the members of the job are replaced. Knows no job.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

# Size of an encoded field without its value.
TAG_SIZE: Final = 5

# Fewer members are scanned one by one.
SCANNED_MAX: Final = 16


@final
class MemberState:
    """The state of a member of a flow."""

    OPEN: Final = 0
    SETTLED: Final = 1
    FAILED: Final = 2
    IGNORED: Final = 3
    DROPPED: Final = 4


@final
class Member:
    """A job that another job waits for, as the waiting job stores it."""

    def __init__(self, child_id: i64, label: str) -> None:
        self.child_id: i64 = child_id
        self.label: str = label
        self.state: i64 = MemberState.OPEN
        # Its result, or the text of its failure. A result beyond the memory budget is left out and
        # read from the job, as long as that is kept.
        self.value: bytes = b""

    def is_open(self) -> bool:
        """Return whether it is still waited for."""
        return self.state == MemberState.OPEN

    def weight(self) -> i64:
        """Return its size as an encoded field."""
        return TAG_SIZE + 24 + len(self.label.encode()) + len(self.value)


@final
class MemberIndex:
    """Where members are, how many are open, and their total size."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members
        self.open_count: i64 = 0
        # As encoded fields.
        self.size: i64 = 0
        # Of their results and errors alone.
        self.values_size: i64 = 0
        # By job id, the first place if it has several labels; None for few members.
        self._places: dict[int, int] | None = None
        self._has_twins: bool = False
        # By label, the first of each, made on first use; then the places of the others.
        self._labels: dict[str, int] | None = None
        self._same_named: list[int] = []
        for member in members:
            self._count(member, 1)

    def _count(self, member: Member, by: i64) -> None:
        self.size += by * member.weight()
        self.values_size += by * len(member.value)
        if member.is_open():
            self.open_count += by

    def find_open(self, child_id: i64) -> Member | None:
        """Return the member with this job id, if it is still waited for."""
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
        """Return the place of the member with this job id and label, or -1."""
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
        """Return the member with that label; if there are several, preferably an open one."""
        members = self._members
        if self._labels is None:
            self._labels = {}
            for i in range(len(members)):
                self._note_label(self._labels, members[i].label, i)
        place: i64 = self._labels.get(label, -1)
        if place < 0:
            return None
        if not members[place].is_open():
            for other in self._same_named:
                if members[other].label == label and members[other].is_open():
                    return members[other]
        return members[place]

    def _note_label(self, labels: dict[str, int], label: str, place: i64) -> None:
        if labels.setdefault(label, int(place)) != place:
            self._same_named.append(int(place))

    def add(self, member: Member) -> None:
        """Add a new member before the first lookup."""
        assert self._places is None
        assert self._labels is None
        self._count(member, 1)
        self._members.append(member)

    def put(self, member: Member) -> None:
        """Add a member, or replace it by its newer state."""
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
        if places is None and len(members) >= SCANNED_MAX:
            places = {}
            for i in range(len(members)):
                self._note_place(places, members[i], i)
            self._places = places
        return places

    def _note_place(self, places: dict[int, int], member: Member, place: i64) -> None:
        if places.setdefault(int(member.child_id), int(place)) != place:
            self._has_twins = True
