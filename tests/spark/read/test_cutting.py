"""Reads and writes through a proxy that cuts, delays, withholds and repeats: each row once."""

import json
import random
from collections.abc import Iterator

import pytest

from jobyard.spark.read.reading import Reading
from jobyard.spark.write.sending import CHUNK_ROWS
from tests.support.clients.spark import Query, read_batch, schema, source_of
from tests.support.clients.spark_writes import batch_of, options_of, run_write
from tests.support.servers.cutting import FAULTS, PASS, CuttingProxy
from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.patience import PATIENCE_S

SEEDS = range(1, 5)
# A call that is withheld costs this much; a slow machine only repeats more calls.
CALM = {"timeoutMs": "500", "maxRetries": "15"}
ROWS = 3000


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("jobyard.client.calls", "jobyard.spark.read.export"):
        monkeypatch.setattr(f"{module}._PAUSE_S", 0.01)


@pytest.fixture(scope="module")
def large(yard: HttpYard) -> str:
    """A topic of about a megabyte."""
    topics = Topics(yard.address)
    records = [{"data": f"{at:0300}", "tag": f"t{at % 7}"} for at in range(ROWS)]
    assert topics.ask("POST", "/v0/topics/large", {"records": records})[0] < 300
    topics.close()
    return "large"


@pytest.fixture
def proxy(yard: HttpYard, request: pytest.FixtureRequest) -> Iterator[CuttingProxy]:
    with CuttingProxy(yard.address, request.param, share=0.4) as made:
        yield made


@pytest.mark.parametrize("proxy", SEEDS, indirect=True)
def test_a_batch_read_has_each_row_once(proxy: CuttingProxy, large: str) -> None:
    rows = read_batch(proxy.url, "seq value", topic=large, minPartitions="6", **CALM)
    assert [row["seq"] for row in rows] == list(range(1, ROWS + 1))
    assert [json.loads(row["value"]) for row in rows] == [f"{at:0300}" for at in range(ROWS)]
    assert proxy.seen.total() > proxy.seen[PASS] > 0


@pytest.mark.parametrize("proxy", SEEDS, indirect=True)
def test_a_stream_has_each_row_once_while_others_write(
    proxy: CuttingProxy, topics: Topics, request: pytest.FixtureRequest
) -> None:
    topic = f"grows-{request.node.callspec.id}"
    assert topics.ask("PUT", f"/v0/topics/{topic}", {})[0] == 201
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "70", "minPartitions": "3"}
    found: list[tuple[str, int]] = []
    at = None
    for turn in range(4):
        records = [{"data": turn}] * 60
        assert topics.ask("POST", f"/v0/topics/{topic}", {"records": records})[0] == 200
        # The driver begins anew with the offsets that were stored.
        run = Query(proxy.url, at, topic=topic, consumer="reader", **limits, **CALM)
        found += [row for batch in run.until_end() for row in batch]
        at = run.at
        run.stop()
    assert found == [(topic, seq) for seq in range(1, 241)]


@pytest.mark.parametrize("proxy", SEEDS, indirect=True)
def test_a_staged_write_is_there_once(
    proxy: CuttingProxy, yard: HttpYard, topics: Topics, request: pytest.FixtureRequest
) -> None:
    seed = int(request.node.callspec.id)
    drawn = random.Random(seed)
    topic = f"staged-{seed}"
    assert topics.ask("PUT", f"/v0/topics/{topic}", {})[0] == 201
    wanted = options_of(proxy.url, topic=topic, **{k.lower(): v for k, v in CALM.items()})
    written: list[int] = []
    for batch in range(4):
        parts = []
        for _ in range(3):
            # Some parts are a chunk and some are several; some have no rows at all.
            rows = list(range(len(written), len(written) + drawn.choice((0, 10, CHUNK_ROWS + 1))))
            written += rows
            half = len(rows) // 2
            parts.append([batch_of(value=[str(n) for n in part])
                          for part in (rows[:half], rows[half:]) if part])  # fmt: skip
        run_write(
            wanted, parts, f"q{seed}:{batch}",
            dies=lambda: drawn.choice((-1, -1, 0, 1)),
            is_forgetful=lambda: drawn.random() < 0.3,
        )  # fmt: skip
        proxy.send_late()
        found = [int(row["value"]) for row in read_batch(yard.url, "value", topic=topic)]
        # In the order of batches and parts, whatever the order in which they were staged.
        assert found == written
    assert proxy.seen.total() > proxy.seen[PASS] > 0


@pytest.mark.parametrize("proxy", SEEDS, indirect=True)
def test_a_direct_write_with_keys_is_there_once(
    proxy: CuttingProxy, yard: HttpYard, topics: Topics, request: pytest.FixtureRequest
) -> None:
    topic = f"keyed-{request.node.callspec.id}"
    assert topics.ask("PUT", f"/v0/topics/{topic}", {})[0] == 201
    small = {k.lower(): v for k, v in CALM.items()}
    wanted = options_of(proxy.url, topic=topic, commit="direct", **small)
    drawn = random.Random(request.node.callspec.id)
    rows = list(range(400))
    parts = [
        [batch_of(value=[str(n) for n in some], key=[f"k{n}" for n in some])]
        for some in (rows[:150], rows[150:160], rows[160:])
    ]
    for _ in range(3):
        run_write(wanted, parts, "", dies=lambda: drawn.choice((-1, 0)))
    proxy.send_late()
    found = [int(row["value"]) for row in read_batch(yard.url, "value", topic=topic)]
    assert sorted(found) == rows


def test_a_reader_that_pauses_longer_than_the_server_waits_has_each_row_once(
    yard: HttpYard, topics: Topics
) -> None:
    # More than is read ahead and fits into the buffers of sockets.
    for _ in range(6):
        records = {"records": [{"data": "x" * 1_000_000}] * 5}
        assert topics.ask("POST", "/v0/topics/huge?return_seqs=false", records)[0] < 300
    with CuttingProxy(yard.address, 1, share=0.0, patience_s=0.1) as proxy:
        source = source_of(proxy.url, topic="huge", minPartitions="1")
        reader = source.reader(schema=schema(source, "seq value"))
        (partition,) = reader.partitions()
        options = reader.options
        reading = Reading(
            options.connecting, reader.table, {}, options.loss_rule, room_bytes=1,
            # Never by itself: the server is the one that leaves.
            park_s=PATIENCE_S,
        )  # fmt: skip
        rows = reading.read(partition)
        seqs = next(rows).column("seq").to_pylist()
        assert proxy.lost_patience.wait(PATIENCE_S)
        for each in rows:
            seqs += each.column("seq").to_pylist()
    assert seqs == list(range(1, 31))


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone_is_survived(yard: HttpYard, topics: Topics, fault: str) -> None:
    topic = f"one-{FAULTS.index(fault)}"
    assert topics.ask("PUT", f"/v0/topics/{topic}", {})[0] == 201
    with CuttingProxy(yard.address, 7, share=0.5, faults=(fault,)) as proxy:
        small = {k.lower(): v for k, v in CALM.items()}
        wanted = options_of(proxy.url, topic=topic, **small)
        run_write(wanted, [[batch_of(value=["1", "2"])], [batch_of(value=["3"])]], f"f:{topic}")
        rows = read_batch(proxy.url, "value", topic=topic, minPartitions="3", **CALM)
        assert sorted(row["value"] for row in rows) == [b"1", b"2", b"3"]
        assert proxy.seen[fault] > 0
