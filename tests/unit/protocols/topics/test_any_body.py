"""The port answers any input, and what it refuses changes nothing."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.doors.topics import BareTopics

# Names that mean something somewhere, so that random bodies come close to good ones.
NAMES = st.sampled_from(
    [
        "records", "data", "tag", "node", "meta", "idempotency_key", "create", "config", "type",
        "from_seq", "limit", "wait_ms", "include_tags", "include_meta", "max_batch_bytes",
        "before_seq", "match", "max", "lease_ms", "seqs", "lease_ids", "delay_ms", "priority",
        "cap_records", "discard", "dead_letter", "max_deliveries", "ttl_ms", "claim_jitter_ms",
    ]
)  # fmt: skip
NUMBERS = st.sampled_from([0, 1, 2, -1, 1.5, 100, 1 << 31, 1 << 62, 1 << 63, 1 << 64, 1e300])
SCALARS = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.integers()
    | st.sampled_from(["", "w", "q", "log", "queue", "Eq", "Glob", "a*", "old", "t.dlq"])
    | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=12,
)
RECORD = st.fixed_dictionaries(
    {"data": VALUES},
    optional={"tag": SCALARS, "node": SCALARS, "meta": VALUES, "delay_ms": SCALARS},
)
BODIES = (
    st.dictionaries(NAMES, VALUES, max_size=6)
    | VALUES
    | st.fixed_dictionaries(
        {"records": st.lists(RECORD, max_size=3)},
        optional={"idempotency_key": SCALARS, "node": SCALARS, "config": VALUES},
    )
    | st.fixed_dictionaries(
        {"node": st.sampled_from(["w", "x"]), "seqs": st.lists(st.integers(0, 4), max_size=3)},
        optional={"lease_ms": NUMBERS, "delay_ms": NUMBERS, "max": NUMBERS},
    )
)
TEXTS = BODIES.map(json.dumps).map(str.encode) | st.binary(max_size=40)
PATHS = st.sampled_from(
    [
        ("POST", ""), ("POST", "/diff"), ("POST", "/delete"), ("POST", "/claim"), ("POST", "/ack"),
        ("POST", "/nack"), ("POST", "/extend"), ("POST", "/redrive"), ("POST", "/purge"),
        ("PUT", ""), ("POST", "/dead-letter"),
    ]
)  # fmt: skip


def facts(site: BareTopics) -> list[Any]:
    """Return all that a refused call could have changed."""
    found: list[Any] = []
    for line in site.api.ask("GET", "/v0/topics").json["topics"]:
        name = line["topic"]
        state = site.api.ask("GET", f"/v0/topics/{name}").json
        state.pop("last_read_ts")
        state.pop("performance")
        page = site.api.post(f"{name}/diff", {"include_tags": True}).json
        page.pop("performance")
        found.append((state, page))
    return found


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    calls=st.lists(
        st.tuples(PATHS, st.sampled_from(["log", "queue", "new"]), TEXTS), min_size=1, max_size=8
    ),
    ticks=st.lists(st.sampled_from([0, 1, 150, 40_000]), min_size=8, max_size=8),
)
def test_whatever_is_sent_is_answered_and_what_is_refused_changes_nothing(
    calls: list[tuple[tuple[str, str], str, bytes]], ticks: list[int]
) -> None:
    site = BareTopics()
    site.api.put("log")
    site.api.put("queue", type="queue")
    site.api.write("log", 1, 2)
    site.api.write("queue", 1, 2, 3)
    site.api.claim("queue", max=2)
    for ((method, path), name, body), ms in zip(calls, ticks, strict=False):
        before = facts(site)
        caller = site.connect()
        kind = {"Content-Type": "application/json"}
        caller.send(method, f"/v0/topics/{name}{path}", body, kind)
        answer = caller.hear()
        if answer is None:
            # It waits, and not for long.
            site.tick(30_000)
            answer = caller.hear()
        assert answer is not None
        assert answer.status < 500, (method, path, body, answer)
        if answer.status >= 400:
            assert answer.code
            assert facts(site) == before, (method, path, body, answer)
        else:
            assert "performance" in answer.json
        caller.close()
        site.tick(ms)
        site.check()


@settings(max_examples=100)
@given(data=VALUES, meta=st.dictionaries(st.text(max_size=4), VALUES, max_size=3))
def test_whatever_is_written_is_read_as_it_was_written(data: object, meta: object) -> None:
    site = BareTopics()
    site.api.put("log")
    site.api.put("queue", type="queue")
    raw = json.dumps(data, indent=1).encode()
    raw_meta = json.dumps(meta, separators=(" ,", ": ")).encode()
    for name in ("log", "queue"):
        site.api.ok(name, b'{"records":[{"data":%s,"meta":%s}]}' % (raw, raw_meta))
        page = site.api.post(f"{name}/diff", {}).body
        assert b'"data":%s,"meta":%s}]' % (raw, raw_meta) in page
    claimed = site.api.post("queue/claim", {"node": "w"}).body
    assert b'"data":%s,"meta":%s}]' % (raw, raw_meta) in claimed
