from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jobyard.errors import Refused
from jobyard.model.limits import NEVER_MS
from jobyard.model.timetable import Timetable

# Moments at which a clock was or will be moved, and some at which nothing happens.
MOMENTS = [
    ("Europe/Rome", "2026-03-29T01:00"),
    ("Europe/Rome", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),  # half an hour comes twice
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("America/Sao_Paulo", "2017-10-15T03:00"),  # there was no midnight
    ("America/Sao_Paulo", "2018-02-18T02:00"),  # 23:00 to midnight came twice
    ("Pacific/Apia", "2011-12-30T10:00"),  # a whole day was left out
    ("Antarctica/Vostok", "1994-01-31T17:00"),  # the clock went back by seven hours
    ("Asia/Kolkata", "2026-06-01T00:00"),
    ("UTC", "2024-02-29T00:00"),
]
ZONES = sorted({zone for zone, _ in MOMENTS})


def ms(text: str) -> int:
    """Milliseconds of a moment; the text carries its offset, or it is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def slots(timetable: Timetable, start: str, count: int, zone: str = "UTC") -> list[str]:
    """The next slots as the zone's clock shows them, with the offset when it is not UTC."""
    found = []
    at_ms = ms(start)
    for _ in range(count):
        at_ms = timetable.next_after(at_ms)
        local = datetime.fromtimestamp(at_ms // 1000, ZoneInfo(zone))
        found.append(local.replace(tzinfo=None).isoformat() if zone == "UTC" else str(local))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", ["2026-01-01T00:01:00", "2026-01-01T00:02:00"]),
        ("*/20 * * * *", ["2026-01-01T00:20:00", "2026-01-01T00:40:00", "2026-01-01T01:00:00"]),
        ("50/5 * * * *", ["2026-01-01T00:50:00", "2026-01-01T00:55:00", "2026-01-01T01:50:00"]),
        ("5-15/10,30 4 * * *", ["2026-01-01T04:05:00", "2026-01-01T04:15:00"]),
        ("*/40 * * * * *", ["2026-01-01T00:00:40", "2026-01-01T00:01:00"]),
        ("15 30 12 * * *", ["2026-01-01T12:30:15", "2026-01-02T12:30:15"]),
        ("0 0 1 feb,JUN-jul *", ["2026-02-01T00:00:00", "2026-06-01T00:00:00"]),
        ("0 0 * * mon", ["2026-01-05T00:00:00", "2026-01-12T00:00:00"]),
        ("0 0 * * 7", ["2026-01-04T00:00:00", "2026-01-11T00:00:00"]),
        ("0 0 * * SAT-SUN", ["2026-01-03T00:00:00", "2026-01-04T00:00:00", "2026-01-10T00:00:00"]),
        ("0 0 * * 6-7", ["2026-01-03T00:00:00", "2026-01-04T00:00:00", "2026-01-10T00:00:00"]),
        ("0 0 * * 7-1", ["2026-01-04T00:00:00", "2026-01-05T00:00:00", "2026-01-11T00:00:00"]),
        ("0 0 * * 7-7", ["2026-01-04T00:00:00", "2026-01-11T00:00:00"]),
        ("0 0 * * 7/3", ["2026-01-03T00:00:00", "2026-01-04T00:00:00", "2026-01-07T00:00:00"]),
        ("0 0 L * *", ["2026-01-31T00:00:00", "2026-02-28T00:00:00"]),
        ("0 0 15,L * ?", ["2026-01-15T00:00:00", "2026-01-31T00:00:00"]),
        ("0 0 ? * FRIL", ["2026-01-30T00:00:00", "2026-02-27T00:00:00"]),
        ("0 0 ? * SATL", ["2026-01-31T00:00:00", "2026-02-28T00:00:00"]),
        ("0 0 ? * 5#l", ["2026-01-30T00:00:00", "2026-02-27T00:00:00"]),
        ("0 0 * * 7L", ["2026-01-25T00:00:00", "2026-02-22T00:00:00"]),
        ("0 0 * * MON#1,4#5", ["2026-01-05T00:00:00", "2026-01-29T00:00:00"]),
        ("0 0 13 * FRI", ["2026-01-02T00:00:00", "2026-01-09T00:00:00", "2026-01-13T00:00:00"]),
        ("0 0 */16 * FRI", ["2026-01-02T00:00:00", "2026-01-09T00:00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        ("0 0 * 2 MON#5", ["2044-02-29T00:00:00", "2072-02-29T00:00:00"]),
        ("@yearly", ["2027-01-01T00:00:00"]),
        ("@annually", ["2027-01-01T00:00:00"]),
        ("@monthly", ["2026-02-01T00:00:00"]),
        ("@weekly", ["2026-01-04T00:00:00"]),
        ("@daily", ["2026-01-02T00:00:00"]),
        (" @Midnight ", ["2026-01-02T00:00:00"]),
        ("@hourly", ["2026-01-01T01:00:00"]),
    ],
)
def test_an_expression_fires_at_its_times(text: str, expected: list[str]) -> None:
    assert slots(Timetable(text, None), "2026-01-01T00:00", len(expected)) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected 5 or 6 fields"),
        ("* * * *", "expected 5 or 6 fields"),
        ("* * * * * * *", "expected 5 or 6 fields"),
        ("@reboot", "expected 5 or 6 fields"),
        ("60 * * * *", 'minute "60"'),
        ("-1 * * * *", 'minute "-1"'),
        ("+1 * * * *", 'minute "\\+1"'),
        ("001 * * * *", 'minute "001"'),
        ("² * * * *", 'minute "²"'),
        ("* 24 * * *", 'hour "24"'),
        ("* * 0 * *", 'day of month "0"'),
        ("* * 32 * *", 'day of month "32"'),
        ("* * * 13 *", 'month "13"'),
        ("* * * MAYBE *", 'month "MAYBE"'),
        ("* * * * 8", 'day of week "8"'),
        ("* * * * L", 'day of week "L"'),
        ("* * * * MON#6", "expected #1 to #5 or #L"),
        ("* * * * MON#", "expected #1 to #5 or #L"),
        ("* * * * 1-5#2", 'day of week "1-5#2"'),
        ("* * * * 1-5L", 'day of week "1-5L"'),
        ("* * L-3 * *", 'day of month "L-3"'),
        ("L * * * *", 'minute "L"'),
        ("? * * * *", 'minute "\\?"'),
        ("5,,6 * * * *", 'minute ""'),
        ("*/0 * * * *", "step must be 1 to 60"),
        ("*/61 * * * *", "step must be 1 to 60"),
        ("*/ * * * *", "step must be 1 to 60"),
        ("* * * * */8", "step must be 1 to 7"),
        ("5-1 * * * *", "must not run backwards"),
        ("1-2-3 * * * *", 'minute "1-2-3"'),
        ("60 * * * * *", 'second "60"'),
        ("1," * 1000 + "1 * * * *", "too long"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(Refused, match="^Invalid cron expression: .*" + why):
        Timetable(text, None)


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Mars/Olympus",
        "America",
        "../UTC",
        "zone.tab",
        "a\0b",
        "right/UTC",
        "localtime",
        "+02:00",
    ],
)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(Refused, match=r"^Invalid timezone: "):
        Timetable("* * * * *", zone)


def test_the_start_itself_is_no_slot_but_the_millisecond_before_is_early_enough() -> None:
    timetable = Timetable("0 12 * * *", None)
    noon = ms("2026-05-05T12:00")
    day_ms = 86_400_000
    assert timetable.next_after(noon) == noon + day_ms
    assert timetable.next_after(noon - 1) == noon
    assert timetable.next_after(noon + 1) == noon + day_ms


@pytest.mark.parametrize("text", ["0 0 30 2 *", "* * 31 2,4,6,9,11 *"])
@pytest.mark.parametrize("zone", [None, "Europe/Rome"])
def test_a_day_that_never_comes_never_fires(text: str, zone: str | None) -> None:
    assert Timetable(text, zone).next_after(ms("2026-01-01T00:00")) == NEVER_MS


def test_starts_at_the_ends_of_time_are_answered() -> None:
    for zone in ZONES:
        yearly = Timetable("0 0 1 1 *", zone)
        assert 0 < yearly.next_after(-(1 << 62)) <= ms("1971-01-02T00:00")
        assert yearly.next_after(NEVER_MS) == NEVER_MS
        far = Timetable("0 0 * 2 MON#5", zone).next_after(251_999_999_999_000)
        assert ms("9955-01-01T00:00") < far < NEVER_MS
        never = Timetable("0 0 30 2 *", zone)
        for start_s in range(251_000_000_000, 254_000_000_000, 100_000_000):
            assert never.next_after(start_s * 1000) == NEVER_MS


@pytest.mark.parametrize(
    ("text", "zone", "start", "expected"),
    [
        # No 02:30 that day: the first moment after the gap, once for both times.
        ("15,30 2 * * *", "Europe/Rome", "2026-03-28T12:00", ["29 03:00:00+02", "30 02:15:00+02"]),
        ("30 2 29 3 *", "Europe/Rome", "2026-03-28T12:00", ["29 03:00:00+02"]),
        ("0 3 * * *", "Europe/Rome", "2026-03-28T12:00", ["29 03:00:00+02", "30 03:00:00+02"]),
        ("0 0 * * *", "America/Sao_Paulo", "2017-10-14T12:00", ["15 01:00:00-02"]),
        # 02:30 comes twice: only the first counts, even for a query between the two.
        ("30 2 * * *", "Europe/Rome", "2026-10-24T12:00", ["25 02:30:00+02", "26 02:30:00+01"]),
        ("30 2 * * *", "Europe/Rome", "2026-10-25T01:10", ["26 02:30:00+01"]),
        ("*/30 2 * * *", "Europe/Rome", "2026-10-25T00:10", ["25 02:30:00+02", "26 02:00:00+01"]),
        # A rhythm leaves the gap out and runs through both hours.
        ("*/30 * * * *", "Europe/Rome", "2026-03-29T00:30", ["29 03:00:00+02", "29 03:30:00+02"]),
        ("0 */2 * * *", "Europe/Rome", "2026-03-28T23:30", ["29 04:00:00+02"]),
        ("0 */2 * * *", "Europe/Rome", "2026-10-24T23:30", ["25 02:00:00+02", "25 02:00:00+01"]),
        ("0 0-23 * * *", "Europe/Rome", "2026-10-24T23:30", ["25 02:00:00+02", "25 02:00:00+01"]),
        ("0 */2 25 10 *", "Europe/Rome", "2026-10-25T00:50", ["25 02:00:00+01"]),
        ("@hourly", "Europe/Rome", "2026-10-24T23:30", ["25 02:00:00+02", "25 02:00:00+01"]),
    ],
)
def test_a_clock_that_is_moved(text: str, zone: str, start: str, expected: list[str]) -> None:
    found = slots(Timetable(text, zone), start, len(expected), zone)
    assert [slot[8:22] for slot in found] == expected


def test_an_answer_does_not_depend_on_what_was_asked_before() -> None:
    starts = [ms("2026-10-25T00:50"), ms("1999-07-01T00:00"), ms("2031-01-01T00:00")]
    starts += [each + 1800_000 for each in starts]
    for text in ("30 2 * * *", "*/7 */2 * * *", "0 0 L 2 *"):
        reused = Timetable(text, "Europe/Rome")
        for start in [*starts, *reversed(starts)]:
            assert reused.next_after(start) == Timetable(text, "Europe/Rome").next_after(start)


class Drawn(NamedTuple):
    """A field as text, and the values it stands for."""

    text: str
    values: frozenset[int]


@st.composite
def drawn_field(draw: st.DrawFn, low: int, high: int) -> Drawn:
    """A list of one or two items; half of all fields are bare stars."""
    if draw(st.booleans()):
        return Drawn("*", frozenset(range(low, high + 1)))
    texts = []
    values: set[int] = set()
    for _ in range(draw(st.integers(1, 2))):
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        # cronsim reads a range of one value with a step, 6-6/1, as 6/1.
        step = draw(st.integers(1, high - low + 1)) if last > first else 1
        stepped = f"{first}-{last}/{step}" if last > first else f"{first}-{last}"
        text, span = draw(
            st.sampled_from(
                [
                    (f"{first}", range(first, first + 1)),
                    (f"{first}-{last}", range(first, last + 1)),
                    (stepped, range(first, last + 1, step)),
                    (f"{first}/{step}", range(first, high + 1, step)),
                    (f"*/{step}", range(low, high + 1, step)),
                ]
            )
        )
        texts.append(text)
        values.update(span)
    return Drawn(",".join(texts), frozenset(values))


class Oracle(NamedTuple):
    """The meaning of an expression, decided minute by minute."""

    minutes: Drawn
    hours: Drawn
    days: Drawn
    months: Drawn
    weekdays: Drawn

    def text(self) -> str:
        return " ".join(field.text for field in self)

    def is_fixed(self) -> bool:
        return not any(sign in self.hours.text for sign in "*/") and len(self.hours.values) < 24

    def is_day(self, day: date) -> bool:
        if day.month not in self.months.values:
            return False
        is_day = day.day in self.days.values
        is_weekday = day.isoweekday() % 7 in self.weekdays.values
        if "*" in (self.days.text, self.weekdays.text):
            return is_day and is_weekday
        return is_day or is_weekday

    def matches(self, time: datetime) -> bool:
        return (
            time.minute in self.minutes.values
            and time.hour in self.hours.values
            and self.is_day(time.date())
        )

    def slots(self, zone: ZoneInfo, start_ms: int, end_ms: int) -> Iterator[int]:
        """Watch the clock for every minute up to `end_ms`, from well before `start_ms`."""
        at_ms = start_ms - start_ms % 60_000 - 86_400_000
        shown = clock(zone, at_ms)
        while at_ms < end_ms:
            at_ms += 60_000
            time = clock(zone, at_ms)
            fires = False
            if self.is_fixed():
                while shown < time:
                    shown += timedelta(minutes=1)
                    fires = self.matches(shown) or fires
            else:
                fires = self.matches(time)
            if fires and start_ms < at_ms <= end_ms:
                yield at_ms


def clock(zone: ZoneInfo, at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, zone).replace(tzinfo=None, fold=0)


oracles = st.builds(
    Oracle,
    drawn_field(0, 59),
    drawn_field(0, 23),
    drawn_field(1, 31),
    drawn_field(1, 12),
    drawn_field(0, 6),
)
# Narrow on purpose: the hours in which the clocks above are moved, on any day.
night_oracles = st.builds(
    Oracle,
    drawn_field(0, 59),
    st.sampled_from([0, 1, 2, 3, 23]).flatmap(
        lambda hour: st.sampled_from(
            [Drawn(str(hour), frozenset({hour})), Drawn(f"{hour}/24", frozenset({hour}))]
        )
    ),
    st.just(Drawn("*", frozenset(range(1, 32)))),
    st.just(Drawn("*", frozenset(range(1, 13)))),
    st.just(Drawn("*", frozenset(range(7)))),
)


@settings(max_examples=150)
@given(st.one_of(oracles, night_oracles), st.sampled_from(MOMENTS), st.integers(-30_000, 10_000))
def test_slots_are_those_of_a_clock_watched_by_the_minute(
    oracle: Oracle, moment: tuple[str, str], shift_s: int
) -> None:
    zone, change = moment
    start_ms = ms(change) + shift_s * 1000
    end_ms = start_ms + 30 * 3600_000
    expected = list(oracle.slots(ZoneInfo(zone), start_ms, end_ms))
    timetable = Timetable(oracle.text(), zone)
    found = []
    at_ms = timetable.next_after(start_ms)
    while at_ms <= end_ms:
        found.append(at_ms)
        at_ms = timetable.next_after(at_ms)
    assert found == expected


@given(oracles, drawn_field(0, 59), st.integers(0, 2_000_000_000))
def test_seconds_refine_the_slots_of_the_minutes(
    oracle: Oracle, seconds: Drawn, start_s: int
) -> None:
    start_ms = start_s * 1000
    by_minute = Timetable(oracle.text(), None)
    timetable = Timetable(f"{seconds.text} {oracle.text()}", None)
    # The minute of the start may still have seconds left.
    minute_ms = by_minute.next_after(start_ms - start_ms % 60_000 - 1)
    if minute_ms < NEVER_MS and minute_ms + max(seconds.values) * 1000 <= start_ms:
        minute_ms = by_minute.next_after(minute_ms)
    found = timetable.next_after(start_ms)
    if minute_ms == NEVER_MS:
        assert found == NEVER_MS
    else:
        candidates = (minute_ms + second * 1000 for second in sorted(seconds.values))
        assert found == next(each for each in candidates if each > start_ms)


def is_quiet(zone: ZoneInfo, at_s: int) -> bool:
    """Whether the clock is not moved within a day of a moment."""
    day_s = 86_400
    offsets = {
        datetime.fromtimestamp(each, zone).utcoffset() for each in (at_s - day_s, at_s + day_s)
    }
    return len(offsets) == 1


@settings(max_examples=300)
@given(oracles, st.sampled_from(ZONES), st.integers(946_684_800, 2_000_000_000))
def test_slots_are_those_of_cronsim(oracle: Oracle, name: str, start_s: int) -> None:
    cronsim = pytest.importorskip("cronsim")
    zone = ZoneInfo(name)
    # Where clocks move the two differ on purpose; the watched clock above covers those days.
    assume(is_quiet(zone, start_s))
    # A step runs up to 7 there, so that 1/3 ends on a Sunday; a plain list is the same to both.
    text = oracle.text()
    if oracle.weekdays.text != "*":
        text = " ".join([*text.split()[:4], ",".join(map(str, sorted(oracle.weekdays.values)))])
    try:
        other = cronsim.CronSim(text, datetime.fromtimestamp(start_s, zone))
    except cronsim.CronSimError:
        # It refuses what can never fire.
        assert Timetable(oracle.text(), name).next_after(start_s * 1000) == NEVER_MS
        return
    # Its author follows a cron that also takes */2 for a day that is not restricted.
    other.day_and = "*" in (oracle.days.text, oracle.weekdays.text)
    slot_ms = round(next(other).timestamp() * 1000)
    assume(is_quiet(zone, slot_ms // 1000))
    assert Timetable(oracle.text(), name).next_after(start_s * 1000) == slot_ms
