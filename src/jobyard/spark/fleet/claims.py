"""Calls about the claim sets of one worker: begin as the newest one, claim, read, and extend.

Of two drivers of one name the later has the greater epoch, and the server refuses the earlier from
then on. Every call may be repeated: an id claims once, and an extension counts from its call.
"""

import secrets
import time
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple, final

import pyarrow as pa

from jobyard.client import Answer, JobyardError, YardClient
from jobyard.client.answer import not_a_yard
from jobyard.client.calls import topic_path
from jobyard.client.errors import Code, bad_option
from jobyard.client.txns import Transactions, stage_path
from jobyard.spark.fleet.offsets import ClaimOffset
from jobyard.spark.fleet.options import ClaimOptions

FENCED: Final = "fenced"
CLAIM_NOT_FOUND: Final = "claim_not_found"
_IN_PROGRESS: Final = "in_progress"
_INCOMPLETE: Final = "incomplete"
# A dead letter, the most that the end of a run counts in a commit.
ROWS_PER_JOB: Final = 20
# Room for numbers drawn in one millisecond: two drivers that begin in the same one differ.
_DRAWN: Final = 1024
# Drivers that begin at the same time, each time another one with a greater epoch.
_BEGIN_MAX: Final = 20
_PAUSE_S: Final = 0.25
# A claim that another connection is making, in slices of a few milliseconds.
_MAKING_MAX: Final = 40


class ClaimedSet(NamedTuple):
    """What a claim has found."""

    seqs: list[int]
    # Whether the set was claimed before.
    is_known: bool
    # Jobs of the set that are no longer leased to this worker.
    left_out: int
    ready: int


@final
class WorkerClaims:
    """The claims of one driver."""

    def __init__(
        self,
        client: YardClient,
        options: ClaimOptions,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._client = client
        self._options = options
        self._pause = pause
        self.epoch = 0

    def begin(self) -> int:
        """Become the newest driver of the worker; return the epoch, which shuts out older ones.

        An epoch is the time, so it is greater than that of a driver that the server has forgotten,
        or a little more than the greatest one that the server remembers, if that is of a clock
        that goes before this one.
        """
        epoch = int(time.time() * 1000) * _DRAWN + secrets.randbelow(_DRAWN)
        for _ in range(_BEGIN_MAX):
            try:
                self._announce(epoch)
            except JobyardError as error:
                if error.code != FENCED:
                    raise
                epoch = _whole(error.detail.get("epoch")) + 1 + secrets.randbelow(_DRAWN)
                continue
            self.epoch = epoch
            return epoch
        raise fenced_out(
            JobyardError(FENCED, "other drivers with this name begin all the time"),
            self._options.worker,
        )

    def _announce(self, epoch: int) -> None:
        """Tell the server the epoch, with a commit that changes nothing else."""
        queue = self._options.queue
        part = {"topic": queue, "part": 0, "attempt": 0, "chunks": 1, "rows": 1}
        body = {"parts": [part], "worker": self._options.worker, "epoch": epoch}
        try:
            # Nothing is staged under a name that was just drawn.
            Transactions(self._client).commit(f"begin:{uuid.uuid4()}", body)
        except JobyardError as error:
            if error.code != _INCOMPLETE:
                raise explained(error, queue) from None

    def check_size(self) -> None:
        """Refuse a batch that no commit of the server can end, whatever becomes of its jobs."""
        batch, queue = self._options.batch, self._options.queue
        txn = f"probe:{uuid.uuid4()}"
        body = {"topic": queue, "part": 0, "attempt": 0, "chunk": 0, "records": [{"data": None}]}
        try:
            staged = self._client.ask(
                "POST", stage_path(txn), {**body, "strict": True}, is_repeatable=True
            )
            Transactions(self._client).abort(txn)
        except JobyardError as error:
            raise explained(error, queue) from None
        rows_max = staged.number("rows_max")
        if batch * ROWS_PER_JOB > rows_max:
            raise bad_option(
                "batch",
                f"{batch} jobs may be {batch * ROWS_PER_JOB} rows of a commit, where a dead letter "
                f"counts {ROWS_PER_JOB}, and the server commits at most {rows_max}",
                f"Set batch to at most {rows_max // ROWS_PER_JOB}, or start the server with a "
                "greater --txn-rows-max.",
            )

    def claim(self, at: ClaimOffset, most: int, wait_ms: int) -> ClaimedSet:
        """Claim a set, or find it claimed; no jobs if none are ready within `wait_ms`."""
        options = self._options
        body = {
            "node": options.worker, "claim_id": at.claim_id, "max": most,
            "lease_ms": options.lease_ms, "wait_ms": wait_ms,
            "worker": options.worker, "epoch": self.epoch, "strict": True,
        }  # fmt: skip
        path = topic_path(options.queue, "claim")
        for _ in range(_MAKING_MAX):
            try:
                answer = self._client.ask("POST", path, body, is_repeatable=True, wait_ms=wait_ms)
            except JobyardError as error:
                if error.code != _IN_PROGRESS:
                    raise self._explained(error) from None
                self._pause(_PAUSE_S)
                continue
            return _claimed(answer)
        raise JobyardError(_IN_PROGRESS, f"claim {at.claim_id} is being made all the time")

    def extend(self, at: ClaimOffset) -> int:
        """Extend what is left of a set; return how many jobs that are."""
        options = self._options
        body = {
            "lease_ms": options.lease_ms,
            "worker": options.worker, "epoch": self.epoch, "strict": True,
        }  # fmt: skip
        path = topic_path(options.queue, "claims", at.claim_id, "extend")
        try:
            return self._client.ask("POST", path, body, is_repeatable=True).number("extended")
        except JobyardError as error:
            if error.code == CLAIM_NOT_FOUND:
                return 0
            raise self._explained(error) from None

    def ready(self) -> int:
        """Return how many jobs are ready now."""
        try:
            answer = self._client.get(topic_path(self._options.queue))
        except JobyardError as error:
            raise explained(error, self._options.queue) from None
        counts = answer.fields.get("queue")
        if not isinstance(counts, dict):
            raise bad_option(
                "queue", f"{self._options.queue} is a log, which has no jobs to claim",
                "Name a queue, or read the log with the option topic.",
            )  # fmt: skip
        return Answer(counts, answer.url, answer.status).number("ready")

    def _explained(self, error: JobyardError) -> JobyardError:
        if error.code == FENCED:
            return fenced_out(error, self._options.worker)
        return explained(error, self._options.queue)


def read_set(client: YardClient, at: ClaimOffset, retries_max: int) -> pa.RecordBatch:
    """Return the jobs of a set that are still leased, in rising order of seqs."""
    path = topic_path(at.queue, "claims", at.claim_id)
    failures = 0
    while True:
        try:
            stream = client.stream(path, {})
            data = stream.read()
            stream.finish()
            break
        except JobyardError as error:
            failures += 1
            if error.code != Code.CUT_OFF or failures > retries_max:
                raise explained(error, at.queue) from None
    try:
        table = pa.ipc.open_stream(data).read_all()
    except pa.ArrowInvalid as fault:
        raise not_a_yard(client.url, 200, f"its claim cannot be read: {fault}") from None
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def fenced_out(error: JobyardError, worker: str) -> JobyardError:
    """Return the error of a driver that another one has replaced."""
    return JobyardError(
        FENCED,
        f"another driver has begun as worker {worker}, so this one stops; its jobs go to others "
        "when their leases end",
        url=error.url,
        status=error.status,
        option="worker",
        remedy="Give each query a worker of its own, or run it once.",
    ).within(topic=error.topic)


def explained(error: JobyardError, queue: str) -> JobyardError:
    """Return a refusal with what to do about it."""
    remedies = {
        "topic_not_found": "Create it first: PUT /v0/topics/NAME with the type queue.",
        "not_a_queue": "Name a queue, or read the log with the option topic.",
        "claim_differs": "Another program has used this id for its own claim: change the worker.",
        "shutting_down": "The server is draining; start the query again after that.",
    }
    return error.within(topic=queue, option="queue", remedy=remedies.get(error.code, ""))


def _claimed(answer: Answer) -> ClaimedSet:
    seqs = [one.number("$seq") for one in answer.objects("claimed")]
    return ClaimedSet(
        seqs,
        is_known=answer.is_set("duplicate"),
        left_out=answer.number("left_out"),
        ready=answer.number("ready"),
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
