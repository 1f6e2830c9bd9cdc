"""A function of the library, and one call of it: keys and arguments, checked when they are read.

How many there are is checked before, so that a function can read any that it declares. A client's
mistake is raised as `Wrong` before anything has changed, and answered as a protocol error. A
function writes its answer itself.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.queues import open_queue
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.keyspace.key_names import parse_key
from jobyard.protocols.glidemq.keyspace.key_parts import KeyPlace, find_place, text_of
from jobyard.protocols.glidemq.number_text import NUMBER_MAX, whole
from jobyard.wire.resp.write import write_array, write_bulk, write_integer, write_text

# How far in the future a time may be. A year is 3e10; 2^42 ms are 139 years and the most that a
# score can hold.
TIME_MAX: Final = (1 << 42) - 1


@final
class Fcall:
    """Keys and arguments of one FCALL."""

    def __init__(self, call: Call, keys_count: i64) -> None:
        self.call = call
        self.yard = call.yard
        self.door = call.door
        self.session = call.session
        self.events = call.door.events
        self._command = call.command
        self.keys_count: i64 = keys_count
        # After FCALL, the function name, and the number of keys.
        self._first_arg: i64 = 3 + keys_count
        self.args_count: i64 = call.command.count() - self._first_arg
        self.out = call.out
        self.proto: i64 = call.proto
        self.now_ms: i64 = call.now_ms

    def key(self, at: i64) -> bytes:
        """Return a key."""
        return self._command.arg(3 + at)

    def place(self, at: i64, part: i64) -> KeyPlace:
        """Return the place that a key names, which must be this part of a queue."""
        place = find_place(parse_key(self.key(at)))
        if place.part != part:
            raise Wrong(f"ERR wrong key {text_of(self.key(at))[:128]!r} at {int(at) + 1}")
        return place

    def queue(self, at: i64, part: i64) -> Queue:
        """Return the queue that a key names, created if needed."""
        return open_queue(self.yard, self.place(at, part).queue_name)

    def known_queue(self, at: i64, part: i64) -> Queue | None:
        """Return the queue that a key names, if it exists."""
        return self.yard.queues.get(self.place(at, part).queue_name)

    def same_queue(self, at: i64, part: i64, place: KeyPlace) -> None:
        """Check that a key names a part of the same queue as another."""
        if not place.is_sibling(self.key(at), part):
            raise Wrong(f"ERR wrong key {text_of(self.key(at))[:128]!r} at {int(at) + 1}")

    def arg(self, at: i64) -> bytes:
        """Return an argument; a missing one is empty."""
        return self._command.arg(self._first_arg + at) if at < self.args_count else b""

    def text(self, at: i64) -> str:
        """Return an argument as text, which must be UTF-8 because it is stored as text."""
        try:
            return self.arg(at).decode()
        except UnicodeDecodeError:
            raise Wrong(f"ERR argument {int(at) + 1} is not UTF-8") from None

    def is_set(self, at: i64) -> bool:
        """Return whether a flag is set."""
        return self.arg(at) == b"1"

    def number(self, at: i64, most: i64, what: str) -> i64:
        """Return an argument that is an integer from 0 to `most`."""
        number = self.any_number(at, what)
        if number < 0 or number > most:
            raise Wrong(f"ERR {what} is not an integer or out of range")
        return number

    def any_number(self, at: i64, what: str) -> i64:
        """Return an argument that is a number, without its fraction."""
        data = self.arg(at)
        if len(data) == 1 and 48 <= data[0] <= 57:
            # Nearly all of them are a single digit.
            return i64(data[0]) - 48
        number = whole(data)
        if number is None:
            raise Wrong(f"ERR {what} is not an integer or out of range")
        return i64(number)

    def number_or(self, at: i64, otherwise: i64, what: str) -> i64:
        """Return a number that may be missing or empty."""
        if at >= self.args_count or not self.arg(at):
            return otherwise
        return self.number(at, NUMBER_MAX, what)

    # -- answers ------------------------------------------------------------------------------

    def answer(self, text: str) -> None:
        """Answer with text."""
        write_text(self.out, text)

    def answer_number(self, number: i64) -> None:
        """Answer with a number."""
        write_integer(self.out, number)

    def answer_texts(self, texts: list[str]) -> None:
        """Answer with several texts."""
        write_array(self.out, len(texts))
        for text in texts:
            write_text(self.out, text)

    def answer_all(self, values: list[bytes]) -> None:
        """Answer with several values."""
        write_array(self.out, len(values))
        for value in values:
            write_bulk(self.out, value)


@final
class Function:
    """What runs a function, and how many keys and arguments it takes."""

    def __init__(
        self, run: Callable[[Fcall], None], keys: tuple[i64, i64], args: tuple[i64, i64]
    ) -> None:
        self.run = run
        self.keys_min: i64 = keys[0]
        self.keys_max: i64 = keys[1]
        self.args_min: i64 = args[0]
        self.args_max: i64 = args[1]

    def bind(self, call: Call) -> Fcall:
        """Return what to run the function with, if a command has as many as it takes."""
        given = call.command.integer(2)
        if given is None:
            raise Wrong("ERR Bad number of keys provided")
        if given < 0:
            raise Wrong("ERR Number of keys can't be negative")
        if given > call.command.count() - 3:
            raise Wrong("ERR Number of keys can't be greater than number of args")
        bound = Fcall(call, i64(given))
        if not self.keys_min <= bound.keys_count <= self.keys_max:
            raise Wrong("ERR wrong number of keys")
        if not self.args_min <= bound.args_count <= self.args_max:
            raise Wrong("ERR wrong number of arguments")
        return bound
