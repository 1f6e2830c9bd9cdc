"""A client that waits at one door is woken by a put at any other, in order, over sockets."""

import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse

import pytest

from tests.acceptance.doors.pairs import pairs
from tests.support.servers.doors import LETTERS, Door, FourDoors, Taken
from tests.support.servers.sockets import REPLY_S


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def another(four: FourDoors, letter: str) -> Door:
    made: dict[str, Door] = {
        "B": four.beanstalk(), "N": four.bunqueue(), "G": four.glide(), "T": four.topics("w2"),
    }  # fmt: skip
    return made[letter]


def await_waiting(four: FourDoors, queue: str, count: int) -> None:
    """Poll until this many clients wait: a waiting client gives no sign."""
    deadline = time.monotonic() + REPLY_S
    while int(four.b.counts(queue).get("current-waiting", 0)) != count:
        assert time.monotonic() < deadline, four.b.counts(queue)


def begin(four: FourDoors, pool: ThreadPoolExecutor, letter: str, queue: str) -> "Future[Taken]":
    return pool.submit(another(four, letter).must_take, queue)


@pairs()
def test_who_waits_is_woken_by_any_door(
    doors: FourDoors, pool: ThreadPoolExecutor, queue: str, family: str, door: str
) -> None:
    doors.t.make(queue)
    waiting = begin(doors, pool, door, queue)
    await_waiting(doors, queue, 1)
    doors.door(family).put(queue, 7)
    taken = waiting.result(REPLY_S)
    assert taken.data in (7, b"7")


def test_first_come_first_served(doors: FourDoors, pool: ThreadPoolExecutor, queue: str) -> None:
    doors.t.make(queue)
    waiting = []
    for count, letter in enumerate("GTNBTG", 1):
        waiting.append(begin(doors, pool, letter, queue))
        await_waiting(doors, queue, count)
    for number, letter in enumerate("BNGTBN"):
        doors.door(letter).put(queue, number)
    assert [int(one.result(REPLY_S).data) for one in waiting] == list(range(6))


class Stream:
    """A stream of jobs over HTTP."""

    def __init__(self, four: FourDoors, queue: str, most: int = 1) -> None:
        self._connection = HTTPConnection(*four.addresses["http"], timeout=REPLY_S)
        self._connection.request("GET", f"/v0/topics/{queue}/work?node=s&max={most}")
        self._answer: HTTPResponse = self._connection.getresponse()
        assert self._answer.status == 200

    def next_data(self) -> str:
        while True:
            line = self._answer.readline().decode()
            assert line, "the stream ended"
            if line.startswith("data: "):
                return line.partition('"data":')[2].rstrip("}\n")

    def close(self) -> None:
        self._connection.close()
        self._answer.close()


@pytest.mark.parametrize("letter", LETTERS)
def test_a_stream_is_fed_by_any_door_and_gives_back_what_it_holds(
    doors: FourDoors, queue: str, letter: str
) -> None:
    doors.t.make(queue)
    stream = Stream(doors, queue)
    doors.door(letter).put(queue, 7)
    assert stream.next_data() == "7"
    stream.close()
    assert doors.b.must_take(queue).data == b"7"


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@pytest.mark.parametrize("letter", LETTERS)
def test_who_is_gone_takes_no_job_along(doors: FourDoors, queue: str, letter: str) -> None:
    doors.t.make(queue)
    names = {"B": "beanstalk", "N": "bunqueue", "G": "glidemq", "T": "http"}
    peer = socket.create_connection(doors.addresses[names[letter]])
    if letter == "B":
        peer.sendall(f"watch {queue}\r\nignore default\r\nreserve\r\n".encode())
    elif letter == "N":
        # PULL with a timeout of half a minute, in MessagePack.
        command = b"\x83\xa3cmd\xa4PULL\xa5queue" + bytes([0xA0 + len(queue)]) + queue.encode()
        command += b"\xa7timeout\xcd\x75\x30"
        peer.sendall(struct.pack(">I", len(command)) + command)
    elif letter == "G":
        key = doors.g.key(queue, "stream")
        peer.sendall(f"XREADGROUP GROUP workers w9 BLOCK 0 STREAMS {key} >\r\n".encode())
    else:
        body = '{"node":"w9","wait_ms":20000}'
        head = f"POST /v0/topics/{queue}/claim HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        peer.sendall((head + body).encode())
    await_waiting(doors, queue, 1)
    reset(peer)
    await_waiting(doors, queue, 0)
    doors.n.put(queue, 7)
    assert doors.b.must_take(queue, 0).data == b"7"
