"""The topics model: the expected answers, derived from plain logs, queues and routers.

An answer is passed in with its request; the model applies the request and compares. Where the
yard may choose the moment (records and jobs that expire, claims that wait), the model reads what it
did, and raises a Violation if that was not allowed or took too long.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from jobyard.engine.state.history import yard_id
from sim.state import Violation
from sim.topics import redrives, txns
from sim.topics.keys import RecordKeys
from sim.topics.leases import LeasedTopics
from sim.topics.nouns import Ask, Config, Content, Page, Refusal, Reply, Router
from sim.topics.topics import MARK, RETRY_MS
from sim.topics.txn_book import ClaimSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.topics.answer import Answer
    from sim.topics.logs import Log
    from sim.topics.queues import Queue


class TopicsModel(LeasedTopics):
    """The expected answers."""

    def __init__(self, reach: Callable[[str], None]) -> None:
        super().__init__(reach)
        self._verbs: dict[str, Callable[[Ask, Answer], int]] = {
            "put": self._put,
            "get": self._get,
            "drop": self._drop,
            "drop-empty": self._drop,
            "list": self._list,
            "write": self._write,
            "diff": self._diff,
            "delete": self._delete,
            "claim": self._claim,
            "ack": self._ack,
            "nack": self._nack,
            "extend": self._extend,
            "redrive": self._redrive,
            "purge": self._purge,
            "route": self._route,
            "router": self._router,
            "unroute": self._unroute,
            "cursor": self._cursor,
            "cursors": self._cursors,
            "stage": partial(self._about_txn, txns.stage),
            "commit": partial(self._about_txn, txns.commit),
            "txn-look": partial(self._about_txn, txns.look),
            "txn-abort": partial(self._about_txn, txns.abort),
            "claim-set": self._claim_set,
            "show-set": self._show_set,
            "extend-set": partial(self._about_txn, txns.extend_set),
        }

    def answered(self, ask: Ask, answer: Answer) -> int:
        """Apply the request, compare, and return the batch that the answer depends on."""
        try:
            batch = self._verbs[ask.verb](ask, answer)
        except Refusal as no:
            if (answer.status, answer.code()) != (no.status, no.code):
                story = f"{ask}: {answer.status} {answer.body}, not {no.status} {no.code}"
                raise Violation("reply", story[:1500]) from None
            self.reach(f"refused {no.code}")
            # A client that gets "no such topic" learns of its end.
            return self.dropped.get(ask.name, 0) if no.status == 404 else 0
        return batch

    # -- topics ----------------------------------------------------------------------------------

    def _put(self, ask: Ask, answer: Answer) -> int:
        config = Config(ask.fields)
        log = self.logs.get(ask.name)
        queue = self.queues.get(ask.name)
        known = log or queue
        if known is not None and known.config.type != config.type:
            raise Refusal(409, "topic_exists_incompatible")
        if config.letters in self.queues:
            raise Refusal(409, "topic_exists_incompatible")
        if log is not None:
            log.configure(config, self.now)
            self._tell(log)
        elif queue is not None:
            queue.configure(config, self.now)
        else:
            self._open(ask.name, config)
        wanted: Reply = {
            "topic": ask.name,
            "created": known is None,
            "config": config.fields,
        }
        self._same(ask, answer, wanted, 201 if known is None else 200)
        return self.batch

    def _get(self, ask: Ask, answer: Answer) -> int:
        log = self.logs.get(ask.name)
        if log is not None:
            log.trim(self.now)
            wanted = self._state(ask.name, log, len(log.rows))
            wanted["last_write_ts"] = log.last_write or None
            wanted["last_read_ts"] = answer.body.get("last_read_ts")
            if not log.incarnation:
                log.incarnation = int(str(answer.body.get("incarnation")))
                if log.incarnation in self.incarnations:
                    raise Violation("reply", f"{ask}: {log.incarnation} belonged to another log")
                self.incarnations.add(log.incarnation)
            wanted["incarnation"] = str(log.incarnation)
            if log.cursor is not None:
                wanted["cursors"] = answer.body.get("cursors")
        else:
            queue = self._there(self.queues.get(ask.name))
            wanted = self._state(ask.name, queue, len(queue.jobs))
            for key in ("last_write_ts", "last_read_ts"):
                wanted[key] = answer.body.get(key)
            names = ("ready", "in_flight", "delayed")
            counts: Reply = dict(zip(names, queue.counts(), strict=True))
            counts["dead_lettered"] = queue.dead_lettered
            wanted["queue"] = counts
            number = int(self.yard.queues[ask.name].number)
            wanted["incarnation"] = f"{yard_id(self.yard)}-{number}"
            if "cursors" in answer.body:
                wanted["cursors"] = answer.body["cursors"]
        wanted["head_row_seq"] = wanted["head_seq"]
        self._same(ask, answer, wanted)
        return self._newest(ask.name)

    def _cursor(self, ask: Ask, answer: Answer) -> int:
        if ask.name in self.queues:
            # A cursor of a queue is a number and nothing else; other tests try that.
            holds = bool(ask.fields["hold"])
            if answer.status in {200, 201}:
                self.queues[ask.name].cursor = (ask.number("seq", 0), False)
            elif not (holds or answer.status in {409, 416}):
                raise Violation("reply", f"{ask}: {answer.status} {answer.body}")
            return 0
        log = self.logs.get(ask.name)
        if log is None:
            raise Refusal(404, "topic_not_found")
        seq = ask.number("seq", 0)
        holds, is_forced = bool(ask.fields["hold"]), bool(ask.fields.get("force"))
        is_new = log.set_cursor(seq, holds=holds, is_forced=is_forced, now=self.now)
        self.reach("cursor holds records" if holds else "cursor set")
        wanted = (201 if is_new else 200, seq, sum(each > seq for each in log.rows))
        if (answer.status, answer.body.get("seq"), answer.body.get("lag")) != wanted:
            raise Violation("reply", f"{ask}: {answer.status} {answer.body}")
        return self.batch

    def _cursors(self, ask: Ask, answer: Answer) -> int:
        log = self.logs.get(ask.name)
        shown = [] if log is None else [(o["seq"], o["hold"]) for o in answer.list("cursors")]
        if log is not None and shown != log.shown():
            raise Violation("reply", f"{ask}: {shown}, not {log.cursor}")
        return 0

    def _newest(self, name: str) -> int:
        """Return the newest batch with anything a topic holds."""
        log = self.logs.get(name)
        if log is not None:
            return max((row.batch for row in log.rows.values()), default=0)
        return max((job.batch for job in self.queues[name].jobs.values()), default=0)

    def _state(self, name: str, topic: Log | Queue, count: int) -> Reply:
        return {
            "topic": name,
            "type": topic.config.type,
            "head_seq": topic.head,
            "earliest_seq": topic.earliest,
            "next_seq": topic.next_seq,
            "count": count,
            "bytes": topic.bytes,
            "config": topic.config.fields,
            "effective_priority": 0,
        }

    def _drop(self, ask: Ask, answer: Answer) -> int:
        name = ask.name
        log = self.logs.get(name)
        queue = self.queues.get(name)
        count = len(log.rows) if log is not None else len(queue.jobs) if queue is not None else 0
        if ask.verb == "drop-empty" and count > 0:
            raise Refusal(409, "topic_not_empty")
        removed = [r.name for r in self.routers.values() if name in {r.source, r.dest}]
        for router in removed:
            del self.routers[router]
        topic = self.logs.pop(name, None) or self.queues.pop(name, None)
        if topic is not None:
            self.reach("topic dropped")
            self.dropped[name] = self.batch
            for waiting in topic.waiting:
                waiting.is_over = True
        wanted: Reply = {"topic": name, "deleted": topic is not None}
        self._same(ask, answer, {**wanted, "routers_removed": sorted(removed)})
        return self.batch if topic is not None else 0

    def _list(self, ask: Ask, answer: Answer) -> int:
        for log in self.logs.values():
            log.trim(self.now)
        topics: list[Log | Queue] = [*self.logs.values(), *self.queues.values()]
        wanted = sorted((one.name, one.config.type, one.head, one.bytes) for one in topics)
        found = [
            (one["topic"], one["type"], one["head_seq"], one["bytes"])
            for one in answer.list("topics")
        ]
        if found != wanted:
            raise Violation("reply", f"{ask}: {found}, not {wanted}")
        return 0

    # -- writing ---------------------------------------------------------------------------------

    def _write(self, ask: Ask, answer: Answer) -> int:
        name = ask.name
        contents = ask.contents()
        is_new = name not in self.logs and name not in self.queues
        if is_new:
            if not ask.fields.get("create", True):
                raise Refusal(404, "topic_not_found")
            given = ask.fields.get("config", {})
            assert isinstance(given, dict)
            config = Config(given)
            if config.letters in self.queues:
                raise Refusal(409, "topic_exists_incompatible")
            keys = RecordKeys().sort(ask.keys(), config, 1, self.now).kept
            is_job = config.type == "queue"
            size = sum(contents[at].size(is_job=is_job) for at in keys)
            if config.is_too_large(len(keys), size):
                raise Refusal(400, "record_too_large")
            self._open(name, config)
        topic = self.logs.get(name) or self.queues[name]
        if any(ask.keys()):
            return self._write_keyed(ask, answer, topic, is_new=is_new)
        key = ask.text("idempotency_key")
        log = self.logs.get(name)
        if log is not None:
            write, is_known = self._append(log, contents, key)
            head = log.head
        else:
            queue = self.queues[name]
            write, is_known = self._produce(queue, contents, key)
            head = queue.head
        if is_known:
            self.reach("write known by its key")
        wanted: Reply = {
            "topic": name,
            "first_seq": write.first,
            "last_seq": write.last,
            "seqs": list(range(write.first, write.last + 1)),
            "head_seq": head,
            "count": write.last - write.first + 1,
            "created": is_new,
            "deduped": is_known,
        }
        self._same(ask, answer, wanted, 201 if is_new else 200)
        return write.batch

    def _write_keyed(self, ask: Ask, answer: Answer, topic: Log | Queue, *, is_new: bool) -> int:
        """Write the records whose keys are not known."""
        keys = ask.keys()
        contents = ask.contents()
        found = topic.record_keys.sort(keys, topic.config, topic.next_seq, self.now)
        first, last, batch = topic.next_seq, topic.head, found.batch
        if found.duplicates:
            self.reach("record known by its key" if found.kept else "all records known")
        if found.kept:
            kept = [contents[at] for at in found.kept]
            log = self.logs.get(ask.name)
            if log is not None:
                write, _ = self._append(log, kept, "")
            else:
                write, _ = self._produce(self.queues[ask.name], kept, "")
            first, last, batch = write.first, write.last, max(batch, write.batch)
            fresh = [keys[at] for at in found.kept]
            topic.record_keys.remember(fresh, first, self.now, self.batch, topic.config)
        wanted: Reply = {
            "topic": ask.name,
            "first_seq": first,
            "last_seq": last,
            "seqs": list(range(first, last + 1)),
            "head_seq": topic.head,
            "count": last - first + 1,
            "created": is_new,
            "deduped": False,
            "written": last - first + 1,
            "duplicates": found.duplicates,
        }
        self._same(ask, answer, wanted, 201 if is_new else 200)
        return batch

    # -- routers ---------------------------------------------------------------------------------

    def _route(self, ask: Ask, answer: Answer) -> int:
        router = Router(ask.name, ask.fields)
        lacks_source = router.source not in self.logs
        is_missing = router.dest not in self.logs and router.dest not in self.queues
        if is_missing and not ask.fields.get("create_dest", True):
            raise Refusal(404, "topic_not_found")
        known = self.routers.get(router.name)
        if known is not None:
            if (known.source, known.dest) != (router.source, router.dest):
                raise Refusal(409, "router_repoint_forbidden")
            router.cursor, router.is_behind = known.cursor, known.is_behind
            router.retry = self.now + RETRY_MS
            del self.routers[router.name]
        else:
            if any(one.dest == router.dest for one in self.routers.values()):
                raise Refusal(409, "topic_exists_incompatible")
            if self._leads(router.dest, router.source):
                raise Refusal(409, "router_cycle")
            if lacks_source:
                self._open(router.source, Config({}))
            router.cursor = self.logs[router.source].head
        self.routers[router.name] = router
        if is_missing:
            self._open(router.dest, Config({}))
        self._same(ask, answer, _fields(ask, is_new=known is None), 201 if known is None else 200)
        return self.batch

    def _router(self, ask: Ask, answer: Answer) -> int:
        router = self.routers.get(ask.name)
        if router is None:
            raise Refusal(404, "router_not_found")
        lag = self.logs[router.source].head - router.cursor
        found = (answer.body.get("cursor"), answer.body.get("lag"))
        if found != (router.cursor, lag):
            raise Violation("reply", f"{ask}: cursor and lag {found}, not {(router.cursor, lag)}")
        return 0

    def _unroute(self, ask: Ask, answer: Answer) -> int:
        router = self.routers.pop(ask.name, None)
        self._same(ask, answer, {"router": ask.name, "deleted": router is not None})
        return self.batch if router is not None else 0

    # -- reading ---------------------------------------------------------------------------------

    def _diff(self, ask: Ask, answer: Answer) -> int:
        assert ask.query is not None
        log = self.logs.get(ask.name)
        if ask.page is not None:
            page = ask.page
        elif log is not None:
            page = log.read(ask.query, self.now)
        else:
            page = self._there(self.queues.get(ask.name)).read(ask.query, self.wall_offset)
        return self._check_page(ask, page, answer)

    def _check_page(self, ask: Ask, page: Page, answer: Answer) -> int:
        """Compare a page with the expected records; return the newest batch of what it shows."""
        query = ask.query
        assert query is not None
        records = answer.list("records")
        shown = page.wanted[: len(records)]
        is_all = len(records) == len(page.wanted)
        if records != [told for _, told, _ in shown] or (page.wanted and not records):
            raise Violation("reply", f"{ask}: {records}, of {page.wanted}"[:1500])
        if not is_all and len(records) < query.limit and query.most_bytes >= 1 << 20:
            raise Violation("reply", f"{ask}: {len(records)} records of {len(page.wanted)}")
        if len(records) > query.limit:
            raise Violation("reply", f"{ask}: {len(records)} records")
        if not is_all:
            self.reach("page cut short")
        cursor = answer.number("next_from_seq")
        last = shown[-1][0] if shown else page.after
        if not (cursor == page.head if is_all else last <= cursor < page.wanted[len(records)][0]):
            raise Violation("reply", f"{ask}: next_from_seq {cursor} after {last}")
        if page.tombstone is not None:
            self.reach(f"tombstone {page.tombstone['reason']}")
        wanted: Reply = {
            "topic": ask.name,
            "records": records,
            "next_from_seq": cursor,
            "head_seq": page.head,
            "earliest_seq": page.earliest,
            "caught_up": is_all,
            "tombstone": page.tombstone,
            "lag": page.head - cursor,
        }
        if not is_all and cursor == page.head:
            wanted["caught_up"] = True
        self._same(ask, answer, wanted)
        return max((batch for _, _, batch in shown), default=0)

    def _delete(self, ask: Ask, answer: Answer) -> int:
        before = ask.number("before_seq", -1)
        match = ask.text("match") or None
        log = self.logs.get(ask.name)
        if log is not None:
            deleted = log.erase(before, match, self.now)
            topic: Log | Queue = log
            count = len(log.rows)
        else:
            queue = self._there(self.queues.get(ask.name))
            deleted = queue.erase(before, match)
            topic = queue
            count = len(queue.jobs)
        wanted: Reply = {
            "topic": ask.name,
            "deleted": deleted,
            "earliest_seq": topic.earliest,
        }
        wanted |= {"head_seq": topic.head, "count": count, "bytes": topic.bytes}
        self._same(ask, answer, wanted)
        return self.batch if deleted and topic.config.is_written else 0

    # -- transactions and claim sets -------------------------------------------------------------

    def _about_txn(
        self, expected: Callable[[TopicsModel, Ask], tuple[Reply, int]], ask: Ask, answer: Answer
    ) -> int:
        wanted, batch = expected(self, ask)
        self._same(ask, answer, wanted)
        return batch

    def _claim_set(self, ask: Ask, answer: Answer) -> int:
        queue = self._queue(ask.name)
        claim_id = ask.text("claim_id")
        if (ask.name, claim_id) in self.txns.sets:
            return self._show_set(ask, answer)
        taken = sorted(self._take(queue, ask.number("max", 1)), key=lambda job: job.seq)
        claimed = answer.list("claimed")
        if [one["$seq"] for one in claimed] != [job.seq for job in taken]:
            raise Violation("reply", f"{ask}: {claimed}, not {taken}"[:1500])
        batch = self._lease(ask, queue, taken, claimed)
        if taken:
            self.reach("claim set")
            known = ClaimSet(ask.text("node"), {job.seq: job.lease_id for job in taken})
            self.txns.sets[ask.name, claim_id] = known
            self.sets_before[ask.name, claim_id] = known
        self._same_set(ask, answer, {"duplicate": False, "left_out": 0, "count": len(taken)})
        return batch

    def _show_set(self, ask: Ask, answer: Answer) -> int:
        self._queue(ask.name)
        if (ask.name, ask.text("claim_id")) not in self.txns.sets:
            raise Refusal(404, "claim_not_found")
        self._same_set(ask, answer, txns.show_set(self, ask, answer.list("claimed")))
        return 0

    def _same_set(self, ask: Ask, answer: Answer, wanted: Reply) -> None:
        queue = self.queues[ask.name]
        place: Reply = {"topic": ask.name, "claim_id": ask.text("claim_id")}
        shown: Reply = {"claimed": answer.body.get("claimed"), "ready": queue.counts()[0]}
        self._same(ask, answer, {**place, **shown, **wanted, **txns.LIMITS})

    # -- dead letters ----------------------------------------------------------------------------

    def _redrive(self, ask: Ask, answer: Answer) -> int:
        queue = self._queue(ask.name)
        if "seqs" in ask.fields:
            moved = redrives.redrive(self, queue, ask)
            self._same(ask, answer, moved.answer)
            return moved.batch
        most = ask.number("max", 1000)
        driven = 0
        for job in queue.dead()[:most]:
            job.buried = 0
            driven += 1
            self.reach("dead job driven back")
        log, seqs = self._letters(queue, most - driven)
        is_too_large = False
        for seq in seqs:
            assert log is not None
            content = log.rows[seq].content
            meta = {name: one for name, one in content.meta.items() if not name.startswith(MARK)}
            again = Content(content.data, meta, content.tag, content.node)
            if queue.config.is_exceeded_by(1, again.size(is_job=True)):
                # It stays a dead letter.
                is_too_large = True
                continue
            try:
                self._produce(queue, [again], "")
            except Refusal:
                if driven == 0:
                    raise
                break
            log.remove([seq])
            driven += 1
        if driven == 0 and is_too_large:
            raise Refusal(400, "record_too_large")
        if driven:
            self.reach("letters driven back")
        self._same(ask, answer, {"topic": ask.name, "redriven": driven})
        return self.batch if driven else 0

    def _purge(self, ask: Ask, answer: Answer) -> int:
        queue = self._queue(ask.name)
        most = ask.number("max", 1000)
        dead = queue.dead()[:most]
        for job in dead:
            del queue.jobs[job.seq]
        log, seqs = self._letters(queue, most - len(dead))
        if log is not None:
            log.remove(seqs)
        self._same(ask, answer, {"topic": ask.name, "purged": len(dead) + len(seqs)})
        is_written = log is not None and seqs and log.config.is_written
        return self.batch if dead or is_written else 0

    # -- waiting ---------------------------------------------------------------------------------

    def wait(self, ask: Ask, until: int) -> None:
        """Note that a request is not answered yet, and check that it has reason to wait."""
        ask.until = until
        log = self.logs.get(ask.name)
        if ask.verb == "diff" and log is not None:
            assert ask.query is not None
            page = log.read(ask.query, self.now)
            if page.wanted or page.tombstone is not None:
                raise Violation("waiters", f"{ask} waits although there is {page}"[:1500])
            log.waiting.append(ask)
        elif ask.verb == "claim" and ask.name in self.queues:
            queue = self.queues[ask.name]
            if self._take(queue, 1):
                raise Violation("waiters", f"{ask} waits but {queue.ready()} is ready"[:1500])
            ask.lease = max(100, ask.number("lease_ms", queue.config.lease))
            queue.waiting.append(ask)
        else:
            raise Violation("waiters", f"{ask} is not answered")

    def check_waiting(self, ask: Ask) -> None:
        """Check that a waiting request still has reason to wait."""
        if ask.is_over:
            raise Violation("waiters", f"{ask} should be answered")
        queue = self.queues.get(ask.name)
        if ask.verb == "claim" and queue is not None:
            ready = [job for job in queue.ready() if not queue.is_old(job, self.now)]
            if ready:
                raise Violation("waiters", f"{ask} waits although there is {ready[0]}")


def _fields(ask: Ask, *, is_new: bool) -> Reply:
    """Return how a new router is shown."""
    match = ask.fields.get("filter")
    told: object = None
    if match is not None:
        how = "Glob" if str(match).endswith("*") else "Eq"
        told = ["tag", how, match]
    return {
        "router": ask.name,
        "source": ask.fields["source"],
        "dest": ask.fields["dest"],
        "preserve_node": ask.fields.get("preserve_node", True),
        "preserve_tag": ask.fields.get("preserve_tag", True),
        "create_dest": ask.fields.get("create_dest", True),
        "filter": told,
        "allow_cycle": False,
        "guarantee": ask.fields.get("guarantee", "at_least_once"),
        "created": is_new,
    }
