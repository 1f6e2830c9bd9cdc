"""Facts about all members of a job, by work done and not by time."""

import pytest

from jobyard.model.details import JobDetails
from jobyard.model.details_codec import absorb, encode_details, size_of
from jobyard.model.members import SCANNED_MAX, Member, MemberIndex, MemberState


def many(count: int) -> JobDetails:
    details = JobDetails()
    details.set_members([Member(at, f"q:{at}") for at in range(1, count + 1)])
    return details


def settled(details: JobDetails, child_id: int) -> None:
    news = Member(child_id, f"q:{child_id}")
    news.state = MemberState.SETTLED
    details.member_index().put(news)


def test_each_is_found_and_counted_in_either_order() -> None:
    for order in (range(1, 101), range(100, 0, -1)):
        details = many(100)
        for left, child_id in zip(range(100, 0, -1), order, strict=True):
            assert details.open_count() == left
            found = details.member_index().find_open(child_id)
            assert found is not None
            assert found.label == f"q:{child_id}"
            settled(details, child_id)
            assert details.member_index().find_open(child_id) is None
        assert details.open_count() == 0
        assert size_of(details) == len(encode_details(details))


def test_the_end_of_a_member_asks_about_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Member] = []

    def is_open(member: Member) -> bool:
        asked.append(member)
        return bool(member.state == MemberState.OPEN)

    monkeypatch.setattr(Member, "is_open", is_open)
    details = many(1000)
    for child_id in range(1000, 0, -1):
        assert details.member_index().find_open(child_id) is not None
        settled(details, child_id)
        assert details.open_count() == child_id - 1
    assert len(asked) < 10 * 1000


def test_one_job_may_stand_there_twice() -> None:
    for count in (1, SCANNED_MAX + 5):
        details = many(count)
        index = details.member_index()
        index.put(Member(1, "other:1"))
        assert details.open_count() == count + 1
        settled(details, 1)
        again = index.find_open(1)
        assert again is not None
        assert (again.label, again.state) == ("other:1", MemberState.OPEN)
        gone = Member(1, "other:1")
        gone.state = MemberState.DROPPED
        index.put(gone)
        assert index.find_open(1) is None
        assert details.open_count() == count - 1


def test_other_members_are_counted_again() -> None:
    details = many(SCANNED_MAX + 4)
    assert details.open_count() == SCANNED_MAX + 4
    details.set_members([Member(7, "q:7")])
    assert details.open_count() == 1
    assert details.member_index().find_open(3) is None
    again = JobDetails()
    data = encode_details(details)
    absorb(again, data, 0, len(data), 0)
    assert again.open_count() == 1


def test_members_are_found_by_name() -> None:
    members = [Member(at, f"m{at % 30}") for at in range(1, 41)]
    index = MemberIndex(members)
    assert index.named("m0") is members[29]
    assert index.named("none") is None
    # m1 to m10 are there twice; those still waited for come first.
    assert index.named("m1") is members[0]
    members[0].state = MemberState.SETTLED
    assert index.named("m1") is members[30]
    members[30].state = MemberState.SETTLED
    assert index.named("m1") is members[0]
    late = Member(99, "late")
    index.put(late)
    assert index.named("late") is late
    news = Member(99, "late")
    index.put(news)
    assert index.named("late") is news
