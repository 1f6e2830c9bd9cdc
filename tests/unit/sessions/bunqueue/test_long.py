"""Commands whose work is long: others are served meanwhile, and order is kept."""

from tests.support.bare_bunqueue import BareBunqueue, BareClient
from tests.support.memory_storage import MemoryStorage

JOBS = 400


def slow_site(count: int = JOBS, **fields: object) -> tuple[BareBunqueue, BareClient]:
    """A yard where a turn has little room, with jobs in a queue."""
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    jobs = [{"data": at, **fields} for at in range(count)]
    client.ok("PUSHB", queue="q", jobs=jobs)
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()
    return site, client


def finish(site: BareBunqueue) -> int:
    """Let long work come to its end; return in how many turns."""
    turns = 1
    while site.slice():
        turns += 1
    return turns


def test_others_are_answered_between_two_slices() -> None:
    site, client = slow_site()
    other = site.connect()
    number = client.send("Drain", queue="q")
    assert client.hear(number) is None
    waiting = JOBS
    while client.hear(number) is None:
        now = other.ok("GetJobCounts", queue="q")["counts"]["waiting"]
        assert waiting - now <= 100
        waiting = now
        if not site.slice():
            break
    assert other.ok("GetJobCounts", queue="q")["counts"]["waiting"] == 0
    site.check()


def test_the_answer_comes_at_the_end_and_counts_all() -> None:
    site, client = slow_site()
    number = client.send("Drain", queue="q")
    assert finish(site) > 10
    assert client.hear(number) == {"ok": True, "count": JOBS}


def test_commands_behind_it_wait_for_its_end() -> None:
    site, client = slow_site()
    drain = client.send("Drain", queue="q")
    push = client.send("PUSH", queue="q", data="later")
    count = client.send("Count", queue="q")
    site.slice()
    assert [client.hear(number) for number in (drain, push, count)] == [None] * 3
    finish(site)
    assert client.hear(drain) == {"ok": True, "count": JOBS}
    pushed = client.hear(push)
    assert pushed is not None
    assert pushed["ok"]
    assert client.hear(count) == {"ok": True, "count": 1}


def test_what_is_pushed_elsewhere_meanwhile_stays() -> None:
    site, client = slow_site()
    number = client.send("Drain", queue="q")
    new = [site.connect().push() for _ in range(5)]
    finish(site)
    assert client.hear(number) == {"ok": True, "count": JOBS}
    assert [client.state(job_id) for job_id in new] == ["waiting"] * 5
    site.check()


def test_who_asked_and_left_has_still_asked() -> None:
    site, client = slow_site()
    client.send("Drain", queue="q")
    client.close()
    finish(site)
    assert site.yard.ready_count == 0
    site.check()


def test_who_has_sent_its_last_is_answered_before_the_end() -> None:
    site, client = slow_site()
    number = client.send("Drain", queue="q")
    client.session.end_input(site.now_ms)
    assert not client.session.is_finished
    finish(site)
    assert client.hear(number) == {"ok": True, "count": JOBS}
    assert client.session.is_finished
