"""When a cron expression fires: expression and zone are parsed once, slots computed on demand.

Knows neither crons nor jobs and reads no clock: the moment to start from is an argument, and
only a zone's rules come from outside, when a timetable is made. Slots are whole seconds, in
milliseconds since 1970. The invariant: a slot depends on expression, zone and start alone,
not on earlier calls, and `next_after(slot)` is always later than `slot`.

    [second] minute hour day month weekday        or @yearly @monthly @weekly @daily @hourly ...

    *  5  1-5  */15  5/15  1-30/2  1,5-7          every field; a step without an end runs to the top
    JAN-DEC  SUN-SAT  7 = SUN  FRI-SUN            names in either case
    ?                                             the same as *, in day and weekday
    L                                             in day: the last of the month
    MON#2  FRIL  FRI#L                            in weekday: the second Monday, the last Friday

If day and weekday are both restricted a day needs to match only one of them. Restricted is
everything but a bare * or ?, so */2 is.

Where a zone's clock jumps there are two kinds of expression, distinguished by the hour field:

- Fixed hours ("30 2 * * *", "*/15 1-3 * * *") name times of the day. A time that comes twice
  fires the first time; a time that is jumped over fires at the first moment after the gap, once
  for all that fell into it. In short: at the first moment the clock shows that time or a later one.
- Hours with a wildcard or a step, or all 24 ("*/15 * * * *", "0 */2 * * *") name a rhythm. They
  fire whenever the clock shows a match: in both runs of a repeated hour, and never in a gap.

The search steps from field to field, from month to month and from one change of the clock to the
next; it never counts through minutes.
"""

from bisect import bisect_left, bisect_right
from datetime import UTC, date, datetime, tzinfo
from typing import Final, final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jobyard.errors import Refused
from jobyard.model.limits import NEVER_MS

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86400
# date.toordinal() counts from year 1.
DAYS_BEFORE_1970: Final = 719162

# Every value of every field spelled out three times; no real expression is longer.
EXPRESSION_SIZE_MAX: Final = 2000
# The longest possible wait: a fifth Monday in February, across a century without a leap year.
# An expression without a slot in this time (30 February) never has one.
MONTHS_AHEAD_MAX: Final = 12 * 40 + 1
# Dates end with the year 9999; a search from here still ends before.
START_MAX_S: Final = 252_000_000_000
# From here on no zone's clock shows a time before 1970, and none had shown one two days before.
START_MIN_S: Final = 4 * DAY_S
# No clock is ever set back by more than a day, so nothing older can be shown again.
LOOK_BACK_S: Final = 2 * DAY_S
# Since 1970 no zone has changed its offset twice within six days (Recife did within seven), so
# two probes this close together see every change between them.
PROBE_S: Final = 5 * DAY_S
# Further than this from the known range it is cheaper to start over than to fill the gap.
STRETCH_MAX_S: Final = 366 * DAY_S

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

# A field's values are the bits of an integer. Day 0 is free and means the last of the month.
LAST_DAY: Final = 1
# Which of its kind in the month a weekday may be: bits 0 to 4 for the first to the fifth.
LAST_OF_KIND: Final = 1 << 5
ANY_OF_KIND: Final = (1 << 6) - 1


@final
class CronField:
    """One field of an expression: its name in error messages, its bounds, the words it accepts."""

    def __init__(self, name: str, low: int, high: int, words: str = "") -> None:
        self.name: Final = name
        self.low: Final = low
        self.high: Final = high
        self.words: Final = words.split()

    def values(self, text: str) -> int:
        """Return the bits of a whole list."""
        bits = 0
        for item in text.split(","):
            bits |= self.item_values(item)
        return bits

    def item_values(self, item: str) -> int:
        """Return the bits of one item: `*`, a value or a range, with or without a step."""
        span, slash, step_text = item.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            low, high = self.low, self.high
        elif dash:
            low, high = self.value(first, item), self.value(last, item)
            if self is WEEKDAY:
                low, high = week_range(low, high)
        else:
            low = self.value(first, item)
            if self is WEEKDAY:
                low %= 7
            high = self.high if slash else low
        step = self.step(step_text, item) if slash else 1
        if low > high:
            raise self.refusal(item, "range must not run backwards")
        bits = 0
        for value in range(low, high + 1, step):
            bits |= 1 << value
        if self is WEEKDAY:
            bits = (bits | bits >> 7) & 0x7F
        return bits

    def value(self, text: str, item: str) -> int:
        """Return one number or word within the bounds; 7 is a second name of Sunday."""
        word = text.upper()
        if word in self.words:
            return self.words.index(word) + self.low
        number = parse_number(text)
        if number < self.low or number > (7 if self is WEEKDAY else self.high):
            raise self.refusal(item, f"expected {self.low} to {self.high}")
        return number

    def step(self, text: str, item: str) -> int:
        """Return a step that fits into the field: `*/90` minutes would be misleading."""
        number = parse_number(text)
        most = self.high - self.low + 1
        if number < 1 or number > most:
            raise self.refusal(item, f"step must be 1 to {most}")
        return number

    def refusal(self, item: str, why: str) -> Refused:
        """Return the error for one item of this field."""
        return Refused(f'Invalid cron expression: {self.name} "{item}": {why}')


SECOND: Final = CronField("second", 0, 59)
MINUTE: Final = CronField("minute", 0, 59)
HOUR: Final = CronField("hour", 0, 23)
DAY: Final = CronField("day of month", 1, 31)
MONTH: Final = CronField("month", 1, 12, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")
WEEKDAY: Final = CronField("day of week", 0, 6, "SUN MON TUE WED THU FRI SAT")


def parse_number(text: str) -> int:
    """Return a plain number of at most two digits; -1 for anything else."""
    # int() alone also takes "+1", "1_0" and the digits of other scripts.
    if len(text) > 2 or not text.isascii() or not text.isdigit():
        return -1
    return int(text)


def week_range(low: int, high: int) -> tuple[int, int]:
    """Return a range with Sunday as 0 at its start and as 7 at its end, however written."""
    if low == 7 and high < 7:
        low = 0
    if high == 0 and low > 0:
        high = 7
    return low, high


def parse_days(text: str) -> int:
    """Return the bits of the day field."""
    bits = 0
    for item in text.split(","):
        bits |= LAST_DAY if item in ("L", "l") else DAY.item_values(item)
    return bits


def parse_weekdays(text: str) -> list[int]:
    """Return for each weekday, from Sunday on, which of its kind in the month match."""
    kinds = [0] * 7
    for item in text.split(","):
        name, sharp, nth_text = item.partition("#")
        of_kind = ANY_OF_KIND
        if sharp and nth_text not in ("L", "l"):
            nth = parse_number(nth_text)
            if nth < 1 or nth > 5:
                raise WEEKDAY.refusal(item, "expected #1 to #5 or #L")
            of_kind = 1 << (nth - 1)
        elif sharp or (len(item) > 1 and item[-1] in "Ll"):
            name = name if sharp else item[:-1]
            of_kind = LAST_OF_KIND
        if of_kind == ANY_OF_KIND:
            bits = WEEKDAY.item_values(name)
        else:
            bits = 1 << WEEKDAY.value(name, item) % 7
        for weekday in range(7):
            if bits >> weekday & 1:
                kinds[weekday] |= of_kind
    return kinds


def listed(bits: int) -> list[int]:
    """Return the values of a field in order."""
    return [value for value in range(60) if bits >> value & 1]


def find_zone(name: str | None) -> tzinfo:
    """Return the rules of an IANA zone; without a name those of UTC."""
    if name is None:
        return UTC
    # Not zones but variants of them: right/ counts leap seconds, localtime is this machine's.
    if name.startswith(("posix", "right/", "localtime")):
        raise Refused(f"Invalid timezone: {name[:100]}")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Refused(f"Invalid timezone: {name[:100]}") from error


@final
class Offsets:
    """A zone's offsets from UTC, as far as they were needed: starts[n] begins offsets[n]."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone: Final = zone
        self.starts: list[int] = []
        self.offsets: list[int] = []
        self._known_until_s = 0

    def cover(self, from_s: int, to_s: int) -> None:
        """Find every change between two moments."""
        if (
            not self.starts
            or from_s < self.starts[0]
            or from_s > self._known_until_s + STRETCH_MAX_S
        ):
            self.starts = [from_s]
            self.offsets = [self.offset_at(from_s)]
            self._known_until_s = from_s
        while self._known_until_s < to_s:
            probe_s = self._known_until_s + PROBE_S
            offset = self.offset_at(probe_s)
            if offset != self.offsets[-1]:
                self.starts.append(self._change_between(self._known_until_s, probe_s))
                self.offsets.append(offset)
            self._known_until_s = probe_s

    def index_at(self, at_s: int) -> int:
        """Return the index in both lists of a moment that is covered."""
        return bisect_right(self.starts, at_s) - 1

    def offset_at(self, at_s: int) -> int:
        """Return how far the zone's clock is ahead of UTC at a moment."""
        offset = datetime.fromtimestamp(at_s, self._zone).utcoffset()
        assert offset is not None
        return offset.days * DAY_S + offset.seconds

    def _change_between(self, before_s: int, after_s: int) -> int:
        """Return the first second of the new offset."""
        old = self.offset_at(before_s)
        while after_s - before_s > 1:
            middle_s = (before_s + after_s) // 2
            if self.offset_at(middle_s) == old:
                before_s = middle_s
            else:
                after_s = middle_s
        return after_s


@final
class Timetable:
    """The slots of one expression in one zone. Raises Refused if either is invalid."""

    def __init__(self, text: str, zone: str | None) -> None:
        if len(text) > EXPRESSION_SIZE_MAX:
            raise Refused("Invalid cron expression: too long")
        bare = text.strip()
        if bare.startswith("@"):
            bare = NICKNAMES.get(bare.lower(), "")
        parts = bare.split()
        if len(parts) == 5:
            parts.insert(0, "0")
        if len(parts) != 6:
            raise Refused(f'Invalid cron expression: "{text}": expected 5 or 6 fields')
        second, minute, hour, day, month, weekday = parts
        self._seconds: Final = listed(SECOND.values(second))
        self._minutes: Final = listed(MINUTE.values(minute))
        self._hours: Final = listed(HOUR.values(hour))
        self._is_fixed: Final = "*" not in hour and "/" not in hour and len(self._hours) < 24
        self._any_day: Final = day in ("*", "?")
        self._any_weekday: Final = weekday in ("*", "?")
        self._days: Final = parse_days("*" if self._any_day else day)
        self._months: Final = MONTH.values(month)
        self._kinds: Final = parse_weekdays("*" if self._any_weekday else weekday)
        self._offsets: Final = Offsets(find_zone(zone))
        # The days of the month computed last; most calls are about the same one.
        self._month_first_day = -1
        self._month_bits = 0

    def next_after(self, wall_ms: int) -> int:
        """Return the first slot strictly after a moment; NEVER_MS when there is none.

        The first days of 1970 have no slots.
        """
        start_s = max(wall_ms // 1000 + 1, START_MIN_S)
        if start_s > START_MAX_S:
            return NEVER_MS
        zone = self._offsets
        zone.cover(start_s - LOOK_BACK_S, start_s)
        index = zone.index_at(start_s)
        time_s = start_s + zone.offsets[index]
        if self._is_fixed:
            time_s = self._first_unshown(start_s)
        time_s = self._time_from(time_s)
        while time_s >= 0:
            # Only a time in a gap is before the stretch: it fires as the stretch begins.
            slot_s = max(start_s, time_s - zone.offsets[index])
            zone.cover(start_s, slot_s)
            if index + 1 == len(zone.starts) or slot_s < zone.starts[index + 1]:
                return slot_s * 1000
            index += 1
            start_s = zone.starts[index]
            if not self._is_fixed:
                time_s = self._time_from(start_s + zone.offsets[index])
        return NEVER_MS

    def _first_unshown(self, start_s: int) -> int:
        """Return the earliest time that the zone's clock had not reached before `start_s`."""
        zone = self._offsets
        index = zone.index_at(start_s - LOOK_BACK_S)
        unshown_s = 0
        while index < len(zone.starts) and zone.starts[index] < start_s:
            end_s = start_s
            if index + 1 < len(zone.starts):
                end_s = min(end_s, zone.starts[index + 1])
            unshown_s = max(unshown_s, end_s + zone.offsets[index])
            index += 1
        return unshown_s

    def _time_from(self, time_s: int) -> int:
        """Return the first match at or after a time on the zone's clock; -1 when there is none."""
        day = self._day_from(time_s // DAY_S)
        if day == time_s // DAY_S:
            in_day_s = self._in_day_from(time_s % DAY_S)
            if in_day_s >= 0:
                return day * DAY_S + in_day_s
            day = self._day_from(day + 1)
        return day if day < 0 else day * DAY_S + self._in_day_from(0)

    def _in_day_from(self, in_day_s: int) -> int:
        """Return the first matching second of a day at or after one; -1 when the rest has none."""
        hour = in_day_s // HOUR_S
        minute = in_day_s // MINUTE_S % 60
        at = bisect_left(self._hours, hour)
        if at < len(self._hours) and self._hours[at] == hour:
            second_at = bisect_left(self._seconds, in_day_s % 60)
            if second_at == len(self._seconds):
                second_at = 0
                minute += 1
            minute_at = bisect_left(self._minutes, minute)
            if minute_at < len(self._minutes):
                if self._minutes[minute_at] != minute:
                    second_at = 0
                minute = self._minutes[minute_at]
                return hour * HOUR_S + minute * MINUTE_S + self._seconds[second_at]
            at += 1
        if at == len(self._hours):
            return -1
        return self._hours[at] * HOUR_S + self._minutes[0] * MINUTE_S + self._seconds[0]

    def _day_from(self, day: int) -> int:
        """Return the first matching day, counted from 1970, at or after one; -1 for none."""
        begin = date.fromordinal(day + 1 + DAYS_BEFORE_1970)
        year, month, number = begin.year, begin.month, begin.day
        for _ in range(MONTHS_AHEAD_MAX):
            if self._months >> month & 1:
                first_day = date(year, month, 1).toordinal() - 1 - DAYS_BEFORE_1970
                bits = self._days_of(first_day, year, month) >> number
                if bits:
                    while bits & 1 == 0:
                        bits >>= 1
                        number += 1
                    return first_day + number - 1
            number = 1
            month += 1
            if month > 12:
                month = 1
                year += 1
        return -1

    def _days_of(self, first_day: int, year: int, month: int) -> int:
        """Return the bits of a month's matching days."""
        if first_day == self._month_first_day:
            return self._month_bits
        following = date(year + month // 12, month % 12 + 1, 1)
        count = following.toordinal() - 1 - DAYS_BEFORE_1970 - first_day
        days = self._days
        if days & LAST_DAY:
            days |= 1 << count
        bits = 0
        for number in range(1, count + 1):
            # 1970 began on a Thursday.
            weekday = (first_day + number - 1 + 4) % 7
            of_kind = 1 << ((number - 1) // 7)
            if number + 7 > count:
                of_kind |= LAST_OF_KIND
            is_day = days >> number & 1 != 0
            is_weekday = self._kinds[weekday] & of_kind != 0
            if self._any_day or self._any_weekday:
                matches = is_day and is_weekday
            else:
                matches = is_day or is_weekday
            if matches:
                bits |= 1 << number
        self._month_first_day = first_day
        self._month_bits = bits
        return bits
