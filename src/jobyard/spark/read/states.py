"""What the driver knows of topics: how far they go, and what a position means in each.

Asks for all topics at once: one call for one topic, otherwise one call for each 1,000 topics that
share the names' common beginning. Holds no state between calls.
"""

import difflib
import re
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from jobyard.client import Answer, JobyardError, YardClient
from jobyard.client.calls import topic_path
from jobyard.client.errors import bad_option
from jobyard.spark.options import EVENTS_TOPIC, ReadOptions
from jobyard.spark.read.losses import Losses, made_again
from jobyard.spark.read.offsets import Reached
from jobyard.spark.read.positions import EARLIEST, Position
from jobyard.spark.read.ranges import SeqRange

_PAGE_SIZE: Final = 1000
_LOG: Final = "log"
_NOT_FOUND: Final = "topic_not_found"
_GIVEN: Final = "Set %s without the id of another topic, or failOnDataLoss=false."
# What may begin a regular expression and still is a name.
_PLAIN: Final = re.compile(r"\^?([A-Za-z0-9_-]*)")
_CHANGES_MEANING: Final = "*?{|"


class TopicExtent(NamedTuple):
    """How far one topic goes."""

    incarnation: str
    earliest_seq: int
    # Of `_events` the last number that is a row.
    head_seq: int
    records: int
    size: int

    @property
    def next_seq(self) -> int:
        """Return the seq of the next record that will be written."""
        return self.head_seq + 1

    @property
    def first_seq(self) -> int:
        """Return the first seq that can be read; the next seq if there is none."""
        return min(max(self.earliest_seq, 1), self.next_seq)

    @property
    def mean_size(self) -> float:
        """Return the mean size of a record in bytes."""
        return self.size / self.records if self.records > 0 and self.size > 0 else 1.0


class TopicStates:
    """Asks one yard for the topics that the options name."""

    def __init__(self, client: YardClient, options: ReadOptions, losses: Losses) -> None:
        self._client = client
        self.losses = losses
        self._topics = options.topics
        self._pattern = re.compile(options.pattern) if options.pattern else None
        self._option = "topicsPattern" if options.pattern else "topic"
        # How many calls the last question took.
        self.calls_count = 1

    def is_asked_for(self, topic: str) -> bool:
        """Return whether the options mean a topic of this name, there or not."""
        if self._pattern is None:
            return topic in self._topics
        return topic != EVENTS_TOPIC and self._pattern.fullmatch(topic) is not None

    def all(self, after_seq: int = -1, wait_ms: int = 0) -> dict[str, TopicExtent]:
        """Return the state of each topic that exists.

        A single topic is awaited: the answer comes when it goes beyond `after_seq`, or after
        `wait_ms`.
        """
        if self._pattern is None and len(self._topics) == 1:
            self.calls_count = 1
            return self._one(self._topics[0], after_seq, wait_ms)
        return self._listed()

    def seq_at(self, topic: str, ts_ms: int) -> int:
        """Return the seq of the first record at or after a time; the next seq if there is none."""
        return self._client.get(topic_path(topic, "seq"), {"ts": ts_ms}).number("seq")

    def place(self, topic: str, state: TopicExtent, position: Position, option: str) -> Reached:
        """Return the next seq to be read from a position; of an end, the first one not read."""
        return Reached(state.incarnation, _place(self, topic, state, position, option))

    # What follows is about records that are kept elsewhere as well: here none are.

    def seen_from(
        self,
        topics: Mapping[str, Reached],  # noqa: ARG002  for those that know more lives
        found: dict[str, TopicExtent],
    ) -> dict[str, TopicExtent]:
        """Return topics as a reader sees them that has reached these places."""
        return found

    def follows(self, topic: str, reached: Reached, state: TopicExtent) -> bool:  # noqa: ARG002
        """Return whether nothing is lost between a place in one life and the next life."""
        return False

    def is_kept(self, wanted: SeqRange) -> bool:  # noqa: ARG002  see above
        """Return whether a range can be read although the topic may not have it."""
        return False

    def _one(self, topic: str, after_seq: int, wait_ms: int) -> dict[str, TopicExtent]:
        query = {"after_seq": after_seq, "wait_ms": wait_ms} if wait_ms > 0 else None
        try:
            answer = self._client.get(topic_path(topic), query, wait_ms=wait_ms)
        except JobyardError as error:
            if error.code == _NOT_FOUND:
                return {}
            raise error.within(topic=topic) from None
        return {topic: self._state(topic, answer)}

    def _listed(self) -> dict[str, TopicExtent]:
        found: dict[str, TopicExtent] = {}
        query: dict[str, object] = {"page_size": _PAGE_SIZE, "prefix": self._prefix()}
        self.calls_count = 0
        while True:
            self.calls_count += 1
            page = self._client.get("/v0/topics", query)
            for line in page.objects("topics"):
                topic = line.text("topic")
                if self._is_meant(topic, line):
                    found[topic] = self._state(topic, line)
            cursor = page.text_or("next_cursor", "")
            if not cursor:
                return found
            query["cursor"] = cursor

    def _prefix(self) -> str:
        if self._pattern is None:
            first, last = min(self._topics), max(self._topics)
            size = next((at for at, pair in enumerate(zip(first, last, strict=False))
                         if pair[0] != pair[1]), min(len(first), len(last)))  # fmt: skip
            return first[:size]
        text = self._pattern.pattern
        plain = _PLAIN.match(text)
        if plain is None or "|" in text or "(" in text[:1] or self._pattern.flags & re.IGNORECASE:
            return ""
        name = plain[1]
        following = text[plain.end() : plain.end() + 1]
        # The last letter belongs to what follows: in `ab*` only the a is sure.
        return name[:-1] if following and following in _CHANGES_MEANING else name

    def _is_meant(self, topic: str, line: Answer) -> bool:
        is_kind = self._pattern is None or line.text("type") == _LOG
        return is_kind and self.is_asked_for(topic)

    def _state(self, topic: str, answer: Answer) -> TopicExtent:
        if answer.text("type") != _LOG:
            raise bad_option(
                self._option,
                f"{topic} is a queue, which has no records to read in order",
                f"Its jobs are a table: set the option jobs to {topic}, and no topic.",
            )
        head = "head_row_seq" if topic == EVENTS_TOPIC else "head_seq"
        return TopicExtent(
            answer.text("incarnation"),
            answer.number("earliest_seq"),
            answer.number(head),
            answer.number("count"),
            answer.number("bytes"),
        )


def no_topic(topic: str, url: str, *, is_stream: bool) -> JobyardError:
    """Return the error for a topic that does not exist."""
    remedy = "Check the name (GET /v0/topics lists all), or create it: PUT /v0/topics/NAME."
    if is_stream:
        remedy = "Create it first, or read it with topicsPattern, which waits for topics to appear."
    return JobyardError(
        _NOT_FOUND, f"there is no topic {topic}", url=url, option="topic", remedy=remedy
    )


def _place(
    states: TopicStates, topic: str, state: TopicExtent, position: Position, option: str
) -> int:
    if position.by_topic:
        return _given_seq(states.losses, topic, state, position, option)
    if position.newest_count:
        return max(state.next_seq - position.newest_count, state.first_seq)
    ts_ms = position.at_ms
    if position.before_now_ms is not None:
        ts_ms = max(time.time_ns() // 1_000_000 - position.before_now_ms, 0)
    if ts_ms is not None:
        return min(max(states.seq_at(topic, ts_ms), state.first_seq), state.next_seq)
    return state.first_seq if position.edge == EARLIEST else state.next_seq


def check_names(position: Position | None, topics: list[str], option: str) -> None:
    """Refuse offsets of topics that are not read: a misspelt name would begin elsewhere."""
    for topic, _, _ in position.by_topic if position is not None else ():
        if topic in topics:
            continue
        near = difflib.get_close_matches(topic, topics, n=1)
        raise bad_option(
            option,
            f"{option} has an offset of {topic}, which is not read",
            f"Did you mean {near[0]}?" if near else "Name only topics that this query reads.",
        )


def _given_seq(
    losses: Losses, topic: str, state: TopicExtent, position: Position, option: str
) -> int:
    for name, seq, incarnation in position.by_topic:
        if name != topic:
            continue
        if incarnation and incarnation != state.incarnation:
            losses.meet(made_again(topic, seq, _GIVEN % option))
            return state.first_seq if option.startswith("starting") else state.next_seq
        if seq < 0:
            return state.first_seq if seq == EARLIEST else state.next_seq
        if seq > state.next_seq:
            raise bad_option(
                option,
                f"{topic} has no seq {seq} yet: the next one is {state.next_seq}",
                f"Set it to {state.next_seq} at most, or to -1 for latest.",
            ).within(topic=topic)
        return max(seq, 1)
    raise bad_option(
        option, f"{option} has no offset of {topic}", "Name every topic: -2 is earliest."
    )
