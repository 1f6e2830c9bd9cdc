"""What jobs and logs need and no record describes: refused at a start, filled in by a repair.

A job names its queue and its policy by number. If the record behind a number is lost, the job is
whole all the same: a repair gives the queue a name that says so, and the policy its defaults.

The records of a log are whole without its head too. There a start cannot tell loss from deletion,
for compaction may take the head of a deleted log before its records. So only a repair that has
replaced files looks for such logs, and no server starts before it has (`journal/repair`). It
gives each a name and default settings, even if it is one that was deleted, and tells so.
"""

from typing import final

from mypy_extensions import i64

from jobyard.engine.jobs.put import policy_key
from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged, StorageFull, YardFull
from jobyard.journal.journal import Journal
from jobyard.journal.repair.salvage import UNFINISHED, is_unfinished
from jobyard.journal.storage import Storage
from jobyard.model.entry import CONFIG, POLICY
from jobyard.model.policy import Policy
from jobyard.model.queue import Queue
from jobyard.model.topic.config import LOG, decode_config
from jobyard.model.topic.log import LogTopic

_WHY = "jobs refer to a {} whose record is lost; `jobyard repair` gives them a stand-in"
_INTERRUPTED = "a repair was interrupted; run `jobyard repair` again"


@final
class Gaps:
    """Queues and policies of living jobs, and logs of records, that no record describes."""

    def __init__(self) -> None:
        self.is_filled: bool = False
        self._is_interrupted: bool = False
        self.queues: list[Queue] = []
        self.policies: list[Policy] = []
        # Jobs of which nothing is known but their end; kept only where gaps are filled.
        self.killed: set[int] = set()
        # Whether logs are looked at too; those that lost their names, those that lost their
        # settings, and names of which only settings are left.
        self.fills_logs: bool = False
        self.logs: list[LogTopic] = []
        self.unset_logs: list[LogTopic] = []
        self.empty_names: list[str] = []

    def are_any(self) -> bool:
        """Tell whether anything was filled in that must be written down."""
        return len(self.queues) + len(self.policies) + len(self.logs) + len(self.unset_logs) > 0

    def prepare(self, storage: Storage, *, is_filled: bool) -> None:
        """Say before anything is read whether gaps are to be filled."""
        is_repairing = is_unfinished(storage)
        self.is_filled = is_filled
        self.fills_logs = is_filled and is_repairing
        self._is_interrupted = is_repairing and not is_filled

    def look(self, yard: Yard, queues: dict[int, Queue], policies: dict[int, Policy]) -> None:
        """Find the gaps, and fill them if that was asked for; else raise JournalDamaged."""
        # A queue that ended may have left dead records and no name; it is not missed.
        nameless = [queue for queue in queues.values() if not queue.name]
        if nameless:
            used = {int(job.queue.number) for job in yard.jobs.all()}
            self.queues = [queue for queue in nameless if queue.number in used]
        self.policies = [one for one in policies.values() if one.jobs_count > 0 and not one.text]
        if self.is_filled:
            self._fill(yard, queues)
        elif self.policies:
            raise JournalDamaged("journal", 0, _WHY.format("policy"))
        elif self.queues:
            raise JournalDamaged("journal", 0, _WHY.format("queue"))
        elif self._is_interrupted:
            # What it lost may be the heads of logs.
            raise JournalDamaged(UNFINISHED, 0, _INTERRUPTED)

    def _fill(self, yard: Yard, queues: dict[int, Queue]) -> None:
        taken = {queue.name for queue in queues.values()} | _topic_names(yard)
        self.queues += _namesakes(yard)
        for queue in self.queues:
            queue.name = _free_name(queue.number, taken)
            # Its number must not be given to another.
            yard.journal.next_queue = max(yard.journal.next_queue, queue.number + 1)
        for policy in self.policies:
            policy.fill(Policy(policy.number).encode())
            yard.policies.setdefault(policy.text, policy)
            yard.next_policy = max(yard.next_policy, policy.number + 1)

    def name_logs(self, yard: Yard, logs: list[LogTopic], now_ms: i64) -> None:
        """Give names to those of all logs that have records and lost theirs."""
        taken = {log.name for log in logs} | set(yard.queues) | _topic_names(yard)
        for log in logs:
            if log.name:
                continue
            log.kill_below(log.floor())
            if log.count > 0:
                log.name = _free_name(log.number, taken)
                log.incarnation = yard.stamp(now_ms)
                self.logs.append(log)

    def look_at_settings(self, yard: Yard) -> None:
        """Find logs without settings, and settings without a log."""
        entries = yard.journal.entries
        for log in yard.logs.values():
            if not entries.has((CONFIG, log.name.encode())):
                self.unset_logs.append(log)
        for (kind, key), entry in entries.items():
            if kind != CONFIG or entry.is_gone or key.decode() in yard.logs:
                continue
            if decode_config(entry.value).type == LOG:
                self.empty_names.append(key.decode())

    def append(self, journal: Journal) -> None:
        """Write the stand-ins down, so that the next start finds nothing missing.

        StorageFull if there is no room; what was written until then is found by the next attempt.
        """
        for queue in self.queues:
            journal.append_name(queue, queue.name.encode())
        for policy in self.policies:
            journal.set_entry(POLICY, policy_key(policy.number), policy.text)
        for log in self.logs:
            journal.append_head(log)
        for log in self.unset_logs:
            # Without an entry nothing could tell later that the log was deleted.
            try:
                journal.set_entry(CONFIG, log.name.encode(), log.config.encode())
            except YardFull as error:
                raise StorageFull(f"the settings of {log.name}") from error


def _topic_names(yard: Yard) -> set[str]:
    """Return all names that settings of a topic are known for, also those that were dropped."""
    return {entry.key.decode() for entry in yard.journal.entries.values() if entry.kind == CONFIG}


def _free_name(number: i64, taken: set[str]) -> str:
    """Return a name that says that there was another, and take it."""
    name = f"lost-{number}"
    while name in taken:
        name += "-again"
    taken.add(name)
    return name


def _namesakes(yard: Yard) -> list[Queue]:
    """Return queues whose name belongs to a newer one: only lost deaths of their jobs keep them."""
    newest: dict[str, Queue] = {}
    older: dict[int, Queue] = {}
    for job in yard.jobs.all():
        queue = job.queue
        known = newest.get(queue.name)
        if known is None or known.number < queue.number:
            newest[queue.name] = queue
        if known is not None and known is not newest[queue.name]:
            older[known.number] = known
        elif newest[queue.name] is not queue:
            older[queue.number] = queue
    return [queue for queue in older.values() if queue.name]
