"""What a restart keeps where the original is known to fail, and what it refuses."""

from zlib import crc32

import pytest

from jobyard.engine.recovery.open_yard import replay_all
from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged
from jobyard.journal.bodies import Bodies
from jobyard.journal.format.segment import SEGMENT_FORMAT
from jobyard.journal.journal import Journal
from jobyard.model.job import DEAD, READY
from jobyard.model.limits import JOB_SIZE_DEFAULT
from tests.support.clients.beanstalk import BeanstalkClient
from tests.support.site.recount import recount
from tests.support.site.snapshot import buried, snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def restart(site: OpenYard, storage: MemoryStorage, ms: int = 0) -> OpenYard:
    """Cut the power and start again on what is left."""
    site.commit()
    wanted = snapshot(site.yard)
    again = OpenYard(storage.cut_off(), site.now_ms + ms, job_size_max=JOB_SIZE_DEFAULT)
    if ms == 0:
        assert snapshot(again.yard) == wanted
    recount(again.yard)
    return again


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def site(storage: MemoryStorage) -> OpenYard:
    return OpenYard(storage, job_size_max=JOB_SIZE_DEFAULT)


@pytest.fixture
def client(site: OpenYard) -> BeanstalkClient:
    return site.connect()


def test_a_job_of_the_greatest_size_and_all_that_follows_it_survive(
    site: OpenYard, storage: MemoryStorage, client: BeanstalkClient
) -> None:
    body = bytes(range(256)) * 256
    body = body[:JOB_SIZE_DEFAULT]
    put = b"put 0 0 60 %d\r\n%s\r\n"
    assert client.say(put % (len(body), body)) == b"INSERTED 1\r\n"
    assert client.say(put % (len(body) - 1, body[:-1])) == b"INSERTED 2\r\n"
    assert client.say(put % (5, b"after")) == b"INSERTED 3\r\n"
    again = restart(site, storage).connect()
    for number, wanted in ((1, body), (2, body[:-1]), (3, b"after")):
        assert again.say(b"reserve\r\n") == b"RESERVED %d %d\r\n%s\r\n" % (
            *(number, len(wanted), wanted),
        )


def test_a_job_of_many_segments_survives_a_lower_limit(storage: MemoryStorage) -> None:
    site = OpenYard(storage, job_size_max=1 << 24)
    body = b"B" * (3 << 20)
    site.connect().say(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))
    again = restart(site, storage).connect()
    assert again.say(b"reserve\r\n") == b"RESERVED 1 %d\r\n%s\r\n" % (len(body), body)


def test_the_priority_of_a_release_is_remembered(
    site: OpenYard, storage: MemoryStorage, client: BeanstalkClient
) -> None:
    client.say(b"put 5 0 60 1\r\na\r\nput 5 0 60 1\r\nb\r\nreserve\r\nrelease 1 9 0\r\n")
    again = restart(site, storage).connect()
    assert again.say(b"reserve\r\nreserve\r\n") == b"RESERVED 2 1\r\nb\r\nRESERVED 1 1\r\na\r\n"


def test_a_delay_of_a_release_is_remembered(
    site: OpenYard, storage: MemoryStorage, client: BeanstalkClient
) -> None:
    client.say(b"put 5 0 60 1\r\na\r\nreserve\r\nrelease 1 9 30\r\n")
    again = restart(site, storage, 10_000)
    peer = again.connect()
    assert peer.say(b"reserve\r\n") == b""
    again.jump(19_999)
    assert peer.hear() == b""
    again.jump(1)
    assert peer.hear() == b"RESERVED 1 1\r\na\r\n"


def test_the_order_of_burials_is_remembered_and_counts_do_not_grow(
    site: OpenYard, storage: MemoryStorage, client: BeanstalkClient
) -> None:
    for number in range(6):
        client.say(b"put %d 0 60 1\r\nx\r\n" % number)
    client.say(b"reserve\r\n" * 6)
    for number in (3, 1, 6, 2, 5):
        assert client.say(b"bury %d 0\r\n" % number) == b"BURIED\r\n"
    client.say(b"kick-job 6\r\n")
    again = site
    for _ in range(3):
        again = restart(again, storage)
        assert isinstance(again.storage, MemoryStorage)
        storage = again.storage
        assert buried(again.queue()) == [3, 1, 2, 5]
        assert [job.counters().buries for job in again.yard.jobs.all() if job.state == DEAD] == [
            1
        ] * 4
    peer = again.connect()
    peer.say(b"reserve-job 4\r\nbury 4 0\r\nkick 2\r\n")
    assert buried(again.queue()) == [2, 5, 4]
    assert buried(restart(again, storage).queue()) == [2, 5, 4]


def test_ids_never_restart(site: OpenYard, storage: MemoryStorage, client: BeanstalkClient) -> None:
    client.say(b"put 0 0 60 1\r\nx\r\n" * 3 + b"delete 1\r\ndelete 2\r\ndelete 3\r\n")
    again = site
    for _ in range(3):
        again = restart(again, storage)
        assert isinstance(again.storage, MemoryStorage)
        storage = again.storage
    assert again.connect().say(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 4\r\n"


def test_ids_never_restart_after_everything_was_compacted_away(storage: MemoryStorage) -> None:
    site = OpenYard(storage, segment_size=8192)
    client = site.connect()
    for _ in range(200):
        client.say(b"put 0 0 60 300\r\n" + b"x" * 300 + b"\r\nreserve\r\n")
        client.say(b"delete %d\r\n" % (int(site.journal.next_id) - 1))
        site.commit()
        site.compactor.step()
    site.compact()
    assert len(site.journal.segments) < 4
    assert restart(site, storage).put().id == 201


def test_leases_end_with_the_boot_and_deliveries_are_counted(
    site: OpenYard, storage: MemoryStorage, client: BeanstalkClient
) -> None:
    client.say(b"put 0 0 60 1\r\nx\r\nreserve\r\n")
    again = restart(site, storage)
    job = again.yard.jobs.all()[0]
    assert (job.state, job.deliveries, job.counters().timeouts) == (READY, 1, 0)
    peer = again.connect()
    assert peer.say(b"touch 1\r\nrelease 1 0 0\r\nbury 1 0\r\n") == b"NOT_FOUND\r\n" * 3
    assert peer.say(b"reserve\r\n").startswith(b"RESERVED 1 ")
    assert job.deliveries == 2


def test_pauses_end_with_the_boot(
    site: OpenYard, storage: MemoryStorage, client: BeanstalkClient
) -> None:
    client.say(b"put 0 0 60 1\r\nx\r\npause-tube default 1000\r\n")
    assert client.say(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert restart(site, storage).connect().say(b"reserve\r\n").startswith(b"RESERVED 1 ")


def test_what_was_not_synced_was_not_answered_and_may_be_gone(
    site: OpenYard, storage: MemoryStorage, client: BeanstalkClient
) -> None:
    client.say(b"put 0 0 60 1\r\na\r\n")
    site.commit()
    client.say(b"put 0 0 60 1\r\nb\r\ndelete 1\r\n")
    assert client.session.awaits > site.journal.durable
    site.journal.seal_batch()
    site.journal.write_pending()
    after_power_cut = OpenYard(storage.cut_off())
    assert [job.id for job in after_power_cut.yard.jobs.all()] == [1]
    after_kill = OpenYard(storage.killed())
    assert [job.id for job in after_kill.yard.jobs.all()] == [2]


def newer_format(storage: MemoryStorage, name: str) -> None:
    header = bytearray(storage.read(name, 0, 64))
    header[8:12] = (SEGMENT_FORMAT + 1).to_bytes(4, "little")
    header[56:64] = crc32(header[:56]).to_bytes(8, "little")
    storage.write(name, 0, bytes(header))


def test_a_journal_of_a_newer_format_is_refused_untouched(
    site: OpenYard, storage: MemoryStorage
) -> None:
    site.put()
    site.commit()
    name = site.journal.hot.name
    newer_format(storage, name)
    before = {other: bytes(file.seen) for other, file in storage.files.items()}
    with pytest.raises(JournalDamaged, match="newer") as damage:
        OpenYard(storage)
    assert (damage.value.name, damage.value.offset) == (name, 8)
    assert {other: bytes(file.seen) for other, file in storage.files.items()} == before


def test_queues_live_on_through_their_jobs_only(
    site: OpenYard, storage: MemoryStorage, client: BeanstalkClient
) -> None:
    client.say(b"use a\r\nput 0 0 60 1\r\nx\r\nuse b\r\nwatch c\r\n")
    again = restart(site, storage)
    assert sorted(again.yard.queues) == ["a", "default"]


@pytest.mark.parametrize("budget", [0, 1000, 1 << 30])
def test_a_journal_reads_back_the_same_whatever_memory_there_is(
    site: OpenYard, storage: MemoryStorage, client: BeanstalkClient, budget: int
) -> None:
    for size in (0, 10, 4096, 4097, 20_000):
        client.say(b"put 0 0 60 %d\r\n%s\r\n" % (size, b"z" * size))
    site.commit()
    journal = Journal(storage, 65536, ids_ahead=False)
    yard = Yard(journal, Bodies(journal, budget))
    replay_all(yard, storage, site.now_ms)
    assert snapshot(yard) == snapshot(site.yard)
    assert yard.bodies.in_memory <= budget
