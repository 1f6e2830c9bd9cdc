"""Keys of a commit that is prepared over turns, while others write to its topics."""

from collections.abc import Callable

import pytest

from jobyard.engine.logs.logs import open_log, set_config
from jobyard.engine.topics.commit_targets import TargetKeysFull
from jobyard.engine.topics.staged_rows import ChunkDraft, StagedRow
from jobyard.engine.topics.stages import stage
from jobyard.engine.topics.topic_queue import open_topic_queue
from jobyard.engine.topics.topic_setup import set_queue_config
from jobyard.engine.topics.transactions import Commit, CommitPart, CommitRequest
from jobyard.model.topic.config import QUEUE, TopicConfig
from jobyard.model.topic.key_table import digest_of
from jobyard.model.topic.txn import ChunkPlace
from tests.support.engine.record_keys import produce_keyed, write_keyed
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

ROWS = 400
WINDOW_MS = 10_000

Change = Callable[[OpenYard], None]


def config_of_kind(kind: str) -> TopicConfig:
    config = TopicConfig()
    config.type = kind
    config.key_window_ms = WINDOW_MS
    return config


class Unhurried:
    """A yard with a log and a queue, and a commit to both that does a little at a time."""

    def __init__(self) -> None:
        self.site = OpenYard(MemoryStorage())
        yard, now_ms = self.site.yard, self.site.now_ms
        self.log = open_log(yard, "log", config_of_kind("log"), now_ms)
        self.queue = open_topic_queue(yard, "q", config_of_kind(QUEUE), now_ms)
        request = CommitRequest("t")
        for topic in ("log", "q"):
            draft = ChunkDraft()
            for number in range(ROWS):
                row = StagedRow(b"%d" % number, b"", "", "")
                row.key_digest = digest_of(f"k{number}")
                draft.add(row)
            stage(yard, "t", ChunkPlace(topic, 0, 0, 0), draft, now_ms)
            request.parts.append(CommitPart(topic, 0, 0, 1, ROWS))
        self.done = Commit(yard, request)

    def write(self, *numbers: int) -> None:
        """Write records with some of the keys of the commit, as another client."""
        records = [("other", f"k{number}") for number in numbers]
        write_keyed(self.site, self.log, *records)
        produce_keyed(self.site, self.queue, *records)

    def counts(self) -> tuple[int, int]:
        """Return how many records and jobs there are."""
        return int(self.log.count), int(self.queue.jobs_count())

    def finish(self) -> None:
        """Do what is left of the commit, and check the books."""
        while self.done.step(20, self.site.now_ms) >= 20:
            pass
        recount(self.site.yard)


def read_all(run: Unhurried) -> None:
    """Do so much of the commit that all records are read, and it has not entered."""
    for _ in range(10_000):
        assert run.done.step(20, run.site.now_ms) >= 20
        if all(target.is_read() for target in run.done._targets):
            return
    raise AssertionError("the records are never read")


def test_a_key_that_became_known_while_the_commit_was_prepared() -> None:
    run = Unhurried()
    read_all(run)
    run.write(3, 5)
    run.finish()
    assert run.counts() == (ROWS, ROWS)
    assert run.done.answer.count('"written":398,"duplicates":2') == 2


def test_a_key_that_expired_while_the_commit_was_prepared() -> None:
    run = Unhurried()
    run.write(3, 5)
    read_all(run)
    run.site.now_ms += WINDOW_MS
    run.finish()
    assert run.counts() == (ROWS + 2, ROWS + 2)
    assert run.done.answer.count(f'"written":{ROWS},"duplicates":0') == 2


def test_a_commit_between_two_others_with_the_same_keys() -> None:
    run = Unhurried()
    run.write(*range(0, ROWS, 2))
    read_all(run)
    run.write(*range(1, ROWS, 2))
    run.finish()
    assert run.counts() == (ROWS, ROWS)
    assert run.done.answer.count(f'"written":0,"duplicates":{ROWS}') == 2


@pytest.mark.parametrize("name", ["log", "q"])
def test_a_limit_that_became_smaller_refuses_the_commit(name: str) -> None:
    run = Unhurried()
    read_all(run)
    config = config_of_kind("log" if name == "log" else QUEUE)
    config.key_max = ROWS - 1
    if name == "log":
        set_config(run.site.yard, run.log, config, run.site.now_ms)
    else:
        set_queue_config(run.site.yard, run.queue, config, run.site.now_ms)
    with pytest.raises(TargetKeysFull):
        run.finish()
    assert run.counts() == (0, 0)
    recount(run.site.yard)
