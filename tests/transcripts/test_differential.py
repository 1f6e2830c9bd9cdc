"""Random conversations, the same bytes to Jobyard's bare session and to the original.

A conversation is one stream of commands, some of them damaged, ended by a half-close, so that
both sides run all of it and every reserve ends. The answers must be equal, byte for byte, but for
what differs by nature (times, files) or by layout (1.13 quotes names).

Left out because the original is known to differ: a bare CR, lines past 224 bytes, a timeout that
is not a number, the order of list-tubes after a tube died, a body that does not end in CRLF (it
costs the original an id), and reserve-job of a job that is not there (`stats` is not compared).
"""

import random
import re
from typing import Final

import pytest

from tests.support.servers.processes import start_original
from tests.support.servers.sockets import connect
from tests.support.transcripts.bare import BareStage
from tests.support.transcripts.theatre import Theatre

SEEDS: Final = range(40)
COMMANDS_COUNT: Final = 120

TUBES: Final = ["default", "a", "b", "a-b", "123"]
NUMBERS: Final = ["0", "1", "2", "1023", "1024", "007", "4294967295", "4294967296", "-1", "x", ""]
KICKS: Final = ["0", "1", "2", "10", "-1", "+1", "1x", "4294967297", "x", ""]
PLAIN: Final = ["reserve", "peek-ready", "peek-delayed", "peek-buried", "list-tube-used"]
DAMAGE: Final = " \t\n\0x-0:"

# Values that differ from run to run, and the quotes of 1.13.
VARYING: Final = re.compile(rb"^(age|time-left|pause-time-left|file): \d+$", re.MULTILINE)
QUOTED: Final = re.compile(rb'^(name|tube): "(.*)"$', re.MULTILINE)
SIZE: Final = re.compile(rb"^OK \d+\r$", re.MULTILINE)


class Speaker:
    """Draws one conversation from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._puts_count = 0
        self._delays_count = 0

    def stream(self) -> bytes:
        """Return the whole conversation."""
        return b"".join(self._command() for _ in range(COMMANDS_COUNT))

    def _command(self) -> bytes:
        if self._random.random() < 0.3:
            return self._put()
        line = self._line()
        if self._random.random() < 0.15:
            line = self._damaged(line)
        return line.encode("ascii") + b"\r\n"

    def _put(self) -> bytes:
        self._puts_count += 1
        body = bytes(self._random.choices(b"abc\n\0 ", k=self._random.randrange(12)))
        line = f"put {self._number()} {self._delay()} {self._random.choice(['0', '1', '60'])}"
        if self._random.random() < 0.1:
            line = self._damaged(line)
        return f"{line} {len(body)}\r\n".encode("ascii") + body + b"\r\n"

    def _delay(self) -> int:
        # No two alike: equal ones part by the microsecond there and by age here.
        self._delays_count += 1
        later = 1000 + self._delays_count
        return self._random.choice([0, 0, later, 3000 - later])

    def _number(self) -> str:
        # Mostly good ones: a bad put leaves its body behind as commands.
        return self._random.choice(NUMBERS if self._random.random() < 0.1 else NUMBERS[:7])

    def _job(self) -> str:
        return str(self._random.randrange(self._puts_count + 3))

    def _line(self) -> str:
        draw = self._random
        tube = draw.choice(TUBES)
        return draw.choice(
            [
                draw.choice(PLAIN),
                f"use {tube}",
                f"watch {tube}",
                f"ignore {tube}",
                "list-tubes-watched",
                f"stats-tube {tube}",
                f"pause-tube {tube} {draw.choice(['0', '0', '100', self._number()])}",
                f"kick {draw.choice(KICKS)}",
                "reserve-with-timeout 0",
                "reserve-with-timeout 0",
                f"reserve-job {self._job()}",
                f"delete {self._job()}",
                f"release {self._job()} {self._number()} {self._delay()}",
                f"bury {self._job()} {self._number()}",
                f"touch {self._job()}",
                f"kick-job {self._job()}",
                f"peek {self._job()}",
                f"stats-job {self._job()}",
            ]
        )

    def _damaged(self, line: str) -> str:
        if line.startswith("reserve-with-timeout"):
            return line
        at = self._random.randrange(len(line))
        new = self._random.choice(DAMAGE)
        return self._random.choice(
            [
                line[:at] + line[at + 1 :],
                line[:at] + new + line[at:],
                line[:at] + new + line[at + 1 :],
            ]
        )


def alike(answers: bytes) -> bytes:
    """Take out of the answers what may differ."""
    answers = QUOTED.sub(rb"\1: \2", answers)
    answers = VARYING.sub(rb"\1: *", answers)
    return SIZE.sub(b"OK *\r", answers)


def answers_of_jobyard(stream: bytes, *, is_bytewise: bool) -> bytes:
    peer = BareStage({}, is_bytewise=is_bytewise).connect()
    peer.send(stream)
    peer.shut_down()
    return peer.await_end()


def answers_of_original(stream: bytes) -> bytes:
    server = start_original()
    try:
        peer = connect(server.address)
        peer.send(stream)
        peer.shut_down()
        answers = peer.await_end()
        peer.close()
    finally:
        server.close()
    return answers


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_bytes_get_the_same_answers(seed: int, theatre: Theatre) -> None:
    if theatre.original_version is None:
        pytest.skip("beanstalkd is not installed")
    stream = Speaker(seed).stream()
    wanted = alike(answers_of_original(stream)).split(b"\r\n")
    came = alike(answers_of_jobyard(stream, is_bytewise=False)).split(b"\r\n")
    assert came == wanted, stream


@pytest.mark.parametrize("seed", SEEDS)
def test_it_does_not_matter_how_the_bytes_arrive(seed: int) -> None:
    stream = Speaker(seed).stream()
    whole = answers_of_jobyard(stream, is_bytewise=False)
    assert answers_of_jobyard(stream, is_bytewise=True) == whole
