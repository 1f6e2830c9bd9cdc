"""What jobs refer to and no record describes: refused at a start, filled in by a repair.

A job names its queue and its policy by number. If the record behind a number is lost, the job is
whole all the same: a repair gives the queue a name that says so, and the policy its defaults.
"""

from typing import final

from jobyard.engine.put import policy_key
from jobyard.engine.yard import Yard
from jobyard.errors import JournalDamaged
from jobyard.journal.journal import Journal
from jobyard.model.entry import POLICY
from jobyard.model.policy import Policy
from jobyard.model.queue import Queue

_WHY = "jobs refer to a {} whose record is lost; `jobyard repair` gives them a stand-in"


@final
class Gaps:
    """Queues and policies of living jobs that no record describes."""

    def __init__(self) -> None:
        self.is_filled: bool = False
        self.queues: list[Queue] = []
        self.policies: list[Policy] = []
        # Jobs of which nothing is known but their end; kept only where gaps are filled.
        self.killed: set[int] = set()

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

    def _fill(self, yard: Yard, queues: dict[int, Queue]) -> None:
        taken = {queue.name for queue in queues.values()}
        self.queues += _namesakes(yard)
        for queue in self.queues:
            name = f"lost-{queue.number}"
            while name in taken:
                name += "-again"
            taken.add(name)
            queue.name = name
            # Its number must not be given to another.
            yard.journal.next_queue = max(yard.journal.next_queue, queue.number + 1)
        for policy in self.policies:
            policy.fill(Policy(policy.number).encode())
            yard.policies.setdefault(policy.text, policy)
            yard.next_policy = max(yard.next_policy, policy.number + 1)

    def append(self, journal: Journal) -> None:
        """Write the stand-ins down, so that the next start finds nothing missing."""
        for queue in self.queues:
            journal.append_name(queue, queue.name.encode())
        for policy in self.policies:
            journal.set_entry(POLICY, policy_key(policy.number), policy.text)


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
