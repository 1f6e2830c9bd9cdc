"""Pauses and limits set at one door apply at all, and all doors share one order, over sockets."""

from collections.abc import Callable

import pytest
import redis

from tests.support.servers.doors import LETTERS, FourDoors

Act = Callable[[FourDoors, str], object]

PAUSES: dict[str, Act] = {
    "pause-tube": lambda four, queue: four.b.ask(f"pause-tube {queue} 600"),
    "Pause": lambda four, queue: four.n.client.ok("Pause", queue=queue),
    "glidemq_pause": lambda four, queue: four.g.call("pause", queue, ["meta", "events"]),
}
RESUMES: dict[str, Act] = {
    "Resume": lambda four, queue: four.n.client.ok("Resume", queue=queue),
    "glidemq_resume": lambda four, queue: four.g.call("resume", queue, ["meta", "events"]),
    "HDEL": lambda four, queue: four.g.client.hdel(four.g.key(queue, "meta"), "paused"),
}


def all_empty(four: FourDoors, queue: str) -> bool:
    return all(four.door(letter).is_empty(queue) for letter in LETTERS)


@pytest.mark.parametrize("pause", PAUSES)
@pytest.mark.parametrize("resume", RESUMES)
def test_a_pause_is_one_for_all_doors(
    doors: FourDoors, queue: str, pause: str, resume: str
) -> None:
    for letter in LETTERS:
        doors.door(letter).put(queue, letter)
    PAUSES[pause](doors, queue)
    assert all_empty(doors, queue)
    assert doors.n.client.ok("IsPaused", queue=queue) == {"paused": True}
    assert doors.g.client.hget(doors.g.key(queue, "meta"), "paused") == b"1"
    assert int(doors.b.counts(queue)["pause"]) >= 600
    RESUMES[resume](doors, queue)
    assert [len(doors.door(letter).must_take(queue, 0).id) > 0 for letter in LETTERS] == [True] * 4
    # The library writes a zero; at the other doors the field is removed.
    shown = b"0" if resume == "glidemq_resume" else None
    assert doors.g.client.hget(doors.g.key(queue, "meta"), "paused") == shown


@pytest.mark.parametrize("by", ["SetConcurrency", "HSET"])
def test_concurrency_counts_what_runs_at_all_doors(doors: FourDoors, queue: str, by: str) -> None:
    for letter in LETTERS * 2:
        doors.door(letter).put(queue, letter)
    first = doors.b.must_take(queue, 0)
    if by == "HSET":
        doors.g.client.hset(doors.g.key(queue, "meta"), "globalConcurrency", 3)
    else:
        doors.n.client.ok("SetConcurrency", queue=queue, limit=3)
    taken = doors.t.must_take(queue, 0)
    doors.g.must_take(queue, 0)
    assert all_empty(doors, queue)
    doors.b.finish(first)
    doors.n.must_take(queue, 0)
    assert all_empty(doors, queue)
    doors.t.finish(taken)
    doors.b.must_take(queue, 0)
    assert all_empty(doors, queue)


@pytest.mark.parametrize("by", ["RateLimit", "HSET"])
def test_a_rate_is_used_up_at_all_doors_together(doors: FourDoors, queue: str, by: str) -> None:
    for letter in LETTERS:
        doors.door(letter).put(queue, letter)
    if by == "HSET":
        fields = {"rateLimitMax": 2, "rateLimitDuration": 3_600_000}
        doors.g.client.hset(doors.g.key(queue, "meta"), mapping=fields)
    else:
        doors.n.client.ok("RateLimit", queue=queue, limit=2, duration=3_600_000)
    doors.b.must_take(queue, 0)
    doors.g.must_take(queue, 0)
    assert all_empty(doors, queue)
    doors.n.client.ok("RateLimitClear", queue=queue)
    doors.t.must_take(queue, 0)


@pytest.mark.parametrize("letter", LETTERS)
def test_order_is_one_over_all_doors(doors: FourDoors, queue: str, letter: str) -> None:
    ranks = {"a": ("B", 2), "b": ("N", 1), "c": ("G", 0), "d": ("T", 0), "e": ("B", 0)}
    ranks |= {"f": ("N", 0), "g": ("T", -3), "h": ("N", -5), "i": ("G", 0), "j": ("B", 1)}
    for word, (family, rank) in ranks.items():
        doors.door(family).put(queue, word, rank=rank)
    taken = [doors.door(letter).must_take(queue, 0).data for _ in ranks]
    assert [one.decode().strip('"') if isinstance(one, bytes) else one for one in taken] == list(
        "hgcdefibja"
    )


@pytest.mark.parametrize("letter", LETTERS)
def test_what_a_full_queue_refuses_is_refused_at_every_door(
    doors: FourDoors, queue: str, letter: str
) -> None:
    doors.t.make(queue, cap_records=2, discard="reject")
    doors.b.put(queue, 1)
    doors.n.put(queue, 2)
    if letter == "B":
        doors.b.use(queue)
        doors.b.peer.send(b"put 0 0 60 1\r\n3\r\n")
        assert doors.b.peer.read_line() == b"OUT_OF_MEMORY\r\n"
    elif letter == "N":
        assert "full" in doors.n.client.refused("PUSH", queue=queue, data=3)
    elif letter == "G":
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            doors.g.put(queue, 3)
    else:
        assert doors.t.refused(queue, "", {"records": [{"data": 3}]})[0] == 422
    assert doors.n.client.ok("Count", queue=queue) == {"count": 2}


@pytest.mark.parametrize("letter", LETTERS)
def test_a_queue_that_discards_lets_the_oldest_go_that_nobody_runs(
    doors: FourDoors, queue: str, letter: str
) -> None:
    doors.t.make(queue, cap_records=3)
    doors.g.put(queue, 1)
    held = doors.b.must_take(queue, 0)
    doors.n.put(queue, 2)
    doors.b.put(queue, 3)
    doors.door(letter).put(queue, 4)
    assert [record["data"] for record in doors.t.records(queue)] == [1, 3, 4]
    assert doors.b.finish(held) == b"DELETED"
    assert doors.g.inspect(queue, "2").state == ""


def test_a_log_takes_jobs_at_no_door(doors: FourDoors, queue: str) -> None:
    doors.t.ask(queue, "", {"type": "log"}, "PUT")
    for name in (queue, "_events"):
        doors.b.use(name)
        doors.b.peer.send(b"put 0 0 60 1\r\n3\r\n")
        assert doors.b.peer.read_line() == b"DRAINING\r\n"
        assert "is a log" in doors.n.client.refused("PUSH", queue=name, data=3)
        with pytest.raises(redis.ResponseError, match="is a log"):
            doors.g.put(name, 3)
    assert doors.t.refused("_events", "", {"records": [{"data": 3}]}) == (403, "forbidden")


def test_a_name_a_door_cannot_spell_is_left_out_there(doors: FourDoors, queue: str) -> None:
    doors.n.put(f"{queue}:n", 1)
    doors.b.put(f"{queue}/b", 1)
    doors.g.put(f"{queue}-ä", 1)
    tubes = doors.b.ask("list-tubes").decode().splitlines()
    queues = [one["name"] for one in doors.n.client.ok("ListQueues")["queues"]]
    status, answer = doors.t.client.ask("GET", "/v0/topics?limit=1000")
    assert status == 200
    topics = [one["topic"] for one in answer["topics"]]
    keys = {key.decode() for key in doors.g.client.scan_iter("*:id", count=1000)}
    for name, at_b, at_n, at_t in (
        (f"{queue}:n", False, True, True),
        (f"{queue}/b", True, False, False),
        (f"{queue}-ä", False, False, False),
    ):
        assert (f"- {name}" in tubes, name in queues, name in topics) == (at_b, at_n, at_t), name
    # A prefix is part of the name of a queue.
    assert {f"{queue}:{{n}}:id", f"glide:{{{queue}/b}}:id", f"glide:{{{queue}-ä}}:id"} <= keys
    assert doors.g.client.hget(f"{queue}:{{n}}:job:1", "data") == b"1"
