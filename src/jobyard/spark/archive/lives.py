"""The topics of a read with an archive: all their lives, and how far each goes.

A topic that was deleted and made again has several lives, each with its own incarnation and seqs
from 1 on. The archive knows them in their order; the yard knows the present one, and how much
further than the archive it goes. The archive is asked first, so that the yard is never behind it.
"""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, final

from jobyard.client.errors import bad_option
from jobyard.lake.archive.faults import differs, not_found
from jobyard.lake.archive.index import FileEntry, TopicIndex
from jobyard.lake.archive.reading import Archive, archived_topics
from jobyard.spark.options import EVENTS_TOPIC, ReadOptions
from jobyard.spark.read.losses import Losses, cut_back, made_again
from jobyard.spark.read.offsets import Reached
from jobyard.spark.read.positions import EARLIEST, Position
from jobyard.spark.read.ranges import SeqRange
from jobyard.spark.read.states import TopicExtent, TopicStates

_US: Final = 1000


class TopicLife(NamedTuple):
    """One life of a topic, in the archive, in the yard, or in both."""

    extent: TopicExtent
    # Whether the yard has it.
    is_live: bool
    # The last number that the archive has; 0 for none.
    archived_to: int


@final
class TopicLives:
    """What is known of topics, as of the last question."""

    def __init__(self, options: ReadOptions, losses: Losses, live: TopicStates | None) -> None:
        self._options = options
        self._losses = losses
        # None if the yard is not asked.
        self._live = live
        self._archives: dict[str, Archive] = {}
        self._lives: dict[str, list[TopicLife]] = {}

    def archive(self, topic: str) -> Archive:
        """Return the archive of a topic; one that is kept reads its list once."""
        if topic not in self._archives:
            self._archives[topic] = Archive(self._options.archive_path, topic)
        return self._archives[topic]

    def ask(self, after_seq: int = -1, wait_ms: int = 0) -> dict[str, list[TopicLife]]:
        """Return all lives of each topic, the present one last."""
        root = Path(self._options.archive_path)
        if not root.is_dir():
            raise not_found(root, "is not there")
        indexes = {topic: self.archive(topic).index() for topic in self._names(root)}
        found = self._live.all(after_seq, wait_ms) if self._live is not None else {}
        self._lives = {}
        for topic in sorted({*indexes, *found}):
            # A topic of a pattern that was made a moment ago may have no list yet.
            index = indexes.get(topic) or TopicIndex(topic)
            if lives := self._joined(index, found.get(topic)):
                self._lives[topic] = lives
        return self._lives

    def of(self, topic: str) -> list[TopicLife]:
        """Return the lives of a topic, the present one last."""
        return self._lives.get(topic, [])

    def place(self, topic: str, position: Position, option: str) -> Reached:
        """Return the next seq to be read from a position; of an end, the first one not read."""
        lives = self._lives[topic]
        extent = lives[-1].extent
        if position.by_topic:
            return self._given(topic, lives, position, option)
        if position.newest_count:
            first = max(extent.next_seq - position.newest_count, extent.first_seq)
            return Reached(extent.incarnation, first)
        ts_ms = position.at_ms
        if position.before_now_ms is not None:
            ts_ms = max(time.time_ns() // 1_000_000 - position.before_now_ms, 0)
        if ts_ms is not None:
            return self._at_time(topic, lives, ts_ms)
        if position.edge == EARLIEST:
            return _first(lives)
        return Reached(extent.incarnation, extent.next_seq)

    def _names(self, root: Path) -> list[str]:
        options = self._options
        if not options.pattern:
            return list(options.topics)
        wanted = TopicPattern(options)
        return [topic for topic in archived_topics(root) if wanted.matches(topic)]

    def _joined(self, index: TopicIndex, state: TopicExtent | None) -> list[TopicLife]:
        lives = [
            TopicLife(_extent(index, life.incarnation), is_live=False, archived_to=life.to_seq)
            for life in index.lives
        ]
        if state is None:
            return lives
        topic = index.topic
        known = [life.extent.incarnation for life in lives]
        if state.incarnation not in known:
            return [*lives, TopicLife(state, is_live=True, archived_to=0)]
        if state.incarnation != known[-1]:
            raise differs(
                topic,
                f"the archive has a newer life of {topic} than the server",
                "Is this an older copy of the data directory? Set another archivePath.",
            )
        archived = lives[-1]
        if state.head_seq < archived.archived_to:
            self._losses.meet(cut_back(topic, state.head_seq, archived.archived_to + 1))
            return lives
        earliest = min(archived.extent.first_seq, state.first_seq)
        joined = state._replace(earliest_seq=earliest)
        return [*lives[:-1], TopicLife(joined, is_live=True, archived_to=archived.archived_to)]

    def _at_time(self, topic: str, lives: list[TopicLife], ts_ms: int) -> Reached:
        found = self.archive(topic).first_at(ts_ms * _US)
        if found is not None:
            return Reached(*found)
        last = lives[-1]
        extent = last.extent
        if self._live is None or not last.is_live:
            return Reached(extent.incarnation, extent.next_seq)
        seq = max(self._live.seq_at(topic, ts_ms), last.archived_to + 1, extent.first_seq)
        return Reached(extent.incarnation, min(seq, extent.next_seq))

    def _given(
        self, topic: str, lives: list[TopicLife], position: Position, option: str
    ) -> Reached:
        extent = lives[-1].extent
        for name, seq, incarnation in position.by_topic:
            if name != topic:
                continue
            if seq < 0:
                is_first = seq == EARLIEST
                return _first(lives) if is_first else Reached(extent.incarnation, extent.next_seq)
            if incarnation:
                known = [life for life in lives if life.extent.incarnation == incarnation]
                if not known:
                    self._losses.meet(made_again(topic, seq))
                    is_start = option.startswith("starting")
                    return _first(lives) if is_start else Reached(
                        extent.incarnation, extent.next_seq
                    )  # fmt: skip
                extent = known[0].extent
            if seq > extent.next_seq:
                raise bad_option(
                    option, f"{topic} has no seq {seq} yet: the next one is {extent.next_seq}"
                ).within(topic=topic)
            return Reached(extent.incarnation, max(seq, 1))
        raise bad_option(
            option, f"it has no offset of {topic}", "Name every topic: -2 is earliest."
        )


def _first(lives: list[TopicLife]) -> Reached:
    return Reached(lives[0].extent.incarnation, lives[0].extent.first_seq)


def _extent(index: TopicIndex, incarnation: str) -> TopicExtent:
    """Return how far the archive goes in one life."""
    files: list[FileEntry] = list(index.files_of(incarnation))
    return TopicExtent(
        incarnation,
        files[0].begin_seq + 1,
        files[-1].to_seq,
        sum(file.rows for file in files),
        sum(file.bytes for file in files),
    )


@final
class TopicPattern:
    """The topics that a pattern means."""

    def __init__(self, options: ReadOptions) -> None:
        self._pattern = re.compile(options.pattern)

    def matches(self, topic: str) -> bool:
        """Return whether a topic is meant."""
        return topic != EVENTS_TOPIC and self._pattern.fullmatch(topic) is not None


@final
class JoinedStates(TopicStates):
    """The topics of a stream: each as the life that a reader is in."""

    def __init__(self, options: ReadOptions, losses: Losses, live: TopicStates) -> None:
        self._options = options
        self.losses = losses
        self._live = live
        self.lives = TopicLives(options, losses, live)
        self.calls_count = 1

    def is_asked_for(self, topic: str) -> bool:
        """Return whether the options mean a topic of this name, there or not."""
        return self._live.is_asked_for(topic)

    def all(self, after_seq: int = -1, wait_ms: int = 0) -> dict[str, TopicExtent]:
        """Return the present life of each topic."""
        found = self.lives.ask(after_seq, wait_ms)
        self.calls_count = self._live.calls_count
        return {topic: lives[-1].extent for topic, lives in found.items()}

    def place(
        self,
        topic: str,
        state: TopicExtent,  # noqa: ARG002  all lives are known
        position: Position,
        option: str,
    ) -> Reached:
        """Return the next seq to be read from a position, in whichever life that is."""
        return self.lives.place(topic, position, option)

    def seen_from(
        self, topics: Mapping[str, Reached], found: dict[str, TopicExtent]
    ) -> dict[str, TopicExtent]:
        """Return each topic as the life that a reader is in, or the next one at its end."""
        seen = dict(found)
        for topic, reached in topics.items():
            lives = self.lives.of(topic)
            at = _place_of(lives, reached)
            if topic not in found or at is None:
                continue
            is_read = reached.next_seq >= lives[at].extent.next_seq
            if at < len(lives) - 1:
                seen[topic] = lives[at + 1 if is_read else at].extent
            elif is_read and not lives[at].is_live and not self._options.pattern:
                # The topic was deleted, and the archive has no more of it. One of a pattern ends
                # quietly: it stays where it is, as it would be entered again otherwise.
                del seen[topic]
        return seen

    def follows(self, topic: str, reached: Reached, state: TopicExtent) -> bool:
        """Return whether a life was read as far as it is archived, and this is the next one."""
        lives = self.lives.of(topic)
        at = _place_of(lives, reached)
        return (
            at is not None
            and at < len(lives) - 1
            and lives[at + 1].extent.incarnation == state.incarnation
            and reached.next_seq == lives[at].extent.next_seq
        )

    def is_kept(self, wanted: SeqRange) -> bool:
        """Return whether the archive has something of a range; tasks say what is missing."""
        life = self.lives.archive(wanted.topic).index().life(wanted.incarnation)
        return life is not None and wanted.to_seq > life.after_seq


def _place_of(lives: list[TopicLife], reached: Reached) -> int | None:
    """Return which of the lives a reader is in; None if it is in none of them."""
    names = [life.extent.incarnation for life in lives]
    return names.index(reached.incarnation) if reached.incarnation in names else None
