"""The model of a log: records in a dict, floors, keys, and the rules as short as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.topics.keys import RecordKeys
from sim.topics.nouns import Config, Page, Query, Refusal, Reply, Row, Write, has_tag

if TYPE_CHECKING:
    from sim.topics.nouns import Ask, Content

TRIM_MS: Final = 1000


def refuse_cursor(known: tuple[int, bool] | None, seq: int, head: int, *, is_forced: bool) -> None:
    """Refuse a cursor that cannot be set."""
    if seq > head:
        raise Refusal(416, "out_of_range")
    if known is not None and seq < known[0] and not is_forced:
        raise Refusal(409, "cursor_behind")


class Log:
    """One log."""

    def __init__(self, name: str, config: Config, now: int) -> None:
        self.name = name
        self.config = config
        # When this configuration took effect; expiry may take a while from then on.
        self.since = now
        # Until when records behind a younger one may be late: the clock was set back.
        self.held_up = 0
        self.rows: dict[int, Row] = {}
        self.bytes = 0
        self.next_seq = 1
        self.cap_floor = 1
        self.ttl_floor = 1
        self.keys: dict[str, Write] = {}
        # Of the cursor of its reader, if there is one: the seq, and whether it holds records.
        self.cursor: tuple[int, bool] | None = None
        # The number and size of records for which room is kept.
        self.promised = (0, 0)
        self.last_write = 0
        # Unknown until it is read.
        self.incarnation = 0
        self.record_keys = RecordKeys()
        # Waiting readers.
        self.waiting: list[Ask] = []

    @property
    def head(self) -> int:
        """Return the newest seq assigned."""
        return self.next_seq - 1

    @property
    def earliest(self) -> int:
        """Return the seq of the first record, or of the next one if there is none."""
        return next(iter(self.rows), self.next_seq)

    def remove(self, seqs: list[int]) -> None:
        """Remove records."""
        for seq in seqs:
            self.bytes -= self.rows.pop(seq).size

    def _below(self, floor: int) -> list[int]:
        return [seq for seq in self.rows if seq < floor]

    def _floor_without(self, count: int, size: int) -> int:
        """Return the seq below which this many records and bytes are."""
        floor = self.earliest
        for row in self.rows.values():
            if count <= 0 and size <= 0:
                break
            count -= 1
            size -= row.size
            floor = row.seq + 1
        return floor

    def held(self, floor: int) -> int:
        """Return up to where records below a seq may be removed."""
        if self.cursor is None or not self.cursor[1] or floor <= self.cursor[0] + 1:
            return floor
        return max(self.cursor[0] + 1, self.earliest)

    def shown(self) -> list[tuple[int, bool]]:
        """Return its cursors as they are listed."""
        return [] if self.cursor is None else [self.cursor]

    def set_cursor(self, seq: int, *, holds: bool, is_forced: bool, now: int) -> bool:
        """Set the cursor of its reader; return whether it is new."""
        self.check_cursor(seq, is_forced=is_forced)
        is_new = self.cursor is None
        self.put_cursor(seq, holds=holds, now=now)
        return is_new

    def check_cursor(self, seq: int, *, is_forced: bool) -> None:
        """Refuse a cursor that cannot be set."""
        refuse_cursor(self.cursor, seq, self.head, is_forced=is_forced)

    def put_cursor(self, seq: int, *, holds: bool, now: int) -> None:
        """Set the cursor of its reader."""
        self.cursor = (seq, holds)
        # What was held may have to go now.
        self.since = now

    def promise(self, contents: list[Content]) -> None:
        """Keep room for records that follow in the same batch, if it refuses others."""
        self.promised = (0, 0)
        if self.config.is_rejecting:
            self.promised = (len(contents), sum(one.size(is_job=False) for one in contents))

    def _excess(self, count: int, size: int) -> tuple[int, int]:
        config = self.config
        count, size = count + self.promised[0], size + self.promised[1]
        over_count = len(self.rows) + count - config.cap_records if config.cap_records else 0
        over_size = self.bytes + size - config.cap_bytes if config.cap_bytes else 0
        return over_count, over_size

    def trim(self, now: int) -> None:
        """Remove records that are too old or too many."""
        config = self.config
        if config.ttl:
            floor = self.earliest
            for row in self.rows.values():
                if row.at >= now - config.ttl:
                    break
                floor = row.seq + 1
            floor = self.held(floor)
            if floor > self.earliest:
                self.ttl_floor = max(self.ttl_floor, floor)
                self.remove(self._below(floor))
        self.trim_excess()

    def trim_excess(self) -> None:
        """Remove records beyond the caps."""
        over = self._excess(0, 0)
        if self.rows and not self.config.is_rejecting and max(over) > 0:
            floor = self.held(self._floor_without(*over))
            if floor > self.earliest:
                self.cap_floor = max(self.cap_floor, floor)
                self.remove(self._below(floor))

    def configure(self, config: Config, now: int) -> None:
        """Replace the configuration."""
        self.trim(now)
        if self.rows and config.is_written != self.config.is_written:
            raise Refusal(409, "topic_not_empty")
        self.record_keys.configure(self.config, config, now)
        self.config = config
        self.since = now
        self.trim(now)
        self.held_up = 0
        self.look(now)

    def known(self, key: str, now: int) -> Write | None:
        """Return the earlier write with a key, after expiring old ones."""
        self.trim(now)
        for name, write in list(self.keys.items()):
            if write.time > now - self.config.window:
                break
            del self.keys[name]
        found = self.keys.get(key) if key else None
        # An older one outlasts it if the clock went back in between.
        return None if found is None or found.time <= now - self.config.window else found

    def append(self, contents: list[Content], key: str, now: int, wall: int, batch: int) -> int:
        """Append records whose key is new; return the first seq.

        `trim_excess` removes those beyond the caps.
        """
        size = sum(one.size(is_job=False) for one in contents)
        if self.config.is_too_large(len(contents), size):
            raise Refusal(400, "record_too_large")
        over = self._excess(len(contents), size)
        if max(over) > 0:
            if self.config.is_rejecting:
                raise Refusal(422, "topic_full")
            floor = self.held(self._floor_without(*over))
            if floor > self.earliest:
                self.cap_floor = floor
                self.remove(self._below(floor))
        first = self.next_seq
        ts = max(wall, self.last_write)
        for content in contents:
            row = Row(self.next_seq, ts, now, content, batch)
            row.is_written = self.config.is_written
            if not row.is_written:
                row.batch = 0
            self.rows[row.seq] = row
            self.bytes += row.size
            self.next_seq += 1
        self.last_write = ts
        if key:
            held = batch if self.config.is_written else 0
            self.keys[key] = Write(first, self.head, now, held)
        return first

    def read(self, query: Query, now: int) -> Page:
        """Return what a reader should see."""
        self.trim(now)
        after = query.after
        floor = max(self.cap_floor, self.ttl_floor)
        stone: Reply | None = None
        if after > self.head:
            stone = self.gap(1, self.earliest - 1, "recreated")
            after = self.earliest - 1
        elif after + 1 < floor:
            stone = self.gap(after + 1, floor - 1, reason_of(self.cap_floor, self.ttl_floor, after))
            after = floor - 1
        wanted = [
            (row.seq, shown(row, query), row.batch)
            for row in self.rows.values()
            if row.seq > after and not is_own(row.content, query, self.config)
        ]
        return Page(wanted, after, self.head, self.earliest, stone)

    def gap(self, first: int, last: int, reason: str) -> Reply:
        """Return the tombstone for a reader that is too late."""
        return tombstone(first, last, reason, self.earliest, self.head)

    def erase(self, before: int, match: str | None, now: int) -> int:
        """Delete records; return how many."""
        self.trim(now)
        bound = self.next_seq if before < 0 else before
        gone = [
            row.seq
            for row in self.rows.values()
            if row.seq < bound and (match is None or has_tag(row.content.tag, match))
        ]
        self.remove(gone)
        return len(gone)

    def look(self, now: int) -> None:
        """Note when records are checked next: the first one is taken to have come by now.

        A record from before the clock was set back is younger than those behind it. It blocks them,
        and once it is gone they are checked within their time to live.
        """
        ttl = self.config.ttl
        if ttl and self.rows:
            at = next(iter(self.rows.values())).at
            self.held_up = max(self.held_up, min(at, now) + ttl)

    def is_late(self, now: int) -> bool:
        """Return whether a record stays that should have expired."""
        ttl = self.config.ttl
        if not ttl or not self.rows:
            return False
        if self.held(self.next_seq) <= self.earliest:
            return False
        at = next(iter(self.rows.values())).at
        return now > max(at + ttl, self.since, self.held_up) + TRIM_MS + 2


def shown(row: Row, query: Query) -> Reply:
    """Return a record as a reader sees it."""
    told = row.content.shown(tags=query.tags, node=True, meta=query.meta)
    return {"$seq": row.seq, "$ts": row.ts, **told}


def is_own(content: Content, query: Query, config: Config) -> bool:
    """Return whether a reader wrote this itself and does not want to see it."""
    return config.dedupes and query.node != "" and content.node == query.node


def reason_of(cap_floor: int, ttl_floor: int, after: int) -> str:
    """Return why records are gone."""
    if cap_floor > after + 1:
        return "mixed" if ttl_floor > after + 1 else "cap"
    return "ttl"


def tombstone(first: int, last: int, reason: str, earliest: int, head: int) -> Reply:
    """Return the tombstone for a reader that is too late."""
    return {
        "gap_from": first,
        "gap_to": last,
        "reason": reason,
        "missed_estimate": last - first + 1,
        "earliest_seq": earliest,
        "head_seq": head,
    }
