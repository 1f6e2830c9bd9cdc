"""Both rows of a run show the same worker, lease, holder, door, family and count of deliveries."""

import uuid
from collections.abc import Callable

import pytest

from jobyard.engine.state.history import read_history
from jobyard.model.topic.history_row import CLAIMED, ENQUEUED, HistoryRow
from jobyard.protocols.session import UNKNOWN_ADDRESS, Peer
from tests.support.clients.beanstalk import BeanstalkClient
from tests.support.clients.exports import exported
from tests.support.doors.crossing import DOORS, QUEUE, Crossing
from tests.support.site.site import ALL_HISTORY
from tests.support.site.storage import MemoryStorage

ADDRESS = "192.0.2.7:4711"

# Takes a job and ends its run; returns the name of the worker.
Run = Callable[[Crossing], str]


class Distant(Peer):
    """A client with an address."""

    def addresses(self) -> tuple[str, str]:
        """Return the address of the client."""
        return ADDRESS, UNKNOWN_ADDRESS


@pytest.fixture
def doors() -> Crossing:
    """All doors over a yard with history."""
    found = Crossing(MemoryStorage(), window=ALL_HISTORY)
    found.api.put(QUEUE, type="queue")
    return found


def rows_of(doors: Crossing) -> list[HistoryRow]:
    doors.commit()
    return read_history(doors.yard, 0, 1000).rows


def run_of(row: HistoryRow) -> tuple[object, ...]:
    who = (int(row.lease), int(row.holder), row.worker, row.door, row.family)
    return (*who, int(row.deliveries), int(row.queue_seq))


def put(doors: Crossing, family: str) -> None:
    if family == "beanstalk":
        doors.bean.put("1")
    elif family == "bunqueue":
        doors.bun.push(QUEUE, 1, name="bill", jobId="order-7")
    elif family == "glide-mq":
        doors.glide.add(data="1", name="bill")
    else:
        doors.api.write(QUEUE, 1)


def beanstalk(doors: Crossing) -> str:
    number, _ = doors.bean.reserve()
    assert doors.bean.ask(f"delete {number}") == "DELETED"
    return "beanstalk"


def beanstalk_from_afar(doors: Crossing) -> str:
    client = BeanstalkClient(doors, doors.beanstalk_door)
    client.session.peer = Distant()
    client.say(b"watch %b\r\n" % QUEUE.encode())
    number = client.say(b"reserve\r\n").split()[1]
    assert client.say(b"delete %b\r\n" % number) == b"DELETED\r\n"
    return f"beanstalk:{ADDRESS}"


def bunqueue(doors: Crossing) -> str:
    job = doors.bun.pull(QUEUE)
    doors.bun.ok("ACK", id=job["id"])
    return "bunqueue"


def bunqueue_owner(doors: Crossing) -> str:
    job_id, token = doors.bun.lock(QUEUE)
    doors.bun.ok("ACK", id=job_id, token=token)
    return "me"


def bunqueue_worker(doors: Crossing) -> str:
    other = doors.bunqueue()
    other.ok("RegisterWorker", name="mailers", queues=[QUEUE], workerId="mailer-7")
    job = other.pull(QUEUE)
    other.ok("ACK", id=job["id"])
    return "mailer-7"


def bunqueue_http(doors: Crossing) -> str:
    answer = doors.api.ask("POST", f"/queues/{QUEUE}/jobs/pull-batch", {"count": 1}).json
    job_id = answer["jobs"][0]["id"]
    assert doors.api.ask("POST", f"/jobs/{job_id}/ack", {}).status == 200
    return "bunqueue"


def topics(doors: Crossing) -> str:
    seqs = [one["$seq"] for one in doors.api.claim(QUEUE, node="n1")["claimed"]]
    assert doors.api.post(f"{QUEUE}/ack", {"node": "n1", "seqs": seqs}).json["acked"] == 1
    return "n1"


RUNS: list[Run] = [
    *[beanstalk, beanstalk_from_afar, bunqueue, bunqueue_owner],
    *[bunqueue_worker, bunqueue_http, topics],
]


@pytest.mark.parametrize("family", DOORS)
@pytest.mark.parametrize("run", RUNS)
def test_both_rows_of_a_run_name_its_worker(doors: Crossing, run: Run, family: str) -> None:
    put(doors, family)
    worker = run(doors)
    entered, claimed, ended = rows_of(doors)
    assert (entered.event, claimed.event, ended.event) == (ENQUEUED, CLAIMED, "completed")
    assert run_of(claimed) == run_of(ended)
    assert claimed.worker == worker
    assert claimed.family == entered.family == family.replace("-", "")
    assert claimed.door == run.__name__.partition("_")[0]
    assert claimed.queue_seq == entered.queue_seq
    named = {"bunqueue": ("order-7", "bill"), "glide-mq": ("", "bill")}.get(family, ("", ""))
    assert (entered.client_id, entered.name) == (ended.client_id, ended.name) == named


def test_a_claim_that_waited_is_shown_under_its_node(doors: Crossing) -> None:
    waiting = doors.connect()
    waiting.send("POST", f"/v0/topics/{QUEUE}/claim", {"node": "n2", "wait_ms": 9000})
    put(doors, "topics")
    came = waiting.hear()
    assert came is not None
    seqs = [one["$seq"] for one in came.json["claimed"]]
    doors.api.post(f"{QUEUE}/ack", {"node": "n2", "seqs": seqs})
    _, claimed, ended = rows_of(doors)
    assert run_of(claimed) == run_of(ended)
    assert claimed.worker == "n2"


def test_an_entry_that_another_consumer_takes_over_stays_the_run_of_the_first(
    doors: Crossing,
) -> None:
    put(doors, "glide-mq")
    ((job_id, entry),) = doors.glide.read("w1")
    key = doors.glide.key("stream")
    doors.glide.client.ask("XCLAIM", key, "workers", "w2", 0, entry)
    assert doors.glide.complete(job_id, entry)
    _, claimed, ended = rows_of(doors)
    assert run_of(claimed) == run_of(ended)
    assert (claimed.worker, claimed.door) == ("w1", "glidemq")


def test_a_made_id_of_bunqueue_holds_the_number_of_its_rows(doors: Crossing) -> None:
    doors.api.put(QUEUE, type="queue")
    for _ in range(3):
        made = str(doors.bun.push(QUEUE, 1))
        row = rows_of(doors)[-1]
        number = uuid.UUID(made).int
        # As docs/topics.md says.
        assert row.job_id == (number >> 64 & 0xFFF) << 52 | (number & (1 << 62) - 1) >> 10
        assert not row.client_id


def test_a_lease_without_an_end_shows_none(doors: Crossing) -> None:
    put(doors, "glide-mq")
    doors.glide.read("w1")
    put(doors, "topics")
    doors.api.claim(QUEUE, node="n1", lease_ms=5000)
    claimed = [row for row in rows_of(doors) if row.event == CLAIMED]
    assert [int(row.ttl_ms) for row in claimed] == [0, 5000]
    shown = [one["data"] for one in doors.api.diff("_events")["records"]]
    assert [one.get("ttl_ms") for one in shown if one["event"] == CLAIMED] == [None, 5000]
    made = exported(doors, "_events/export?event=claimed&columns=ttl_ms")
    assert made.rows == [{"ttl_ms": None}, {"ttl_ms": 5000}]
