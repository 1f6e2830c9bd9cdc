"""How long pushes, pulls and acks waited, as dashboards and scrapers see it."""

from jobyard.protocols.bunqueue.metrics.latency import BUCKETS_US, Histogram
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue


def lines_of(client: BunqueueClient, name: str) -> list[str]:
    text: str = client.ok("Prometheus")["data"]["metrics"]
    return [line for line in text.splitlines() if line.startswith(f"bunqueue_{name}_duration")]


def test_what_took_as_long_as_a_bucket_stands_in_it() -> None:
    histogram = Histogram()
    for end_us in BUCKETS_US:
        histogram.note(1, end_us)
        histogram.note(2, end_us + 1)
    assert histogram.counts == [1, *[3] * (len(BUCKETS_US) - 1), 2]
    assert (histogram.count, sum(histogram.counts)) == (3 * len(BUCKETS_US),) * 2
    assert histogram.sum_us == 3 * sum(BUCKETS_US) + 2 * len(BUCKETS_US)


def test_percentiles_are_ends_of_buckets() -> None:
    histogram = Histogram()
    assert (histogram.mean_ms(), histogram.percentile_ms(50)) == (0, 0)
    histogram.note(90, 400)
    histogram.note(9, 3000)
    histogram.note(1, 99_000_000)
    assert [histogram.percentile_ms(percent) for percent in (1, 50, 90)] == [0.5] * 3
    assert [histogram.percentile_ms(percent) for percent in (91, 99)] == [5.0] * 2
    assert histogram.percentile_ms(100) == 10_000, "there is no longer one"
    assert histogram.mean_ms() == 990.63


def test_all_that_one_commit_made_durable_took_as_long_as_it() -> None:
    site = BareBunqueue()
    client = site.connect()
    durations = site.door.durations
    durations.are_timed = True
    client.finish()
    client.bury()
    durations.begin()
    late = client.push()
    durations.end(700)
    assert (durations.push.count, durations.pull.count, durations.ack.count) == (2, 2, 2)
    durations.end(900)
    assert durations.push.count == 2, "a commit counts once"
    durations.begin()
    durations.end(90_000)
    assert client.state(late) == "waiting"
    assert durations.averages() == {"pushMs": 30.467, "pullMs": 0.7, "ackMs": 0.7}
    assert durations.percentiles() == {
        "push": {"p50": 1.0, "p95": 100.0, "p99": 100.0},
        "pull": {"p50": 1.0, "p95": 1.0, "p99": 1.0},
        "ack": {"p50": 1.0, "p95": 1.0, "p99": 1.0},
    }
    overview = client.ok("DashboardOverview")["data"]["latency"]
    assert overview["averages"].items() >= durations.averages().items()
    assert overview["percentiles"] == durations.percentiles()


def test_where_nothing_is_waited_for_nothing_took_time() -> None:
    client = BareBunqueue().connect()
    client.ok("PUSHB", queue="q", jobs=[{"data": 1}, {"data": 2}])
    first, *_rest, bucket, total, count = lines_of(client, "push")
    assert first == 'bunqueue_push_duration_seconds_bucket{le="0.0001"} 2'
    assert bucket == 'bunqueue_push_duration_seconds_bucket{le="+Inf"} 2'
    assert total == "bunqueue_push_duration_seconds_sum 0"
    assert count == "bunqueue_push_duration_seconds_count 2"


def test_buckets_are_those_of_the_original_and_add_up() -> None:
    site = BareBunqueue()
    client = site.connect()
    durations = site.door.durations
    durations.are_timed = True
    for took_us in (50, 2000, 20_000_000):
        client.push()
        durations.begin()
        durations.end(took_us)
    *buckets, total, count = lines_of(client, "push")
    ends = "0.0001 0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 +Inf"
    counts = [1, 1, 1, *[2] * 12, 3]
    assert buckets == [
        f'bunqueue_push_duration_seconds_bucket{{le="{end}"}} {count}'
        for end, count in zip(ends.split(), counts, strict=True)
    ]
    assert total == "bunqueue_push_duration_seconds_sum 20.00205"
    assert count == "bunqueue_push_duration_seconds_count 3"
    assert lines_of(client, "ack")[-1] == "bunqueue_ack_duration_seconds_count 0"
