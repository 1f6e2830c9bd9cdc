"""Groups that subscribe to a queue, over redis-py: every message, each group for itself."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest
import redis

from examples.glidemq_producer import Options, add
from tests.support.servers.glidemq import Yard

NAMES = [f"orders.{number}" for number in range(20)]


def publish(client: Any, queue: str, names: list[str]) -> None:
    for name in names:
        add(client, queue, name, {"of": name}, Options())


def read(client: Any, stream: str, group: str, consumer: str = "c1", **more: Any) -> list[Any]:
    """Return the entries a consumer is given, in either version of the protocol."""
    found = client.xreadgroup(group, consumer, {stream: ">"}, **more)
    if isinstance(found, dict):
        return [entry for pages in found.values() for page in pages for entry in page]
    return [entry for _, entries in found or [] for entry in entries]


def test_two_groups_get_every_message(shared: Yard, queue: str, client: Any) -> None:
    name = queue.partition("{")[2].partition("}")[0]
    stream = f"{queue}stream"
    heard: dict[str, list[str]] = {"mails": [], "stock": []}

    def follow(group: str) -> None:
        with shared.client(decode_responses=True) as consumer:
            while len(heard[group]) < len(NAMES):
                for entry, fields in read(consumer, stream, group, count=3, block=15_000):
                    heard[group].append(fields["name"])
                    assert consumer.xack(stream, group, entry) == 1

    for group in heard:
        assert client.xgroup_create(stream, group, id="$", mkstream=True)
    with pytest.raises(redis.ResponseError, match="BUSYGROUP"):
        client.xgroup_create(stream, "mails", id="$")
    followers = [threading.Thread(target=follow, args=(group,)) for group in heard]
    for follower in followers:
        follower.start()
    with shared.client(decode_responses=True) as producer:
        publish(producer, name, NAMES)
    for follower in followers:
        follower.join(timeout=30)
    assert heard == {"mails": NAMES, "stock": NAMES}
    assert client.xpending(stream, "mails")["pending"] == 0
    assert {bytes(one["name"]) for one in client.xinfo_groups(stream)} == {b"mails", b"stock"}
    assert client.xlen(stream) == len(NAMES)
    assert client.xtrim(stream, maxlen=5, approximate=False) == len(NAMES) - 5
    assert client.xlen(stream) == 5


def test_who_acknowledges_and_deletes_is_told_so(queue: str, client: Any, shared: Yard) -> None:
    stream = f"{queue}stream"
    with shared.client(decode_responses=True) as producer:
        publish(producer, queue.partition("{")[2].partition("}")[0], NAMES[:2])
    for entry, _ in read(client, stream, "workers", count=2):
        assert client.xack(stream, "workers", entry) == 1
        assert client.xdel(stream, entry) == 1
    assert client.xlen(stream) == 0


def test_groups_are_there_after_a_crash(tmp_path: Path) -> None:
    stream = "glide:{casts}:stream"
    with contextlib.closing(Yard("--data", str(tmp_path / "data"))) as yard:
        with yard.client(decode_responses=True) as client:
            for group in ("mails", "stock"):
                client.xgroup_create(stream, group, id="$", mkstream=True)
            publish(client, "casts", NAMES[:4])
            given = read(client, stream, "mails")
            # Out of order: the second and the last are still at work.
            client.xack(stream, "mails", given[2][0], given[0][0])
        yard.kill()
        yard.start()
        with yard.client(decode_responses=True) as client:
            again = read(client, stream, "mails", "c2")
            assert [fields["name"] for _, fields in again] == [NAMES[1], NAMES[3]]
            assert [entry for entry, _ in again] == [given[1][0], given[3][0]]
            everything = read(client, stream, "stock")
            assert [fields["name"] for _, fields in everything] == NAMES[:4]
