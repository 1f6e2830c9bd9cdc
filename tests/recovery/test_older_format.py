"""A journal that an older Jobyard wrote is read with the meaning it had then."""

import zlib
from base64 import b85decode

from jobyard.engine.state.history import read_history
from jobyard.journal.format.segment import SEGMENT_FORMAT
from jobyard.model.job import DEAD, DELAYED, DONE, READY
from jobyard.model.topic.history_row import HistoryRow
from tests.support.site.recount import recount
from tests.support.site.site import ALL_HISTORY, NOW_MS
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

# Written by a Jobyard of format 4 and killed: of two jobs in `mails` one was taken, released and
# taken again, the other finished; the run of a third in `runs` failed.
_NAME = "0000000002.journal"
_SIZE = 1 << 16
_FORMAT_4 = (
    rb"c-r&wcZzfja^YfOU|?VZVnzlCfYIoH2}&P`TD%TKdqp~h@F2-EBB^7<B2Fx@*v^y*qPc*W2WlS3E=xvCx1ig_f@UWn"
    rb"Kh0Wo@f(O{17caII#wj}a}zUjiWz~TfoO)I7?|<&d^aN!&A`wQ_HU0w!Yk~SC&CP5BGN!cGy|E?3`_z!Uj{0{f~26R"
    rb"G_RPEiIE`=$Yw?gGA2BhF+nXuvK$UT(XlX@ksV0o7p0^Y>6(Kg<|dL7W&#ldvzd(nyH{YqNYhdfEDtoq082!sKwXC%"
    rb"#vsfL)R2Ito(USMAn>jkHICqBqJ;v?{Ap;R0CNu$n)|2Wat|X5*gZ^W?m-WIMgs1chRZ!n5ce>ng+EN)4sO&~XXa#N"
    rb"=){v6Cgh{00!AX;12cm|1u5{+6~WVMets?};TYgZAlMQPGg1;n=A#3@TT8Ge9GE%R+Ob3w05~>^82"
)


def older() -> MemoryStorage:
    storage = MemoryStorage()
    data = zlib.decompress(b85decode(_FORMAT_4))
    storage.create(_NAME, _SIZE)
    storage.write(_NAME, 0, data)
    storage.sync(_NAME)
    storage.sync_directory()
    return storage


def rows_of(site: OpenYard) -> list[HistoryRow]:
    return read_history(site.yard, 0, 100).rows


def test_jobs_are_as_they_were() -> None:
    storage = older()
    assert storage.read(_NAME, 8, 4) == b"\x04\0\0\0"
    site = OpenYard(storage, NOW_MS + 9000, window=ALL_HISTORY)
    released = site.yard.jobs.get(1)
    failed = site.yard.jobs.get(3)
    assert released is not None
    assert failed is not None
    assert (released.state, released.deliveries, released.rank) == (READY, 2, 5)
    assert (failed.state, failed.attempts) in ((READY, 1), (DELAYED, 1), (DEAD, 1), (DONE, 1))
    assert failed.details is not None
    assert failed.details.failures is not None
    assert [one.error for one in failed.details.failures] == ["boom"]
    assert failed.details.custom_id == "order-7"
    recount(site.yard)
    site.commit()
    again = OpenYard(storage.cut_off(), site.now_ms, window=ALL_HISTORY)
    assert snapshot(again.yard) == snapshot(site.yard)


def test_its_rows_lack_what_was_not_written_then() -> None:
    site = OpenYard(older(), NOW_MS + 9000, window=ALL_HISTORY)
    rows = [row for row in rows_of(site) if row.event != "abandoned"]
    assert [(row.event, row.job_id) for row in rows] == [
        *[("enqueued", 1), ("enqueued", 2), ("enqueued", 3)],
        *[("claimed", 1), ("released", 1), ("claimed", 2), ("completed", 2)],
        *[("claimed", 3), ("failed", 3), ("claimed", 1)],
    ]
    assert [row.queue_seq for row in rows[:3]] == [1, 2, 1]
    assert rows[2].client_id == "order-7"
    claimed, released = rows[3:5]
    assert (claimed.door, claimed.lease, claimed.ttl_ms) == ("beanstalk", 1, 60_000)
    assert (claimed.family, claimed.worker, claimed.deliveries) == ("", "", 0)
    assert (released.rank, released.deliveries, released.holder) == (5, 1, claimed.holder)
    assert (released.claimed_ms, released.finished_ms) == (NOW_MS + 100, NOW_MS + 150)
    assert (released.family, released.door, released.worker, released.lease) == ("", "", "", 0)
    assert rows[8].error == "boom"


def test_new_records_follow_the_old_ones() -> None:
    storage = older()
    site = OpenYard(storage, NOW_MS + 9000, window=ALL_HISTORY)
    site.put(b"new", "mails")
    site.commit()
    header = storage.read(site.journal.hot.name, 8, 4)
    assert int.from_bytes(header, "little") == SEGMENT_FORMAT
    assert rows_of(site)[-1].event == "enqueued"
