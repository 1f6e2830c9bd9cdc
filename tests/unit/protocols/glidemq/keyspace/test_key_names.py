import pytest

from jobyard.model.glidemq.stored_values import KIND_NAMES, ValueKind
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.keyspace.key_names import KeyName, parse_key, stored_kind
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage


def parts(name: KeyName) -> tuple[bytes, str, bytes, bytes]:
    return name.prefix, name.queue, name.family, name.rest


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"glide:{mail}:job:17", (b"glide", "mail", b"job", b"17")),
        (b"glide:{mail}:stream", (b"glide", "mail", b"stream", b"")),
        (b"app:{mail}:id", (b"app", "app:mail", b"id", b"")),
        (b"a:b:{mail}:id", (b"a:b", "a:b:mail", b"id", b"")),
        ("glide:{ä}:group:x:y".encode(), (b"glide", "ä", b"group", b"x:y")),
        (b"glide:usage:queues", (b"glide", "", b"usage:queues", b"")),
        (b"glide:{flow:7}:meta", (b"glide", "", b"flow", b"meta")),
        (b"app:{flow:a:b}:roots", (b"app", "", b"flow", b"roots")),
        (b"glide:flow:mail:7:jobs", (b"glide", "", b"flow", b"jobs")),
    ],
)
def test_a_key_is_taken_apart(key: bytes, expected: tuple[bytes, str, bytes, bytes]) -> None:
    assert parts(parse_key(key)) == expected


@pytest.mark.parametrize(
    "key",
    [
        b"", b"foo", b"glide:mail:id", b"{mail}:id", b":{mail}:id", b"glide:{}:id", b"glide:{mail}",
        b"glide:{a:b}:id", b"glide:{a{b}:id", b"g}:{a}:id", b"glide:{\xff}:id",
        b"glide:{" + b"n" * 257 + b"}:id", b"glide:{q}:w:\0", b"glide:{q}:w:" + b"x" * 4096,
        b"glide:{flow:}:meta", b"glide:{flow:7}:id", b"glide:flow:7:stream", b"glide:flow:{}:meta",
    ],
)  # fmt: skip
def test_other_names_are_refused_with_the_reason(key: bytes) -> None:
    with pytest.raises(Wrong) as caught:
        parse_key(key)
    assert str(caught.value).startswith("ERR ")


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (b"w:worker-1", ValueKind.STRING),
        (b"w", ValueKind.NONE),
        (b"schedulers", ValueKind.HASH),
        (b"schedulers:lock:__tick__", ValueKind.STRING),
        (b"schedulers:other", ValueKind.NONE),
        (b"suspended:lock:__sweep__", ValueKind.STRING),
        (b"suspended", ValueKind.NONE),
        (b"jstream:7", ValueKind.STREAM),
        (b"signals:7", ValueKind.LIST),
        (b"budget:flow", ValueKind.HASH),
        (b"tpm:1", ValueKind.STRING),
        (b"usage:1700000000000", ValueKind.HASH),
        (b"rate", ValueKind.HASH),
        (b"job:7", ValueKind.HASH),
        (b"job:7:sub:group", ValueKind.HASH),
        (b"job:7:usage-lock", ValueKind.STRING),
        (b"job:7:other", ValueKind.NONE),
        (b"stream", ValueKind.NONE),
        (b"other:1", ValueKind.NONE),
    ],
)
def test_which_keys_are_kept(family: bytes, kind: int) -> None:
    assert KIND_NAMES[stored_kind(parse_key(b"glide:{q}:" + family))] == KIND_NAMES[kind]


def test_the_key_of_no_queue_is_a_set() -> None:
    assert stored_kind(parse_key(b"app:usage:queues")) == ValueKind.SET


def test_what_is_noted_of_a_flow_is_kept() -> None:
    site = BareGlidemq(MemoryStorage())
    client = site.connect()
    meta, jobs, roots = (f"glide:{{flow:f-1}}:{part}" for part in ("meta", "jobs", "roots"))
    assert client.ask("HSET", meta, "kind", "tree", "createdAt", "17") == 2
    assert client.ask("SADD", jobs, "mail:1", "mail:2") == 2
    assert client.ask("SADD", roots, "mail:1") == 1
    assert client.refused("SADD", meta, "x").startswith("WRONGTYPE")
    again = site.reboot().connect()
    assert again.ask("HGET", meta, "kind") == b"tree"
    assert sorted(again.ask("SMEMBERS", jobs)) == [b"mail:1", b"mail:2"]
    assert again.ask("SMEMBERS", roots) == [b"mail:1"]
    assert sorted(again.ask("KEYS", "glide:{flow:f-1}:*")) == sorted(
        key.encode() for key in (meta, jobs, roots)
    )
    assert again.ask("UNLINK", meta, jobs, roots) == 3
    assert again.ask("EXISTS", meta, jobs, roots) == 0
