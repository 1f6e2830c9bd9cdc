"""A load that records the answers it got, to check a server against them after a crash.

The ledger stores for every job what was answered and what was only requested. An answer is a
promise: the job is there with its bytes, state and priority, or it is gone for good. A request
without an answer may have happened or not, and the next check of the server decides which. Bodies
are made from serial numbers, so any body that was never put is detected.
"""

import contextlib
import random
import selectors
import socket
import time
from collections.abc import Callable, Generator
from typing import Final

from tests.support.servers.patience import PATIENCE_S
from tests.support.servers.sockets import SocketPeer, connect, stat

REPLY_S: Final = PATIENCE_S
# Long enough that no lease ends and no delay is over while a test runs.
TTR_S: Final = 600
LATER_S: Final = 100_000
LIVE_MAX: Final = 200
# Jobs that stay for long: compaction has to copy them.
RESTING_MAX: Final = 80
TUBES: Final = (b"default", b"red", b"green")
SIZES: Final = (12, 40, 100, 100, 100, 300, 1000, 4096, 4097, 9000)
BIG_SIZE: Final = 50_000
BIG_EVERY: Final = 97

Address = tuple[str, int] | str


class Broken(AssertionError):
    """The server did not keep a promise."""


class Entry:
    """The known state of one job that may still exist."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        # Deletes that were sent and not answered: the job may be gone.
        self.deletes_open = 0
        # State and priority as last answered; None while a change is in progress.
        self.promised: tuple[str, int] | None = None
        self._changes_count = 0

    def change(self) -> int:
        """Note that a change was requested; return its number."""
        self.promised = None
        self._changes_count += 1
        return self._changes_count

    def settle(self, number: int, promised: tuple[str, int]) -> None:
        """Note the answer to a change, unless a later one is in progress."""
        if number == self._changes_count:
            self.promised = promised


class Answer:
    """One answer: its line, and the body that came with it."""

    def __init__(self, line: bytes, body: bytes) -> None:
        self.line: Final = line
        self.words: Final = line.split()
        self.body: Final = body


class Ledger:
    """All promises of one data directory, over any number of servers."""

    def __init__(self, seed: int, big_size: int = BIG_SIZE, big_every: int = BIG_EVERY) -> None:
        self._seed = seed
        self._big_size = big_size
        self._big_every = big_every
        self.rng: Final = random.Random(seed)
        self.jobs: dict[int, Entry] = {}
        self._gone: set[int] = set()
        self._gone_since_look: list[int] = []
        self._serials = 0
        self._serial_by_id: dict[int, int] = {}
        self._id_by_serial: dict[int, int] = {}
        self.answers_count = 0

    def broken(self, what: str) -> Broken:
        """Return the complaint, with the seed that leads back to it."""
        return Broken(f"{what} (seed {self._seed})")

    def body_of(self, serial: int) -> bytes:
        """Return the body of that number; sizes are on both sides of every limit."""
        size = SIZES[serial % len(SIZES)] if serial % self._big_every else self._big_size
        token = b"%d:" % serial
        return (token * (size // len(token) + 1))[:size]

    def next_serial(self) -> int:
        """Draw the number of a new body."""
        self._serials += 1
        return self._serials

    def meet(self, job_id: int, body: bytes) -> Entry | None:
        """Note a job that was seen with a body; None if it was answered as deleted."""
        number = body.partition(b":")[0]
        serial = int(number) if number.isdigit() else 0
        if not 0 < serial <= self._serials or body != self.body_of(serial):
            raise self.broken(f"job {job_id} has a body nobody put: {body[:60]!r}")
        if self._serial_by_id.setdefault(job_id, serial) != serial:
            raise self.broken(f"id {job_id} was given to two jobs")
        if self._id_by_serial.setdefault(serial, job_id) != job_id:
            raise self.broken(f"one put is two jobs: {self._id_by_serial[serial]} and {job_id}")
        if job_id in self._gone:
            return None
        return self.jobs.setdefault(job_id, Entry(serial))

    def resting(self) -> list[int]:
        """Return the jobs that are buried or delayed, as far as is known."""
        return [
            job_id
            for job_id, entry in self.jobs.items()
            if entry.promised is not None and entry.promised[0] != "ready"
        ]

    def may_rest(self) -> bool:
        """Return whether another job may be set aside."""
        return len(self.resting()) < RESTING_MAX

    def inserted(self, job_id: int, serial: int, promised: tuple[str, int]) -> None:
        """Note an answered put; others may have had the job before its answer was read here."""
        must_log = job_id not in self._serial_by_id
        entry = self.meet(job_id, self.body_of(serial))
        if entry is not None and must_log:
            entry.settle(0, promised)

    def deleted(self, job_id: int) -> None:
        """Note that a job was answered to be gone."""
        if self.jobs.pop(job_id, None) is not None:
            self._gone.add(job_id)
            self._gone_since_look.append(job_id)

    # -- checks of the server ------------------------------------------------------------------

    def check(self, address: Address) -> None:
        """Check a server against all promises about existing and recently removed jobs."""
        with contextlib.closing(connect(address)) as peer:
            self._check_living(peer)
            self._check_gone(peer, self._gone_since_look)
            self._gone_since_look = []

    def _check_living(self, peer: SocketPeer) -> None:
        ids = sorted(self.jobs)
        peer.send(b"".join(b"peek %d\r\nstats-job %d\r\n" % (one, one) for one in ids))
        for job_id in ids:
            found = read_answer(peer)
            facts = read_answer(peer)
            entry = self.jobs[job_id]
            if found.words[0] == b"FOUND":
                self.meet(job_id, found.body)
                self._check_state(job_id, entry, facts)
                entry.deletes_open = 0
            elif entry.deletes_open > 0:
                self.deleted(job_id)
            else:
                raise self.broken(f"job {job_id} was answered and is lost: {found.line!r}")

    def _check_state(self, job_id: int, entry: Entry, facts: Answer) -> None:
        if entry.promised is None:
            return
        seen = stat(facts.body, "state"), int(stat(facts.body, "pri"))
        if seen != entry.promised:
            raise self.broken(f"job {job_id} should be {entry.promised} and is {seen}")

    def _check_gone(self, peer: SocketPeer, ids: list[int]) -> None:
        for at in range(0, len(ids), 500):
            part = ids[at : at + 500]
            peer.send(b"".join(b"peek %d\r\n" % job_id for job_id in part))
            for job_id in part:
                if read_answer(peer).words != [b"NOT_FOUND"]:
                    raise self.broken(f"job {job_id} was answered as deleted and is back")

    def check_all(self, address: Address) -> None:
        """Check a server against every promise ever made, by taking out everything it has."""
        self.check(address)
        with contextlib.closing(connect(address)) as peer:
            self._check_gone(peer, sorted(self._gone))
            for tube in TUBES:
                peer.ask(b"watch " + tube)
                peer.ask(b"use " + tube)
                while peer.ask(b"kick 1000000") != b"KICKED 0\r\n":
                    pass
            while True:
                peer.send(b"reserve-with-timeout 0\r\n")
                taken = read_answer(peer)
                if taken.words[0] != b"RESERVED":
                    break
                job_id = int(taken.words[1])
                if self.meet(job_id, taken.body) is None:
                    raise self.broken(f"job {job_id} was answered as deleted and is handed out")
                assert peer.ask(b"delete %d" % job_id) == b"DELETED\r\n"
                self.deleted(job_id)
            if taken.words != [b"TIMED_OUT"] or self.jobs:
                raise self.broken(f"{taken.line!r}, and never handed out: {sorted(self.jobs)}")


def read_answer(peer: SocketPeer) -> Answer:
    """Read one answer of a connection that waits."""
    line = peer.read_line()
    if line.startswith((b"OK ", b"FOUND ", b"RESERVED ")):
        return Answer(line, peer.read(int(line.split()[-1]) + 2)[:-2])
    return Answer(line, b"")


# -- workers -----------------------------------------------------------------------------------

Script = Generator[bytes, Answer, None]


def _work(ledger: Ledger, tube: bytes) -> Script:
    """Put, take, delete, give back and bury in one tube, for ever."""
    yield b"use %s\r\n" % tube
    yield b"watch %s\r\n" % tube
    while True:
        lot = ledger.rng.random()
        if lot < 0.5 and len(ledger.jobs) < LIVE_MAX:
            yield from _put(ledger)
        elif lot < 0.6:
            yield from _remove_any(ledger)
        elif lot < 0.603:
            yield from _kick_any(ledger)
        else:
            yield from _take(ledger)


def _put(ledger: Ledger) -> Script:
    serial = ledger.next_serial()
    body = ledger.body_of(serial)
    priority = ledger.rng.randrange(4)
    delay_s = LATER_S if ledger.rng.random() < 0.2 and ledger.may_rest() else 0
    line = b"put %d %d %d %d\r\n" % (priority, delay_s, TTR_S, len(body))
    answer = yield line + body + b"\r\n"
    if answer.words[0] == b"INSERTED":
        state = "delayed" if delay_s else "ready"
        ledger.inserted(int(answer.words[1]), serial, (state, priority))
    elif answer.words not in ([b"OUT_OF_MEMORY"], [b"DRAINING"]):
        raise ledger.broken(f"put was answered {answer.line!r}")


def _delete(ledger: Ledger, job_id: int) -> Script:
    entry = ledger.jobs[job_id]
    entry.deletes_open += 1
    answer = yield b"delete %d\r\n" % job_id
    entry.deletes_open -= 1
    if answer.words == [b"DELETED"]:
        ledger.deleted(job_id)
    elif answer.words != [b"NOT_FOUND"]:
        raise ledger.broken(f"delete was answered {answer.line!r}")


def _remove_any(ledger: Ledger) -> Script:
    """Delete a job without taking it; another may hold it."""
    resting = set(ledger.resting())
    others = [job_id for job_id in ledger.jobs if job_id not in resting]
    if others:
        yield from _delete(ledger, ledger.rng.choice(others))


def _kick_any(ledger: Ledger) -> Script:
    """Kick a job that is buried or delayed."""
    resting = ledger.resting()
    if not resting:
        return
    job_id = ledger.rng.choice(resting)
    entry = ledger.jobs[job_id]
    assert entry.promised is not None
    _, priority = entry.promised
    number = entry.change()
    answer = yield b"kick-job %d\r\n" % job_id
    if answer.words == [b"KICKED"]:
        entry.settle(number, ("ready", priority))


def _take(ledger: Ledger) -> Script:
    answer = yield b"reserve-with-timeout 0\r\n"
    if answer.words[0] != b"RESERVED":
        return
    job_id = int(answer.words[1])
    entry = ledger.meet(job_id, answer.body)
    if entry is None:
        raise ledger.broken(f"job {job_id} was answered as deleted and is handed out")
    lot = ledger.rng.random()
    if lot < 0.6 or (lot < 0.75 and not ledger.may_rest()):
        yield from _delete(ledger, job_id)
        return
    priority = ledger.rng.randrange(4)
    if lot < 0.7:
        command, word, promised = b"bury %d %d\r\n" % (job_id, priority), b"BURIED", "buried"
    elif lot < 0.75:
        command, word = b"release %d %d %d\r\n" % (job_id, priority, LATER_S), b"RELEASED"
        promised = "delayed"
    else:
        command, word, promised = b"release %d %d 0\r\n" % (job_id, priority), b"RELEASED", "ready"
    number = entry.change()
    answer = yield command
    if answer.words != [word]:
        raise ledger.broken(f"{command!r} was answered {answer.line!r}")
    entry.settle(number, (promised, priority))


class Hand:
    """One connection that works through a script."""

    def __init__(self, ledger: Ledger, address: Address, tube: bytes) -> None:
        self._ledger = ledger
        self._script = _work(ledger, tube)
        if isinstance(address, str):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(address)
        else:
            self.sock = socket.create_connection(address, timeout=REPLY_S)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(REPLY_S)
        self._unread = b""
        self.is_gone = False

    def begin(self) -> None:
        """Send the first command."""
        self._send(next(self._script))

    def _send(self, command: bytes) -> None:
        try:
            self.sock.sendall(command)
        except (ConnectionError, TimeoutError):
            self.is_gone = True

    def proceed(self) -> None:
        """Read what is there; for every answer send the next command."""
        try:
            data = self.sock.recv(1 << 18)
        except ConnectionError:
            data = b""
        if not data:
            self.is_gone = True
            return
        self._unread += data
        while (answer := self._next_answer()) is not None:
            self._ledger.answers_count += 1
            command = self._script.send(answer)
            if not self.is_gone:
                self._send(command)

    def _next_answer(self) -> Answer | None:
        end = self._unread.find(b"\r\n") + 2
        if end < 2:
            return None
        line = self._unread[:end]
        after = end
        if line.startswith(b"RESERVED "):
            after += int(line.split()[-1]) + 2
            if len(self._unread) < after:
                return None
        body = self._unread[end : after - 2] if after > end else b""
        self._unread = self._unread[after:]
        return Answer(line, body)


class Crew:
    """Several threads that work for one ledger."""

    def __init__(self, ledger: Ledger, address: Address, count: int = 6) -> None:
        self._selector = selectors.DefaultSelector()
        self._hands = [Hand(ledger, address, TUBES[n % len(TUBES)]) for n in range(count)]
        for hand in self._hands:
            self._selector.register(hand.sock, selectors.EVENT_READ, hand)
            hand.begin()

    def work(self, is_enough: Callable[[], bool]) -> None:
        """Work until it is enough, or until the server has closed all connections."""
        deadline = time.monotonic() + 60
        while self._hands and not is_enough():
            assert time.monotonic() < deadline, "the server neither works nor ends"
            for key, _ in self._selector.select(0.01):
                hand = key.data
                hand.proceed()
                if hand.is_gone:
                    self._selector.unregister(hand.sock)
                    hand.sock.close()
                    self._hands.remove(hand)

    def work_for(self, seconds: float) -> None:
        """Work for a while."""
        end = time.monotonic() + seconds
        self.work(lambda: time.monotonic() >= end)

    def finish(self) -> None:
        """Read every answer a server that has ended still sent: those count too."""
        self.work(lambda: False)
        self.close()

    def close(self) -> None:
        """Leave."""
        for hand in self._hands:
            self._selector.unregister(hand.sock)
            hand.sock.close()
        self._hands = []
        self._selector.close()
