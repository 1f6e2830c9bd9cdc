"""The time that a report is about, cut into steps of equal length for plots and tables.

Times are whole minutes since 1970, UTC. The steps are chosen so that a plot has at most `STEPS_MAX`
of them and each begins at a round time.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

# An hour each for a week.
STEPS_MAX: Final = 168
DAY: Final = 24 * 60
_STEPS: Final = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    180,
    360,
    720,
    DAY,
    7 * DAY,
    28 * DAY,
    364 * DAY,
)
_TICKS: Final = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    180,
    360,
    720,
    DAY,
    2 * DAY,
    7 * DAY,
    28 * DAY,
)
_TICKS_MAX: Final = 8


class Tick(NamedTuple):
    """A labelled place on the axis of time, as a share of its length."""

    share: float
    label: str


class Period(NamedTuple):
    """`steps` steps of `step` minutes from minute `start`; rows are from `first` to `last`."""

    start: int
    step: int
    steps: int
    first: int
    last: int

    def end(self) -> int:
        """Return the minute behind the last step."""
        return self.start + self.step * self.steps

    def beginning(self, at: int) -> datetime:
        """Return when a step begins."""
        return _time(self.start + at * self.step)

    def label(self, at: int) -> str:
        """Return the name of a step for a table."""
        return self.beginning(at).strftime("%a %d %b %Y" if self.step >= DAY else "%a %d %b %H:%M")

    def step_words(self) -> str:
        """Return the length of a step: `hour`, `10 min`."""
        for minutes, word in (
            (7 * DAY, "week"),
            (DAY, "day"),
            (60, "hour"),
            (1, "minute"),
        ):
            if self.step % minutes == 0:
                many = self.step // minutes
                return word if many == 1 else f"{many} {'min' if minutes == 1 else word + 's'}"
        raise AssertionError("every step is a number of minutes")

    def moment(self, minute: int) -> str:
        """Return the day and time of a minute, as one reads it."""
        return _plain(_time(minute), "%d %b %H:%M")

    def words(self) -> str:
        """Return from when to when, as one reads it."""
        first, last = _time(self.first), _time(self.last + 1)
        if self.last - self.first < 2 * DAY:
            until = f"{last:%H:%M}" if last.date() == first.date() else _plain(last, "%d %b %H:%M")
            return f"{_plain(first, '%d %b %Y, %H:%M')} \N{EN DASH} {until}"
        last -= timedelta(minutes=1)
        begin = "%d %b" if first.year == last.year else "%d %b %Y"
        return f"{_plain(first, begin)} \N{EN DASH} {_plain(last, '%d %b %Y')}"

    def length_words(self) -> str:
        """Return how long it is: `7 days`, `3 h 20 min`."""
        minutes = self.last + 1 - self.first
        if minutes >= 2 * DAY:
            return f"{round(minutes / DAY)} days"
        hours, rest = divmod(minutes, 60)
        parts = [f"{hours} h"] * (hours > 0) + [f"{rest} min"] * (rest > 0)
        return " ".join(parts)

    def ticks(self) -> list[Tick]:
        """Return at most eight labelled places at round times."""
        length = self.end() - self.start
        step = next((each for each in _TICKS if length / each <= _TICKS_MAX), 0)
        # Longer than 32 weeks: eight parts of whole weeks.
        step = step or -(-length // (_TICKS_MAX * 7 * DAY)) * 7 * DAY
        first = -(-self.start // step) * step
        return [
            Tick((minute - self.start) / length, _tick_label(minute, step, length))
            for minute in range(first, self.end(), step)
        ]


def period_of(first: int, last: int) -> Period:
    """Return the period with the minutes from `first` to `last`, both included."""
    for step in _STEPS:
        start = first // step * step
        count = (last - start) // step + 1
        if count <= STEPS_MAX:
            return Period(start, step, count, first, last)
    step = _STEPS[-1]
    start = first // step * step
    return Period(start, step, (last - start) // step + 1, first, last)


def minute_of(time: datetime) -> int:
    """Return the minute that a time is in."""
    return int(time.timestamp() // 60)


def _time(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)


def _plain(time: datetime, pattern: str) -> str:
    """Format a time without a zero before the day."""
    return time.strftime(pattern).removeprefix("0")


def _tick_label(minute: int, step: int, length: int) -> str:
    # Within a day the time alone is enough.
    is_day = step >= DAY or (minute % DAY == 0 and length > DAY)
    return _plain(_time(minute), "%d %b") if is_day else f"{_time(minute):%H:%M}"
