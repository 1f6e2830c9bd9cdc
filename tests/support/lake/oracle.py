"""What the tables of a lake must hold, in plain Python from the list of events.

Goes over each job from its first row to its last, and knows nothing of batches, SQL or partitions.
Shares no code with the pipeline: where the two differ, one of them is wrong.
"""

import hashlib
import re
from collections import defaultdict
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import groupby
from math import ceil, floor
from operator import itemgetter
from typing import Any, Final

Row = dict[str, Any]
ALIVE: Final = {"ready", "delayed", "leased", "blocked"}
LOST: Final = {"expired", "stalled", "disconnected"}
FAILED: Final = {"failed", "buried", "dead_lettered"}


def ms(later: datetime, earlier: datetime) -> int:
    return max((later - earlier) // timedelta(milliseconds=1), 0)


def minute_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def error_parts(error: str | None) -> tuple[str | None, str | None, str | None]:
    """Return class, message and fingerprint of an error."""
    if error is None:
        return None, None, None
    head, colon, rest = error.partition(":")
    is_name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.$]{0,199}", head) is not None
    kind = head if colon and is_name and not rest.startswith("//") else None
    message = (rest if kind is not None else error).strip(" ")
    text = f"{kind or ''}:{message}"[:1000]
    text = re.sub(r'"[^"]*"', "?", text)
    text = re.sub(r"(?<![A-Za-z0-9])'[^']*'", "?", text)
    text = re.sub(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "?", text)
    text = re.sub(r"0x[0-9a-fA-F]+", "?", text)
    word = r"(?<![A-Za-z0-9_])[0-9a-fA-F]{8,}(?![A-Za-z0-9_])"
    text = re.sub(word, lambda m: "?" if re.search("[0-9]", m[0]) else m[0], text)
    text = re.sub(r"[0-9]+", "?", text)
    return kind, message, hashlib.sha256(text.encode()).hexdigest()[:16]


def percentile(values: list[int], share: str) -> float | None:
    if not values:
        return None
    values = sorted(values)
    place = (len(values) - 1) * Fraction(share)
    low, high = values[floor(place)], values[ceil(place)]
    return float(low + (high - low) * (place - floor(place)))


class Oracle:
    """The tables that some events make."""

    def __init__(self, events: list[Row], yard: str) -> None:
        self.yard = yard
        self.attempts: list[Row] = []
        self.jobs: list[Row] = []
        self._moves: list[tuple[str, datetime, str, int]] = []
        self._letters: list[tuple[Row, datetime]] = []
        events = [{**row, "queue": row["queue"] or ""} for row in events]
        events.sort(key=itemgetter("queue", "job_id", "seq"))
        for (queue, job_id), rows in groupby(events, itemgetter("queue", "job_id")):
            self._job({"yard": yard, "queue": queue, "job_id": job_id}, list(rows))

    def _job(self, key: Row, rows: list[Row]) -> None:  # noqa: C901, PLR0915  one life, in order
        put_at = size = origin = topic = begun = left_at = error_class = None
        state: str | None = None
        runs: dict[int, Row] = {}
        pending: list[Row] = []
        for row in rows:
            event, number = row["event"], row["deliveries"] or 0
            size = row["size"] if event == "enqueued" else size
            if put_at is None and row["enqueued_at"] is not None:
                put_at = row["enqueued_at"]
                self._moves.append((key["queue"], minute_of(put_at), "enqueued", 1))
            origin = origin or row["origin_id"]
            topic = row["letter_topic"] or topic
            begun = begun or row["claimed_at"]
            if row["error"] is not None:
                error_class = error_parts(row["error"])[0]
            ends_run = event not in ("claimed", "enqueued") and row["claimed_at"] is not None
            closes = self._closes(row, ends_run=ends_run)
            if closes is not None:
                for each in pending:
                    each.update(closes)
                pending = []
            if event == "claimed":
                runs[number] = self._begun(key, row, number)
                pending.append(runs[number])
            elif ends_run:
                run = runs.setdefault(number, self._begun(key, row, number))
                self._ended(run, row)
                pending = [each for each in pending if each is not run]
            # An end is of a job that was there.
            known = state if state is not None else self._before(row, ends_run=ends_run)
            now_alive = row["state"] in ALIVE
            if known is not None:
                change = int(now_alive) - int(known in ALIVE)
                self._moves.append((key["queue"], minute_of(row["ts"]), "backlog", change))
            if not now_alive and (state is None or state in ALIVE):
                left_at = row["finished_at"] or row["ts"]
                if row["state"] == "dead" and event != "dead_lettered":
                    self._letters.append(({**row, "reason": row["reason"] or event}, row["ts"]))
            if event == "dead_lettered":
                self._letters.append((row, row["ts"]))
            state = row["state"]
        for run in runs.values():
            run["size"] = size
        self.attempts += runs.values()
        is_over = state not in ALIVE
        self.jobs.append(
            {
                **key, "state": state, "attempts": max(row["deliveries"] or 0 for row in rows),
                "enqueued_at": put_at, "first_claimed_at": begun,
                "finished_at": left_at if is_over else None,
                "total_ms": ms(left_at, put_at) if is_over and left_at and put_at else None,
                "last_error_class": error_class, "origin_id": origin,
                "dead_letter_topic": topic, "last_seq": rows[-1]["seq"], "size": size,
            }
        )  # fmt: skip

    @staticmethod
    def _closes(row: Row, *, ends_run: bool) -> Row | None:
        event = row["event"]
        if event == "claimed":
            return {"finished_at": row["ts"], "outcome": "abandoned", "next_state": "ready"}
        if event in ("removed", "corrupt"):
            return {"finished_at": row["ts"], "outcome": event, "next_state": row["state"]}
        if event == "dead_lettered" and not ends_run:
            return {"finished_at": row["ts"], "outcome": "abandoned", "next_state": row["state"]}
        return None

    @staticmethod
    def _before(row: Row, *, ends_run: bool) -> str | None:
        """Return what the state was before the first row that is known."""
        if row["event"] == "enqueued":
            return "none"
        if ends_run or row["event"] in ("claimed", "dead_lettered", "failed"):
            return "ready"
        return None

    @staticmethod
    def _begun(key: Row, row: Row, number: int) -> Row:
        names = ("lease", "queue_seq", "client_id", "name", "family", "door", "worker")
        nothing = dict.fromkeys(
            ("priority", "enqueued_at", "available_at", "finished_at", "wait_ms", "run_ms",
             "outcome", "error_class", "error_message", "error_fingerprint", "next_state",
             "next_due_at")
        )  # fmt: skip
        return {
            **key, "attempt": number, **{name: row[name] for name in names}, **nothing,
            "claimed_at": row["claimed_at"], "first_seq": row["seq"], "last_seq": row["seq"],
        }  # fmt: skip

    @staticmethod
    def _ended(run: Row, row: Row) -> None:
        kind, message, fingerprint = error_parts(row["error"])
        run |= {
            "client_id": run["client_id"] or row["client_id"], "name": run["name"] or row["name"],
            "priority": -row["rank"], "enqueued_at": row["enqueued_at"],
            "available_at": row["available_at"], "finished_at": row["finished_at"],
            "wait_ms": ms(run["claimed_at"], row["available_at"]),
            "run_ms": ms(row["finished_at"], run["claimed_at"]), "outcome": row["event"],
            "error_class": kind, "error_message": message, "error_fingerprint": fingerprint,
            "next_state": row["state"], "next_due_at": row["due_at"], "last_seq": row["seq"],
        }  # fmt: skip

    def queue_minute(self) -> list[Row]:
        sums: dict[tuple[str, datetime], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for queue, minute, what, change in self._moves:
            sums[queue, minute][what] += change
        for row, at in self._letters:
            sums[row["queue"], minute_of(at)]["dead_lettered"] += 1
        begun, ended = defaultdict(list), defaultdict(list)
        for run in self.attempts:
            begun[run["queue"], minute_of(run["claimed_at"])].append(run)
            if run["finished_at"] is not None:
                ended[run["queue"], minute_of(run["finished_at"])].append(run)
        found = []
        for key in sorted({*sums, *begun, *ended}):
            row = self._minute(key, sums[key], begun[key], ended[key])
            if begun[key] or ended[key] or any(sums[key].values()):
                found.append(row)
        return found

    def _minute(
        self, key: tuple[str, datetime], sums: dict[str, int], begun: list[Row], ended: list[Row]
    ) -> Row:
        waits = [run["wait_ms"] for run in begun if run["wait_ms"] is not None]
        lasted = [run["run_ms"] for run in ended if run["run_ms"] is not None]
        outcomes = [run["outcome"] for run in ended]
        totals = [
            ms(run["finished_at"], run["enqueued_at"])
            for run in ended if run["outcome"] == "completed"
        ]  # fmt: skip
        failed = sum(each in FAILED for each in outcomes)
        retried = sum(run["next_state"] in ("ready", "delayed") for run in ended)
        row: Row = {
            "yard": self.yard, "queue": key[0], "minute": key[1], "enqueued": sums["enqueued"],
            "claimed": len(begun), "completed": outcomes.count("completed"), "failed": failed,
            "released": outcomes.count("released"),
            "expired": sum(each in LOST for each in outcomes),
            "abandoned": outcomes.count("abandoned"), "dead_lettered": sums["dead_lettered"],
            "retried": retried, "fail_rate": failed / len(ended) if ended else None,
            "retry_rate": retried / len(ended) if ended else None,
            "wait_max": float(max(waits)) if waits else None,
            "run_max": float(max(lasted)) if lasted else None,
            "wait_kll": bool(waits), "run_kll": bool(lasted), "backlog_change": sums["backlog"],
        }  # fmt: skip
        for subject, values in (("wait", waits), ("run", lasted), ("total", totals)):
            for share in ("50", "95", "99"):
                row[f"{subject}_p{share}"] = percentile(values, f"0.{share}")
        return row

    def worker_minute(self) -> list[Row]:
        begun, ended = defaultdict(list), defaultdict(list)
        for run in self.attempts:
            who = (run["worker"] or "", run["queue"])
            begun[*who, minute_of(run["claimed_at"])].append(run)
            if run["finished_at"] is not None:
                ended[*who, minute_of(run["finished_at"])].append(run)
        found = []
        for key in sorted({*begun, *ended}):
            outcomes = [run["outcome"] for run in ended[key]]
            lasted = [run["run_ms"] for run in ended[key] if run["run_ms"] is not None]
            found.append(
                {
                    "yard": self.yard, "worker": key[0], "queue": key[1], "minute": key[2],
                    "claimed": len(begun[key]), "completed": outcomes.count("completed"),
                    "failed": sum(each in FAILED for each in outcomes),
                    "lost": sum(each in LOST or each == "abandoned" for each in outcomes),
                    "busy_ms": sum(lasted), "utilisation": sum(lasted) / 60_000,
                    "run_p50": percentile(lasted, "0.50"), "run_p95": percentile(lasted, "0.95"),
                }
            )  # fmt: skip
        return found

    def dlq_reason_minute(self) -> list[Row]:
        found: dict[tuple[Any, ...], Row] = {}
        for row, at in sorted(self._letters, key=lambda each: each[0]["seq"]):
            kind, message, fingerprint = error_parts(row["error"])
            key = (row["queue"], row["reason"] or "", fingerprint or "", minute_of(at))
            line = found.setdefault(
                key,
                {
                    "yard": self.yard, "queue": key[0], "reason": key[1],
                    "error_fingerprint": key[2], "minute": key[3], "count": 0, "first_seen": at,
                    "last_seen": at, "error_class": kind, "error_message": message,
                    "sample_job_ids": [],
                },
            )  # fmt: skip
            line["count"] += 1
            line["first_seen"] = min(line["first_seen"], at)
            line["last_seen"] = max(line["last_seen"], at)
            line["sample_job_ids"] = [*line["sample_job_ids"], row["job_id"]][:5]
        return list(found.values())

    def slo(self, objectives: list[Row], window_days: int) -> list[Row]:
        """Return the table of objectives: `name, queues (regex), wait_ms or total_ms, target`."""
        counts: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
        for run in self.attempts:
            for objective in objectives:
                met = self._met(run, objective)
                if met is not None and re.fullmatch(objective["queues"], run["queue"]):
                    at, is_good = met
                    counts[run["queue"], objective["name"], hour_of(at)][0 if is_good else 1] += 1
        targets = {each["name"]: each["target"] for each in objectives}
        found = []
        for (queue, name, hour), (good, bad) in counts.items():
            allowed = 1 - targets[name]

            def share(hours: int, queue: str = queue, name: str = name, hour: Any = hour) -> float:
                first = hour - timedelta(hours=hours - 1)
                both = [c for (q, n, h), c in counts.items()
                        if q == queue and n == name and first <= h <= hour]  # fmt: skip
                return sum(c[1] for c in both) / sum(sum(c) for c in both)

            found.append(
                {
                    "yard": self.yard, "queue": queue, "objective": name, "hour_at": hour,
                    "good": good, "bad": bad, "ratio": good / (good + bad),
                    "target": targets[name], "burn_1h": share(1) / allowed,
                    "burn_6h": share(6) / allowed,
                    "budget_left": 1 - share(window_days * 24) / allowed,
                }
            )  # fmt: skip
        return found

    @staticmethod
    def _met(run: Row, objective: Row) -> tuple[datetime, bool] | None:
        if "wait_ms" in objective:
            if run["wait_ms"] is None:
                return None
            return run["claimed_at"], run["wait_ms"] < objective["wait_ms"]
        if run["outcome"] == "completed":
            total = ms(run["finished_at"], run["enqueued_at"])
            return run["finished_at"], total < objective["total_ms"]
        if run["outcome"] in FAILED | LOST and run["next_state"] in ("dead", "gone"):
            return run["finished_at"], False
        return None
