import pytest

from jobyard import build
from jobyard.engine import claims
from jobyard.engine.cohort import Bid, Claimant, join_cohort, leave_cohort
from jobyard.model.queue import Lease
from tests.support.topics import Topic, config
from tests.support.yards import recount

pytestmark = pytest.mark.skipif(
    build.kind() != "plain", reason="interpreted classes cannot have compiled traits"
)


class Share(Claimant):
    """Remembers what it was given, once."""

    def __init__(self) -> None:
        self.seqs: list[int] | None = None

    def served(self, bid: Bid, leases: list[Lease]) -> None:
        assert self.seqs is None
        assert all(lease.terms.label == bid.node for lease in leases)
        self.seqs = [int(lease.job.key) for lease in leases]


def join(site: Topic, node: str, most: int) -> tuple[Share, Bid]:
    share = Share()
    return share, join_cohort(site.yard, site.t, node, most, 0, share, site.now_ms)


def test_claims_within_the_window_get_equal_shares() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    site.write(*(b"1" for _ in range(20)))
    shares = [join(site, f"w{each}", 10)[0] for each in range(3)]
    site.tick(49)
    shares.append(join(site, "w3", 10)[0])
    assert [share.seqs for share in shares] == [None] * 4
    assert site.counts() == (20, 0, 0, 20)
    site.tick(1)
    assert [share.seqs for share in shares] == [list(range(each, 21, 4)) for each in range(1, 5)]
    recount(site.yard)


def test_who_wants_few_leaves_the_rest_to_others() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    site.write(*(b"1" for _ in range(5)))
    few, _ = join(site, "a", 1)
    many, _ = join(site, "b", 9)
    none, bid = join(site, "c", 9)
    leave_cohort(bid)
    site.tick(50)
    assert (few.seqs, many.seqs, none.seqs) == ([1], [2, 3, 4, 5], None)
    leave_cohort(bid)
    assert site.ack(2, 3, node="b").done == 2


def test_an_empty_queue_gives_everybody_nothing_and_the_next_claim_opens_a_window() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    share, _ = join(site, "a", 1)
    site.tick(50)
    assert share.seqs == []
    assert site.yard.nodes == {}
    site.write(b"1")
    share, _ = join(site, "a", 1)
    site.tick(49)
    assert share.seqs is None
    site.tick(1)
    assert share.seqs == [1]


def test_a_cohort_goes_empty_with_its_queue() -> None:
    site = Topic(given=config(claim_jitter_ms=50))
    site.write(b"1")
    share, _ = join(site, "a", 1)
    claims.drop_topic_queue(site.yard, site.t, site.now_ms)
    assert share.seqs == []
    assert "t" not in site.yard.queues
    assert site.tick(50) > site.now_ms
    recount(site.yard)
