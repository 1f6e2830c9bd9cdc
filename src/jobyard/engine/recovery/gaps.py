"""Records that jobs and logs refer to but that are lost: a start refuses, a repair replaces them.

A job refers to its queue and its policy by number. If the record of that number is lost, the job
itself is still whole: a repair names the queue `lost-N` and gives the policy its defaults.

The records of a log are whole without its head, too. Here a start cannot tell loss from deletion,
because compaction may remove the head of a deleted log before its records. So only a repair that
has replaced files looks for such logs, and no server starts until it has (`journal/repair`). The
repair gives each log a name and default settings, even a deleted one, and reports it.
"""

from typing import final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged, StorageFull, YardFull
from jobyard.journal.journal import Journal
from jobyard.journal.repair.salvage import UNFINISHED, is_unfinished
from jobyard.journal.storage import Storage
from jobyard.model.entry import EntryKind
from jobyard.model.policy import Policy, policy_key
from jobyard.model.queue import Queue
from jobyard.model.topic.config import LOG, decode_config
from jobyard.model.topic.log import LogTopic

_WHY = "jobs refer to a {} whose record is lost; run `jobyard repair` to replace it"
_INTERRUPTED = "a repair was interrupted; run `jobyard repair` again"


@final
class Gaps:
    """Queues and policies of live jobs, and logs with records, whose own records are lost."""

    def __init__(self) -> None:
        self.is_filled: bool = False
        self._is_interrupted: bool = False
        self.queues: list[Queue] = []
        self.policies: list[Policy] = []
        # Jobs whose end is the only record found; collected only if gaps are filled.
        self.killed: set[int] = set()
        # Whether logs are checked too; logs without a name, logs without settings, and names of
        # logs of which only the settings are left.
        self.fills_logs: bool = False
        self.logs: list[LogTopic] = []
        self.unset_logs: list[LogTopic] = []
        self.empty_names: list[str] = []

    def are_any(self) -> bool:
        """Return whether anything was replaced that must be appended to the journal."""
        return len(self.queues) + len(self.policies) + len(self.logs) + len(self.unset_logs) > 0

    def prepare(self, storage: Storage, *, is_filled: bool) -> None:
        """Set, before anything is read, whether gaps are filled or refused."""
        is_repairing = is_unfinished(storage)
        self.is_filled = is_filled
        self.fills_logs = is_filled and is_repairing
        self._is_interrupted = is_repairing and not is_filled

    def look(self, yard: Yard, queues: dict[int, Queue], policies: dict[int, Policy]) -> None:
        """Find the gaps, and fill them if that was requested; otherwise raise JournalDamaged."""
        # A deleted queue may have left dead records and no name; that is not a gap.
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
            # The heads of logs may be lost, which a start cannot detect.
            raise JournalDamaged(UNFINISHED, 0, _INTERRUPTED)

    def _fill(self, yard: Yard, queues: dict[int, Queue]) -> None:
        taken = {queue.name for queue in queues.values()} | _topic_names(yard)
        self.queues += _same_named(yard)
        for queue in self.queues:
            queue.name = _free_name(queue.number, taken)
            # No other queue may get its number.
            yard.journal.next_queue = max(yard.journal.next_queue, queue.number + 1)
        for policy in self.policies:
            policy.fill(Policy(policy.number).encode())
            yard.policies.setdefault(policy.text, policy)
            yard.next_policy = max(yard.next_policy, policy.number + 1)

    def name_logs(self, yard: Yard, logs: list[LogTopic], now_ms: i64) -> None:
        """Give a name to each log that has records but has lost its name."""
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
            if not entries.has((EntryKind.CONFIG, log.name.encode())):
                self.unset_logs.append(log)
        for (kind, key), entry in entries.items():
            if kind != EntryKind.CONFIG or entry.is_gone or key.decode() in yard.logs:
                continue
            if decode_config(entry.value).type == LOG:
                self.empty_names.append(key.decode())

    def append(self, journal: Journal) -> None:
        """Append the replacements, so that the next start finds nothing missing.

        Raises StorageFull if there is no room; the next attempt finds what was written until then.
        """
        for queue in self.queues:
            journal.append_name(queue, queue.name.encode())
        for policy in self.policies:
            journal.set_entry(EntryKind.POLICY, policy_key(policy.number), policy.text)
        for log in self.logs:
            journal.append_head(log)
        for log in self.unset_logs:
            # Without an entry, a later deletion of the log could not be recorded.
            try:
                journal.set_entry(EntryKind.CONFIG, log.name.encode(), log.config.encode())
            except YardFull as error:
                raise StorageFull(f"the settings of {log.name}") from error


def _topic_names(yard: Yard) -> set[str]:
    """Return all names with settings of a topic, including topics that were dropped."""
    return {
        entry.key.decode()
        for entry in yard.journal.entries.values()
        if entry.kind == EntryKind.CONFIG
    }


def _free_name(number: i64, taken: set[str]) -> str:
    """Return a free name that shows that the original is lost, and add it to `taken`."""
    name = f"lost-{number}"
    while name in taken:
        name += "-again"
    taken.add(name)
    return name


def _same_named(yard: Yard) -> list[Queue]:
    """Return queues whose name a newer queue has.

    Such a queue had no jobs left; it is there only because the records of their end are lost.
    """
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
