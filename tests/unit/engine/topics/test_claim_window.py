from jobyard.engine.jobs.queues import pause
from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.claim_window import (
    OpenClaimWaiter,
    WaitingClaim,
    join_window,
    leave_window,
)
from jobyard.model.lease import Lease
from tests.support.engine.topics import Topic, config
from tests.support.site.recount import recount


class Share(OpenClaimWaiter):
    """Remembers what it was given, once."""

    def __init__(self) -> None:
        self.seqs: list[int] | None = None
        self.is_lost = False

    def served(self, waiting_claim: WaitingClaim, leases: list[Lease]) -> None:
        assert self.seqs is None
        assert all(lease.terms is waiting_claim.terms for lease in leases)
        self.seqs = [int(lease.job.key) for lease in leases]

    def queue_lost(self, waiting_claim: WaitingClaim) -> None:
        assert waiting_claim.who is self
        assert self.seqs is None
        self.is_lost = True


def join(site: Topic, node: str, most: int, wait_ms: int = 0) -> tuple[Share, WaitingClaim]:
    share = Share()
    terms = topic_queue.terms_of(site.t, node, 0)
    waiting_claim = WaitingClaim(terms, most, site.now_ms + wait_ms, share)
    join_window(site.yard, site.t, waiting_claim, site.now_ms)
    return share, waiting_claim


def test_claims_within_the_window_get_equal_shares() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    site.write(*(b"1" for _ in range(20)))
    shares = [join(site, f"w{each}", 10)[0] for each in range(3)]
    site.jump(49)
    shares.append(join(site, "w3", 10)[0])
    assert [share.seqs for share in shares] == [None] * 4
    assert site.counts() == (20, 0, 0, 20)
    site.jump(1)
    assert [share.seqs for share in shares] == [list(range(each, 21, 4)) for each in range(1, 5)]
    recount(site.yard)


def test_who_wants_few_leaves_the_rest_to_others() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    site.write(*(b"1" for _ in range(5)))
    few, _ = join(site, "a", 1)
    many, _ = join(site, "b", 9)
    none, waiting_claim = join(site, "c", 9)
    leave_window(waiting_claim)
    site.jump(50)
    assert (few.seqs, many.seqs, none.seqs) == ([1], [2, 3, 4, 5], None)
    leave_window(waiting_claim)
    assert site.ack(2, 3, node="b").done == 2


def test_an_empty_queue_gives_everybody_nothing_and_the_next_claim_opens_a_window() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    share, _ = join(site, "a", 1)
    site.jump(50)
    assert share.seqs == []
    assert site.yard.nodes == {}
    site.write(b"1")
    share, _ = join(site, "a", 1)
    site.jump(49)
    assert share.seqs is None
    site.jump(1)
    assert share.seqs == [1]


def test_a_claim_window_ends_empty_with_its_queue() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    site.write(b"1")
    share, _ = join(site, "a", 1)
    topic_queue.drop_topic_queue(site.yard, site.t, site.now_ms)
    assert (share.seqs, share.is_lost) == (None, True)
    assert "t" not in site.yard.queues
    assert site.jump(50) > site.now_ms
    recount(site.yard)


def test_a_share_is_no_larger_than_one_answer_should_be() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    site.write(*(b"1" * 1000 for _ in range(6)))
    share, waiting_claim = join(site, "a", 10)
    waiting_claim.size_max = 2500
    other, _ = join(site, "b", 10)
    site.jump(50)
    assert (share.seqs, other.seqs) == ([1, 3, 5], [2, 4, 6])
    share, waiting_claim = join(site, "a", 10)
    waiting_claim.size_max = 2500
    site.write(*(b"1" * 1000 for _ in range(6)))
    site.jump(50)
    assert share.seqs == [7, 8, 9]


# -- claims that can wait --------------------------------------------------------------------------


def test_who_has_time_waits_for_the_next_job_and_then_for_the_window() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    timers = len(site.yard.timers.items)
    early, _ = join(site, "a", 9, 5000)
    hasty, _ = join(site, "b", 9)
    site.jump(1000)
    assert (early.seqs, hasty.seqs) == (None, [])
    assert site.t.waiting_count == 1
    late, _ = join(site, "c", 9, 5000)
    site.jump(1000)
    site.write(*(b"1" for _ in range(5)))
    assert site.t.waiting_count == 0
    site.jump(49)
    assert (early.seqs, late.seqs) == (None, None)
    assert site.counts() == (5, 0, 0, 5)
    site.jump(1)
    assert (early.seqs, late.seqs) == ([1, 3, 5], [2, 4])
    assert site.t.waiting_count == 0
    assert site.ack(1, 3, 5, node="a").done == 3
    assert site.ack(2, 4, node="c").done == 2
    site.jump(60_000)
    assert len(site.yard.timers.items) == timers
    recount(site.yard)


def test_whose_time_is_over_when_the_window_closes_is_told_so() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    share, waiting_claim = join(site, "a", 1, 40)
    site.jump(49)
    assert (share.seqs, waiting_claim.is_dealt_soon()) == (None, True)
    site.jump(1)
    assert (share.seqs, waiting_claim.is_dealt_soon()) == ([], False)


def test_jobs_that_come_back_are_seen_and_paused_ones_are_not() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    site.write(b"1")
    assert site.claimed() == [1]
    share, _ = join(site, "a", 1, 60_000)
    site.jump(1000)
    pause(site.yard, site.t, 5000, site.now_ms)
    site.nack(1)
    site.jump(4999)
    assert (share.seqs, site.t.waiting_count) == (None, 1)
    site.jump(1)
    site.jump(50)
    assert share.seqs == [1]


def test_a_scout_leaves_a_job_to_whoever_stands_behind_it() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    share, _ = join(site, "a", 1, 60_000)
    site.jump(100)
    worker = site.connect()
    worker.say(b"watch t\r\nreserve\r\n")
    site.write(b"1")
    assert b"RESERVED 1 1" in worker.hear()
    site.jump(100)
    assert (share.seqs, site.t.waiting_count) == (None, 1)
    worker.say(b"release 1 0 0\r\n")
    site.jump(50)
    assert share.seqs == [1]


def test_the_last_who_leaves_takes_the_scout_along() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    bids = [join(site, node, 1, 60_000)[1] for node in "ab"]
    site.jump(100)
    leave_window(bids[0])
    assert site.t.waiting_count == 1
    leave_window(bids[1])
    assert site.t.waiting_count == 0
    site.write(b"1")
    share, _ = join(site, "a", 1, 60_000)
    site.jump(50)
    assert share.seqs == [1]


def test_waiting_claims_end_when_the_queue_is_removed() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    share, _ = join(site, "a", 1, 60_000)
    site.jump(100)
    queue = site.t
    topic_queue.drop_topic_queue(site.yard, queue, site.now_ms)
    assert (share.seqs, share.is_lost, queue.waiting_count) == (None, True, 0)
    assert "t" not in site.yard.queues
    recount(site.yard)


def test_a_window_that_is_no_more_opens_at_once() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    share, _ = join(site, "a", 1, 60_000)
    site.jump(100)
    topic_queue.set_queue_config(site.yard, site.t, config(), site.now_ms)
    site.write(b"1")
    site.jump(0)
    assert share.seqs == [1]


# -- streams ---------------------------------------------------------------------------------------


def test_streams_and_claims_share() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    site.write(*(b"1" for _ in range(9)))
    _, inbox = site.stream("s", 4)
    assert inbox.seqs() == []
    share, _ = join(site, "a", 9)
    site.jump(50)
    assert (inbox.seqs(), share.seqs) == ([1, 3, 5, 7], [2, 4, 6, 8, 9])
    recount(site.yard)


def test_refills_of_a_stream_wait_for_the_window() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    stream, inbox = site.stream("s", 2)
    site.jump(1000)
    site.write(*(b"1" for _ in range(6)))
    site.jump(50)
    assert inbox.seqs() == [1, 2]
    assert site.ack(1, node="s").done == 1
    share, _ = join(site, "a", 2)
    assert site.ack(2, node="s").done == 1
    site.jump(49)
    assert (inbox.seqs(), share.seqs) == ([], None)
    site.jump(1)
    assert (inbox.seqs(), share.seqs) == ([3, 5], [4, 6])
    stream.close(site.now_ms)
    assert site.counts() == (2, 2, 0, 4)
    recount(site.yard)


def test_a_stream_that_is_closed_gets_no_share() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    stream, inbox = site.stream("s", 2)
    site.write(b"1")
    stream.close(site.now_ms)
    site.jump(50)
    assert (inbox.seqs(), site.counts()) == ([], (1, 0, 0, 1))
    recount(site.yard)


def test_a_stream_that_waits_for_its_share_ends_with_the_queue() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    _, inbox = site.stream("s", 2)
    site.jump(100)
    topic_queue.drop_topic_queue(site.yard, site.t, site.now_ms)
    assert inbox.is_over
    assert "t" not in site.yard.queues
    recount(site.yard)


def test_a_stream_gets_jobs_at_once_when_there_is_no_claim_window() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    _, inbox = site.stream("s", 1)
    site.write(b"1", b"2", b"3")
    site.jump(50)
    assert inbox.seqs() == [1]
    topic_queue.set_queue_config(site.yard, site.t, config(), site.now_ms)
    site.ack(1, node="s")
    assert inbox.seqs() == [2]
    topic_queue.set_queue_config(site.yard, site.t, config(claim_jitter_ms=50), site.now_ms)
    site.ack(2, node="s")
    assert inbox.seqs() == []
    site.jump(50)
    assert inbox.seqs() == [3]
