"""A repair that loses what describes a log: its name, its settings, or all but its records."""

import io
from collections.abc import Callable

import pytest

from jobyard.engine.logs.logs import drop_log, set_config
from jobyard.engine.recovery.repair import repair_storage
from jobyard.engine.topics.routers import set_router
from jobyard.errors import JournalDamaged
from jobyard.journal.format.segment import segment_number
from jobyard.journal.repair.salvage import UNFINISHED
from jobyard.model.topic.router import Router
from tests.support.engine.logs import config_of, contents, delete_below, new_log, row, write
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage, stop_everywhere
from tests.support.site.yard import OpenYard

SEGMENT = 16 * 1024
RECORDS = 500
TAIL = "-of-the-log"
NAME = "audit" + TAIL


def started(storage: MemoryStorage) -> OpenYard:
    return OpenYard(storage, NOW_MS, segment_size=SEGMENT)


def mended(storage: MemoryStorage) -> str:
    out = io.StringIO()
    assert repair_storage(storage, "data", NOW_MS, out), out.getvalue()
    return out.getvalue()


def audited(count: int = RECORDS, size: int = 1) -> MemoryStorage:
    """Return a journal with a log, as a kill leaves it."""
    storage = MemoryStorage()
    site = started(storage)
    site.put(b"a job")
    log = new_log(site, NAME, ttl_ms=86_400_000)
    site.commit()
    for number in range(count):
        rows = [row({"n": number, "text": "x" * size})]
        write(site, log, *rows, key=f"key{number}" if number == 7 else "")
        site.commit()
    return storage.killed()


def place_of(storage: MemoryStorage, text: bytes) -> tuple[str, int]:
    for name, file in sorted(storage.files.items()):
        at = bytes(file.seen).find(text)
        if at >= 0 and segment_number(name) > 0:
            return name, at
    raise AssertionError(text)


def flip_name(storage: MemoryStorage) -> None:
    """Flip two bits of the first name: it is in the head, and again in the settings."""
    name, at = place_of(storage, NAME.encode())
    storage.flip(name, at, 0)
    storage.flip(name, at + 1, 0)


def noise(storage: MemoryStorage) -> None:
    name, at = place_of(storage, NAME.encode())
    storage.write(name, at // 512 * 512, bytes(range(256)) * 2)


def remove_first(storage: MemoryStorage) -> None:
    storage.unlink(min(name for name in storage.names() if segment_number(name) > 0))


DAMAGES: list[Callable[[MemoryStorage], None]] = [flip_name, noise, remove_first]


@pytest.mark.parametrize("damage", DAMAGES)
def test_records_outlive_the_name_of_their_log(damage: Callable[[MemoryStorage], None]) -> None:
    storage = audited()
    damage(storage)
    text = mended(storage)
    site = started(storage)
    recount(site.yard)
    [(name, log)] = site.yard.logs.items()
    assert name.startswith("lost-")
    assert f"renamed a log to {name}: its own name is lost" in text
    assert f"it has {log.count} records" in text
    found = [data for _, _, _, _, data, _ in contents(site, log)]
    wanted = [{"n": number, "text": "x"} for number in range(RECORDS)]
    assert found == wanted[RECORDS - len(found) :]
    if damage is not remove_first:
        assert len(found) == RECORDS
        assert log.keys.get("key7") is not None
    assert log.incarnation > 0
    assert log.config.ttl_ms == 0
    # It can be written to, and what is opened now is another.
    assert write(site, log, row("new")).first_seq == RECORDS + 1
    assert new_log(site, NAME).number > log.number
    site.commit()
    again = started(storage.killed())
    assert again.yard.logs[name].count == len(found) + 1
    assert again.yard.logs[NAME].count == 0
    # Its end is durable, although its settings were never requested.
    drop_log(again.yard, again.yard.logs[name], again.now_ms)
    again.commit()


def test_a_log_without_a_name_that_was_deleted_stays_deleted() -> None:
    storage = audited()
    flip_name(storage)
    mended(storage)
    site = started(storage)
    [log] = site.yard.logs.values()
    drop_log(site.yard, log, site.now_ms)
    site.commit()
    assert started(storage.killed()).yard.logs == {}


def test_settings_that_are_left_tell_the_name() -> None:
    storage = audited()
    site = started(storage)
    set_config(site.yard, site.yard.logs[NAME], config_of(ttl_ms=5000), site.now_ms)
    site.commit()
    flip_name(storage)
    text = mended(storage)
    assert "renamed a log to lost-" in text
    assert f"log {NAME} no longer exists" in text


def test_a_log_whose_settings_are_lost_is_told() -> None:
    storage = audited()
    site = started(storage)
    # A head further back has the name.
    assert delete_below(site, site.yard.logs[NAME], 2) == 1
    site.commit()
    name, at = place_of(storage, b'"ttl_ms":86400000')
    storage.flip(name, at, 0)
    storage.flip(name, at + 1, 0)
    text = mended(storage)
    assert f"log {NAME} has default settings now: its own are lost\n" in text
    site = started(storage)
    log = site.yard.logs[NAME]
    assert (log.count, log.config.ttl_ms) == (RECORDS - 1, 0)
    drop_log(site.yard, log, site.now_ms)
    site.commit()
    assert started(storage.killed()).yard.logs == {}


def test_a_stand_in_takes_no_name_that_is_in_use() -> None:
    storage = audited()
    site = started(storage)
    new_log(site, f"lost-{site.yard.logs[NAME].number}")
    site.commit()
    flip_name(storage)
    text = mended(storage)
    assert "-again: its own name is lost" in text
    assert len(started(storage).yard.logs) == 2


def test_routers_of_a_log_without_a_name_are_told() -> None:
    storage = audited()
    site = started(storage)
    new_log(site, "copies")
    router = Router("onward", NAME, "copies")
    set_router(site.yard, router, site.now_ms)
    site.commit()
    flip_name(storage)
    text = mended(storage)
    assert f"router onward is stopped: topic {NAME} does not exist\n" in text


def test_a_whole_journal_brings_no_deleted_log_back() -> None:
    storage = audited()
    site = started(storage)
    log = site.yard.logs[NAME]
    drop_log(site.yard, log, site.now_ms)
    for _ in range(20):
        site.put(b"x" * 3000)
        site.commit()
    site.compact()
    site.commit()
    after = storage.killed()
    assert mended(after).endswith(" jobs can be served\n")
    assert UNFINISHED not in after.names()
    assert started(after).yard.logs == {}


@pytest.mark.parametrize("damage", [noise, remove_first])
def test_an_interrupted_repair_loses_no_log(damage: Callable[[MemoryStorage], None]) -> None:
    image = audited(40, 300)
    damage(image)
    whole = image.killed()
    mended(whole)
    wanted = {key for key in snapshot(started(whole).yard) if str(key).startswith("log ")}
    assert len(wanted) >= 1
    refused: set[str] = set()
    for stopped in stop_everywhere(image.killed, lambda storage: void(mended(storage))):
        storage = stopped.cut_off()
        try:
            site = started(storage)
        except JournalDamaged as error:
            refused.add(error.why)
            mended(storage)
            site = started(storage)
        assert {key for key in snapshot(site.yard) if str(key).startswith("log ")} == wanted
    assert "a repair was interrupted; run `jobyard repair` again" in refused


def void(_: object) -> None:
    """Drop a result."""
