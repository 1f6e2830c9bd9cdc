"""Reading without end: how far a micro-batch goes, and the ranges of each.

The driver's part lives in one process for the whole query; executors get a copy without it. It
asks for all topics at once, and no more often than `pollIntervalMs` says. If one topic is read and
has no news, the server keeps the call until there is some, so that nothing is asked meanwhile.
StreamOffsets decide what a batch holds: the same ones give the same rows, whatever was written
since.
"""

import time
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from jobyard.client import JobyardError, YardClient
from jobyard.client.calls import topic_path
from jobyard.spark.options import ReadOptions
from jobyard.spark.raising import raised_short, rows_raised_short
from jobyard.spark.read.columns import Table
from jobyard.spark.read.losses import LOGGER, Losses, cut_back, deleted, made_again, not_asked_for
from jobyard.spark.read.offsets import Reached, StreamOffsets, foreign, parse_stored
from jobyard.spark.read.positions import EARLIEST, LATEST, Position, moves
from jobyard.spark.read.probe import check_present
from jobyard.spark.read.ranges import SeqRange, split
from jobyard.spark.read.reading import Reading
from jobyard.spark.read.shares import shared
from jobyard.spark.read.states import (
    TopicExtent,
    TopicStates,
    check_names,
    no_topic,
)

FIRST: Final = Position(edge=EARLIEST)
NOW: Final = Position(edge=LATEST)
NOWHERE: Final = Reached("", 0)
# Incarnations are numbers.
_NO_INCARNATION: Final = "none"
# The statuses of a key that is missing, and of one that may not.
_NO_KEY: Final = frozenset({401, 403})
# Refusals of a cursor that say that the topic is not what it was, or that it is further already.
_NO_LONGER: Final = frozenset(
    {"cursor_behind", "topic_not_found", "wrong_incarnation", "out_of_range"}
)
# How long the server keeps a call for news. A query that is stopped ends with that call at the
# latest, so it is short.
IDLE_WAIT_MS: Final = 1000
# What Spark stores as JSON; its classes say no more either.
Form = dict[str, Any]


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query: the driver's part, and how tasks read."""

    def __init__(self, options: ReadOptions, table: Table) -> None:
        self.options = options
        self.table = table
        self._driver: _Driver | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_driver": None}

    @raised_short
    def initialOffset(self) -> Form:  # noqa: N802  Spark's names, here and below
        """Return where a new query begins."""
        return self._drive().initial().form()

    @raised_short
    def latestOffset(self, start: Form, limit: ReadLimit) -> Form:  # noqa: N802
        """Return the end of the next batch; the start itself if there is nothing to read."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        return self._drive().latest(parse_stored(start), is_limited=is_limited).form()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit if the options have one; the options say the rest."""
        limits = self.options.limits
        if limits.offsets_max:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max:
            return ReadMaxBytes(limits.bytes_max)
        return ReadMinRows(limits.offsets_min) if limits.offsets_min else ReadAllAvailable()

    @raised_short
    def reportLatestOffset(self) -> Form | None:  # noqa: N802
        """Return how far the topics go, and what was lost, for the progress of the query."""
        return self._drive().report()

    @raised_short
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember how far the topics go now: this run ends there."""
        self._drive().set_target()

    @raised_short
    def partitions(self, start: Form, end: Form) -> list[InputPartition]:
        """Return what the tasks of a batch read."""
        ranges = self._drive().ranges(parse_stored(start), parse_stored(end))
        return self.divided(ranges)

    def divided(self, ranges: list[SeqRange]) -> list[InputPartition]:
        """Return partitions that cover some ranges."""
        return list(split(ranges, self.options.limits))

    @rows_raised_short
    def read(self, partition: InputPartition) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of one partition."""
        return self.reading(self.options.export_query()).read(partition)

    def reading(self, query: Mapping[str, str]) -> Reading:
        """Return how partitions are read."""
        options = self.options
        return Reading(options.connecting, self.table, query, options.loss_rule)

    def states(self, client: YardClient, losses: Losses) -> TopicStates:
        """Return what is asked for topics."""
        return TopicStates(client, self.options, losses)

    @raised_short
    def commit(self, end: Form) -> None:
        """Move the cursor to what Spark has finished."""
        self._drive().keep_cursors(parse_stored(end))

    def stop(self) -> None:
        """Close the connection."""
        if self._driver is not None:
            self._driver.close()

    def _drive(self) -> "_Driver":
        if self._driver is None:
            client = self.options.connecting.client()
            losses = Losses(self.options.loss_rule)
            self._driver = _Driver(self.options, client, self.states(client, losses))
        return self._driver


@final
class RefusedStreamReader(TopicStreamReader):
    """What stands for a reader that cannot be made: its first call raises why."""

    def __init__(self, error: JobyardError) -> None:
        self.error = error
        self._driver = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return none: Spark asks for it before the first call."""
        return ReadAllAvailable()

    def read(self, partition: InputPartition) -> Generator[pa.RecordBatch, None, None]:  # noqa: ARG002
        """Raise the error."""
        raise self.error

    def _drive(self) -> "_Driver":
        raise self.error


@final
class _Driver:
    """What one query knows of its topics."""

    def __init__(self, options: ReadOptions, client: YardClient, states: TopicStates) -> None:
        self._options = options
        self._client = client
        self._losses = states.losses
        self._states = states
        self._found: dict[str, TopicExtent] = {}
        # When they were asked for last, and when the answer came.
        self._asked_s = self._found_s = -1e9
        self._initial: StreamOffsets | None = None
        self._has_begun = False
        # Where a run with the trigger availableNow ends.
        self._target: dict[str, TopicExtent] | None = None
        self._moved_s = time.monotonic()
        self._cursors: dict[str, Reached] = {}
        self._is_hold_checked = False

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def initial(self) -> StreamOffsets:
        """Return where a new query begins; the same however often Spark asks."""
        if self._initial is None:
            options = self._options
            found = self._ask()
            self._check_hold(found)
            for topic in options.topics:
                if topic not in found:
                    raise no_topic(topic, self._client.url, is_stream=True)
            position = options.starting or NOW
            check_names(options.starting, list(found), "startingOffsets")
            self._initial = StreamOffsets(
                {
                    topic: self._states.place(topic, state, position, "startingOffsets")
                    for topic, state in found.items()
                }
            )
        return self._initial

    def latest(self, start: StreamOffsets, *, is_limited: bool) -> StreamOffsets:
        """Return the end of the next batch."""
        self._check_own(start)
        self._check_hold(start.topics)
        if start != self._initial:
            # A batch that Spark has finished ends here, perhaps one of an earlier run.
            self.keep_cursors(start)
        elif not self._has_begun and moves(self._options.starting or NOW):
            # Spark stores where a batch ends and asks again where the first one began, if it has
            # to be repeated: later that would be another place. So the first one has no rows.
            self._has_begun = True
            return start
        found = self._target if self._target is not None else self._news(start)
        found = self._states.seen_from(start.topics, found)
        begins: dict[str, Reached] = {}
        ends: dict[str, Reached] = {}
        for topic, reached in self._known(start, found).items():
            state = found.get(topic)
            begins[topic] = reached
            # A new topic, or a new life of one, is entered at its first seq, so that the next
            # batch has a start: two offsets must say all of what lies between them.
            is_new = start.topics.get(topic, NOWHERE).incarnation != reached.incarnation
            end_seq = reached.next_seq if state is None or is_new else state.next_seq
            # A start may be behind the target of a run.
            ends[topic] = reached._replace(next_seq=max(end_seq, reached.next_seq))
        sizes = {topic: ends[topic].next_seq - begins[topic].next_seq for topic in begins}
        total = sum(sizes.values())
        if is_limited and self._must_wait(total):
            # Topics that came or went are part of the next batch.
            return start
        if is_limited:
            sizes = shared(sizes, self._room(found, sizes))
        if total > 0:
            self._moved_s = time.monotonic()
        for topic, reached in begins.items():
            if sizes[topic] > 0 and topic in found:
                self._check_begin(topic, reached, found[topic])
        return StreamOffsets(
            {
                topic: reached._replace(next_seq=reached.next_seq + sizes[topic])
                for topic, reached in begins.items()
            }
        )

    def _check_begin(self, topic: str, reached: Reached, state: TopicExtent) -> None:
        """Meet what is gone before a batch begins, so that its own progress shows it.

        The whole gap is met at once, also if limits cut it into batches.
        """
        gap = SeqRange(topic, reached.incarnation, reached.next_seq - 1, state.first_seq - 1)
        check_present(self._client, gap, self._losses)

    def report(self) -> Form | None:
        """Return how far the topics go, as far as is known without asking."""
        if not self._found:
            return None
        ends = {
            topic: Reached(state.incarnation, state.next_seq)
            for topic, state in self._found.items()
        }
        form = StreamOffsets(ends).form()
        lost = self._losses.form()
        return {**form, "lost": lost} if lost else form

    def set_target(self) -> None:
        """Remember how far the topics go now."""
        self._target = self._ask()

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[SeqRange]:
        """Return what lies between two offsets."""
        self._check_own(end)
        self._has_begun = True
        if not self._found:
            # A batch of an earlier run is repeated before a new one is planned.
            self._ask()
        ranges = []
        for topic, reached in sorted(end.topics.items()):
            begin = start.topics.get(topic)
            # It was entered with this batch, and is read from the next one on.
            if begin is None or begin.incarnation != reached.incarnation:
                continue
            wanted = SeqRange(
                topic, reached.incarnation, begin.next_seq - 1, reached.next_seq - 1
            )  # fmt: skip
            if wanted.size > 0 and self._is_there(wanted):
                # What is gone is met here, and is not asked for by tasks, which would log it again.
                # An archive may have earlier lives of a topic, which this seq says nothing of.
                state = self._found.get(topic)
                is_own = state is not None and state.incarnation == wanted.incarnation
                first_seq = state.first_seq if state is not None and is_own else 0
                after_seq = min(max(wanted.after_seq, first_seq - 1), wanted.to_seq)
                ranges.append(wanted._replace(after_seq=after_seq))
        return ranges

    def _is_there(self, wanted: SeqRange) -> bool:
        """Return whether a range can be read, as far as is known before a task begins."""
        topic, begin_seq = wanted.topic, wanted.after_seq + 1
        if self._states.is_kept(wanted):
            return True
        state = self._found.get(topic)
        if state is None:
            # The batch of an earlier run may have a topic that is not looked for any more.
            if self._states.is_asked_for(topic):
                self._losses.meet(deleted(topic, begin_seq))
            return not self._states.is_asked_for(topic)
        if state.incarnation != wanted.incarnation:
            self._losses.meet(made_again(topic, begin_seq))
            return False
        if begin_seq < state.first_seq:
            check_present(self._client, wanted, self._losses)
        return True

    def keep_cursors(self, reached: StreamOffsets) -> None:
        """Tell the server how far Spark has finished, if that changed."""
        consumer = self._options.consumer
        if not consumer:
            return
        for topic, place_now in reached.topics.items():
            if self._cursors.get(topic) == place_now:
                continue
            body = {
                "seq": place_now.next_seq - 1,
                "incarnation": place_now.incarnation,
                "hold": self._options.is_held,
            }
            try:
                path = topic_path(topic, "cursors", consumer)
                self._client.ask("PUT", path, body, is_repeatable=True)
            except JobyardError as error:
                if error.code not in _NO_LONGER:
                    raise error.within(topic=topic, option="consumer") from None
                LOGGER.warning("cursor %s of %s was not moved: %s", consumer, topic, error.message)
            self._cursors[topic] = place_now

    def _check_hold(self, topics: Iterable[str]) -> None:
        """Refuse a key that may not hold records when the query begins, not when a batch ends.

        Asks for a cursor of an incarnation that no topic has: refused last, and nothing changes.
        """
        topic = next(iter(sorted(topics)), "")
        if not self._options.is_held or self._is_hold_checked or not topic:
            return
        body = {"seq": 0, "incarnation": _NO_INCARNATION, "hold": True}
        try:
            path = topic_path(topic, "cursors", self._options.consumer)
            self._client.ask("PUT", path, body, is_repeatable=True)
        except JobyardError as error:
            if error.status in _NO_KEY:
                error.option = "hold"
                error.remedy = "hold needs a key with scope admin: set one, or leave hold out."
                raise error.within(topic=topic) from None
            if error.code not in _NO_LONGER:
                raise error.within(topic=topic, option="consumer") from None
        self._is_hold_checked = True

    def _news(self, start: StreamOffsets) -> dict[str, TopicExtent]:
        """Return the topics, as they were an interval ago at most; wait for news if there is none.

        Calls begin an interval apart, however soon they are answered.
        """
        interval_s = self._options.poll_interval_ms / 1000 * self._states.calls_count
        has_news = self._has_news(start)
        if has_news and time.monotonic() < self._found_s + interval_s:
            return self._found
        left_s = self._asked_s + interval_s - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        if has_news or len(start.topics) != 1:
            return self._ask()
        ((_, reached),) = start.topics.items()
        return self._ask(max(reached.next_seq - 1, 0), IDLE_WAIT_MS)

    def _has_news(self, start: StreamOffsets) -> bool:
        return any(
            topic not in start.topics
            or start.topics[topic].incarnation != state.incarnation
            or start.topics[topic].next_seq < state.next_seq
            for topic, state in self._found.items()
        )

    def _ask(self, after_seq: int = -1, wait_ms: int = 0) -> dict[str, TopicExtent]:
        self._asked_s = time.monotonic()
        self._found = self._states.all(after_seq, wait_ms)
        self._found_s = time.monotonic()
        return self._found

    def _known(self, start: StreamOffsets, found: dict[str, TopicExtent]) -> dict[str, Reached]:
        """Return where each topic of the next batch begins."""
        known: dict[str, Reached] = {}
        for topic, reached in start.topics.items():
            if not self._states.is_asked_for(topic):
                self._losses.meet(not_asked_for(topic, reached.next_seq))
                continue
            begin = self._begin(topic, reached, found.get(topic))
            if begin is not None:
                known[topic] = begin
        for topic, state in found.items():
            if topic not in known:
                known[topic] = self._states.place(topic, state, FIRST, "startingOffsets")
        return known

    def _begin(self, topic: str, reached: Reached, state: TopicExtent | None) -> Reached | None:
        """Return where a topic begins that was read before; None if it has ended."""
        if state is None:
            self._losses.meet(deleted(topic, reached.next_seq))
            return None if self._options.pattern else reached
        if state.incarnation != reached.incarnation:
            if not self._states.follows(topic, reached, state):
                self._losses.meet(made_again(topic, reached.next_seq))
            return Reached(state.incarnation, state.first_seq)
        if state.next_seq >= reached.next_seq:
            return reached
        if self._target is not None:
            # The target may have been taken before a start that is the newest record.
            state = self._states.all().get(topic, state)
            if state.next_seq >= reached.next_seq:
                return reached
        self._losses.meet(cut_back(topic, state.head_seq, reached.next_seq))
        return reached._replace(next_seq=state.next_seq)

    def _check_own(self, offsets: StreamOffsets) -> None:
        """Refuse the offsets of another query, which say nothing about the topics of this one."""
        topics = offsets.topics
        if topics and not any(self._states.is_asked_for(topic) for topic in topics):
            raise foreign(topics)

    def _must_wait(self, total: int) -> bool:
        """Return whether there is too little for a batch, and it need not come yet."""
        limits = self._options.limits
        if total >= limits.offsets_min or self._target is not None:
            return False
        return (time.monotonic() - self._moved_s) * 1000 < limits.delay_max_ms

    def _room(self, found: dict[str, TopicExtent], sizes: dict[str, int]) -> int:
        """Return how many seqs a batch may hold."""
        limits = self._options.limits
        total = sum(sizes.values())
        room = limits.offsets_max or total
        if limits.bytes_max and total:
            size = sum(found[topic].mean_size * count for topic, count in sizes.items() if count)
            room = min(room, int(limits.bytes_max / (size / total)))
        return max(room, 1)
