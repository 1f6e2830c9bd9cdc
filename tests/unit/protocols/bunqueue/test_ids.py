"""Ids and tokens: written as UUIDs, parsed again, and nothing else is accepted."""

from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from jobyard.engine.glidemq.add import GlideJobSpec, add
from jobyard.engine.glidemq.move import promote_due
from jobyard.engine.jobs.put import NewJob, enter, make_job
from jobyard.engine.jobs.queues import open_queue
from jobyard.engine.state.yard import Yard
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import MSGPACK, Job
from jobyard.protocols.bunqueue.ids import (
    find_job,
    id_bytes,
    token_bytes,
    token_number,
    was_issued,
    write_uuid,
)

NOW_MS = 1_700_000_000_000


def put_one(job_id: int, wall_ms: int) -> tuple[Yard, Job]:
    journal = Journal(None, 1 << 20, ids_ahead=False)
    journal.next_id = job_id
    yard = Yard(journal, Bodies(journal, 1 << 20))
    new_job = NewJob(BUNQUEUE, MSGPACK, b"\xc0")
    new_job.own_ms = wall_ms
    return yard, enter(yard, make_job(open_queue(yard, "q"), new_job), NOW_MS)


def as_printed(job_id: int, wall_ms: int) -> str:
    check = ((job_id * 40503) & (2**63 - 1)) >> 7 & 0x3FF
    low = (job_id & (2**52 - 1)) << 10 | check
    parts = (
        f"{wall_ms >> 16:08x}",
        f"{wall_ms & 0xFFFF:04x}",
        f"{0x7000 | job_id >> 52:04x}",
        f"{0x8000 | low >> 48:04x}",
        f"{low & (2**48 - 1):012x}",
    )
    return "-".join(parts)


@given(
    job_id=st.integers(min_value=1, max_value=1 << 46),
    wall_ms=st.integers(min_value=0, max_value=(1 << 48) - 1),
)
def test_an_id_is_a_uuid_that_holds_number_and_time(job_id: int, wall_ms: int) -> None:
    yard, job = put_one(job_id, wall_ms)
    out = BytesWriter()
    write_uuid(out, job)
    name = out.getvalue()
    assert name.decode() == as_printed(job_id, wall_ms)
    assert id_bytes(job) == name
    assert find_job(yard, name) is job
    assert was_issued(yard, name)


@given(place=st.integers(min_value=0, max_value=35), byte=st.integers(min_value=0, max_value=255))
def test_no_other_text_finds_the_job(place: int, byte: int) -> None:
    yard, job = put_one(0x00DEADBEEF, 0x18BCFE5B9ED)
    name = bytearray(id_bytes(job))
    is_same = name[place] == byte
    name[place] = byte
    found = find_job(yard, bytes(name))
    assert (found is job) == is_same


@given(
    number=st.integers(min_value=0, max_value=(1 << 62) - 1),
    place=st.integers(min_value=0, max_value=35),
    byte=st.integers(min_value=0, max_value=255),
)
def test_a_token_holds_its_number_and_no_other_text_is_one(
    number: int, place: int, byte: int
) -> None:
    yard, _ = put_one(1, 1)
    token = token_bytes(yard, number)
    assert token_number(yard, token) == number
    changed = bytearray(token)
    changed[place] = byte
    if bytes(changed) != token:
        assert token_number(yard, bytes(changed)) != number


def test_a_job_of_glide_mq_keeps_its_id_wherever_it_stands() -> None:
    journal = Journal(None, 1 << 20, ids_ahead=False)
    yard = Yard(journal, Bodies(journal, 1 << 20))
    spec = GlideJobSpec("mail", b"1")
    spec.ts = (5 << 48) + 77
    spec.custom_id = "mine"
    spec.priority = 1
    job = add(yard, open_queue(yard, "q"), spec, NOW_MS)
    name = id_bytes(job)
    assert name[:13] == b"00000000-004d"
    stamp = job.stamp
    assert promote_due(yard, job.queue, NOW_MS, 9) == 1
    assert job.stamp != stamp
    assert id_bytes(job) == name
    assert find_job(yard, name) is job
    assert find_job(yard, b"mine") is None
