"""Commands with very many arguments, handled in slices like all long work.

Bad arguments are found before anything changes, in a first pass over all of them. Commands that
must be atomic take no more arguments than one turn has room for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.long_commands import Pieces, begin
from jobyard.wire.resp.write import write_array, write_bulk, write_integer, write_nil

if TYPE_CHECKING:
    from librt.strings import BytesWriter

    from jobyard.protocols.glidemq.call import Call

# At most this number is handled at once, whatever else the turn has done.
FEW_ARGUMENTS: Final = 128
# Cost of looking a key up.
LOOK_UNITS: Final = 4
# Arguments of a command that must be atomic.
ARGUMENTS_WHOLE_MAX: Final = 5000
# Streams that one command reads: each has a key and an id, plus some keywords.
STREAMS_READ_MAX: Final = 500
STREAM_ARGUMENTS_MAX: Final = 2 * STREAMS_READ_MAX + 12
# Entries that one XCLAIM names, plus some keywords.
CLAIMS_MAX: Final = 1000
CLAIM_ARGUMENTS_MAX: Final = CLAIMS_MAX + 16

# Handles the arguments from one index up to, not including, another; returns how many count.
Act = Callable[[int, int], int]
# Answers, given the count.
CountWriter = Callable[[int], Pieces | None]


@final
class EachArgument(Task):
    """Does something to each of many arguments, in order."""

    def __init__(self, call: Call, count: i64, act: Act, units: i64, *, is_reading: bool) -> None:
        super().__init__()
        self.is_reading = is_reading
        self._call = call
        self._size: i64 = count
        self._act: Act = act
        self._units: i64 = units
        self._at: i64 = 0
        self.count: i64 = 0
        # What follows gets a turn of its own.
        self.ends_turn: bool = False

    def step(self, most: i64, now_ms: i64) -> i64:
        """Handle some arguments."""
        # A later slice runs at its own time.
        self._call.now_ms = now_ms
        some = min(most // self._units + 1, self._size - self._at)
        if some > 0:
            self.count += self._act(int(self._at), int(self._at + some))
        self._at += some
        done = some * self._units
        if self._at >= self._size and self.ends_turn:
            self.ends_turn = False
            tasks = self._call.yard.tasks
            tasks.leave_less(tasks.units_per_turn)
            return max(done, most)
        return min(done, most - 1) if self._at >= self._size else max(done, most)


def for_each(
    call: Call,
    count: i64,
    act: Act,
    answer: CountWriter,
    units: i64 = 1,
    *,
    is_reading: bool = False,
) -> None:
    """Do something to each of `count` arguments, then answer."""
    if count <= FEW_ARGUMENTS:
        pieces = answer(act(0, int(count)))
        if pieces is not None:
            pieces.write_all(call.out)
        return
    each = EachArgument(call, count, act, units, is_reading=is_reading)
    begin(call, each, lambda: answer(int(each.count)), count * units)


def read_each(call: Call, count: i64, act: Act, answer: CountWriter, units: i64) -> None:
    """Read each of `count` arguments, then do in one turn what must be atomic."""
    if count <= FEW_ARGUMENTS:
        answer(act(0, int(count)))
        return
    each = EachArgument(call, count, act, units, is_reading=True)
    each.ends_turn = True
    begin(call, each, lambda: answer(int(each.count)), count * units)


def answer_count(call: Call, count: int) -> None:
    """Answer with the count."""
    write_integer(call.out, count)


def check_whole(call: Call) -> None:
    """Refuse more arguments than an atomic command can take."""
    if call.count() > ARGUMENTS_WHOLE_MAX:
        name = call.command.text(0).upper()
        raise Wrong(
            f"ERR {name} takes at most {ARGUMENTS_WHOLE_MAX} arguments here, "
            "because it runs as a whole: "
            "send several commands"
        )


def check_streams(call: Call) -> None:
    """Refuse to read more streams at once than a turn has room for."""
    if call.count() > STREAM_ARGUMENTS_MAX:
        raise Wrong(f"ERR at most {STREAMS_READ_MAX} streams can be read at once")


def check_claims(call: Call) -> None:
    """Refuse to claim more entries at once than can be read at once."""
    if call.count() > CLAIM_ARGUMENTS_MAX:
        raise Wrong(f"ERR at most {CLAIMS_MAX} entries can be claimed at once")


@final
class ValueArray(Pieces):
    """Values, some of which may be missing."""

    def __init__(self, values: list[bytes | None], proto: i64) -> None:
        super().__init__(len(values))
        self._values = values
        self._proto: i64 = proto

    def write_head(self, out: BytesWriter) -> None:
        """Write the header with the number of values."""
        write_array(out, self.count)

    def write_part(self, out: BytesWriter, at: i64) -> None:
        """Write one value and drop it."""
        value = self._values[at]
        if value is None:
            write_nil(out, self._proto)
        else:
            write_bulk(out, value)
            self._values[at] = None
