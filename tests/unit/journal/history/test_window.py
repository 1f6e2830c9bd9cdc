from jobyard.engine.jobs.move import remove
from jobyard.engine.state.history import read_history
from jobyard.journal.format.segment import BATCH_MAGIC, COLD, HOT, Segment
from jobyard.journal.history.window import FORGOTTEN_AT_ONCE, History, PastName
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.storage import Storage
from tests.support.random.beanstalk import RandomRun
from tests.support.site.site import ALL_HISTORY
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def numbers(storage: Storage, site: OpenYard) -> list[tuple[int, int]]:
    """Return (first record, count) of every batch on disk, in the order of their numbers."""
    found: list[tuple[int, int, int]] = []
    for segment in site.journal.segments.values():
        reader = Reader(storage, segment)
        while True:
            head = reader.next()
            if head is None or head.magic != BATCH_MAGIC:
                break
            pos, count = int(reader.at) + 96, 0
            end = pos + int(head.records_size)
            while pos < end:
                pos += int.from_bytes(reader.data[pos + 4 : pos + 8], "little")
                count += 1
            found.append((int(head.number), int(head.first_record), count))
    return [(first, count) for _, first, count in sorted(found)]


def check_numbers(storage: Storage, site: OpenYard) -> None:
    """Check that no number is used twice, and none is skipped between two existing batches."""
    at = -1
    for first, count in numbers(storage, site):
        assert first >= at
        at = first + count
    assert at == site.journal.next_record()


def test_records_are_numbered_through_hot_and_cold_and_over_restarts() -> None:
    storage = MemoryStorage()
    for _ in range(3):
        site = OpenYard(storage, window=(1000, 1))
        start = site.journal.record_base
        jobs = [site.put(b"x" * 1500) for _ in range(60)]
        site.commit()
        for job in jobs[:55]:
            remove(site.yard, job, site.now_ms)
        site.commit()
        site.compact()
        assert site.journal.moved_count > 0
        site.commit()
        check_numbers(storage, site)
        assert site.journal.next_record() > start + 115
        storage = storage.killed()


def test_a_random_run_numbers_its_records_without_fault() -> None:
    for seed in range(3):
        storage = MemoryStorage()
        site = OpenYard(storage, segment_size=16_384, window=(1000, 20_000))
        run = RandomRun(site, seed)
        for step in range(300):
            run.step()
            if step % 5 == 0:
                site.commit()
                site.compactor.step()
        site.commit()
        check_numbers(storage, site)


def test_history_begins_after_the_last_gap() -> None:
    def recovered(*priors: int) -> tuple[list[int], int]:
        history = History()
        history.keep(*ALL_HISTORY)
        hot = []
        for number, prior in enumerate(priors, 1):
            segment = Segment(number, HOT, 1000)
            segment.prior = prior
            history.add_batch(segment, 64, number * 10, 5, 0, (0, 0))
            hot.append(segment)
        history.recover(hot, 99)
        assert all(s.is_history == (s in history.segments) for s in hot)
        return [int(s.number) for s in history.segments], int(history.floor)

    assert recovered(1, 1, 2) == ([1, 2, 3], 10)
    assert recovered(0, 1, 2) == ([2, 3], 20)
    assert recovered(1, 9, 2) == ([2, 3], 20)
    assert recovered(1, 1, 0) == ([], 99)
    assert recovered() == ([], 99)


def test_a_segment_that_was_cut_to_nothing_is_no_gap() -> None:
    history = History()
    history.keep(*ALL_HISTORY)
    hot = [Segment(number, HOT, 1000) for number in (1, 2, 3)]
    for segment, prior in zip(hot, (1, 1, 2), strict=True):
        segment.prior = prior
    history.add_batch(hot[0], 64, 10, 5, 0, (0, 0))
    history.add_batch(hot[2], 64, 20, 5, 0, (0, 0))
    history.recover(hot, 25)
    assert history.segments == [hot[0], hot[2]]


def test_what_is_too_old_or_too_much_leaves_from_the_oldest_on() -> None:
    def kept(age_ms: int, size: int) -> tuple[list[int], int]:
        history = History()
        history.keep(age_ms, size)
        for number in range(1, 5):
            segment = Segment(number, HOT, 1000)
            segment.end = 1000
            segment.is_sealed = number < 4
            history.add_batch(segment, 64, number * 10, 5, number * 100, (0, 0))
        history.trim(500)
        return [int(s.number) for s in history.segments], int(history.floor)

    assert kept(1000, 10_000) == ([1, 2, 3, 4], 0)
    assert kept(1000, 2500) == ([3, 4], 30)
    assert kept(300, 10_000) == ([2, 3, 4], 20)
    assert kept(1, 1) == ([4], 40)


def test_places_of_batches_are_known_here_and_there() -> None:
    history = History()
    segment = Segment(1, HOT, 1 << 20)
    for number in range(100):
        history.add_batch(segment, 64 + number * 10_000, number * 2, 2, 0, (0, 0))
    assert segment.points[:3] == [64, 70_064, 140_064]
    assert segment.point_records[:3] == [0, 14, 28]
    cold = Segment(2, COLD, 1 << 20)
    history.add_batch(cold, 64, 200, 5, 0, (0, 0))
    assert (cold.first_record, cold.points) == (-1, [])


def test_names_of_queues_that_are_gone_are_kept_while_records_name_them() -> None:
    history = History()
    history.keep(*ALL_HISTORY)
    segment = Segment(1, HOT, 1000)
    for number, until in ((5, 10), (6, 20)):
        history.name(number, f"q{number}")
        history.retire(PastName(number, f"q{number}", 1, until), segment)
    history.floor = 10
    history.forget_names({1: segment})
    assert (list(history.past), history.names, segment.past_names) == ([6], {6: "q6"}, 1)
    other = Segment(2, COLD, 1000)
    history.move_name(history.past[6], segment, other)
    assert (segment.past_names, other.past_names, history.past[6].segment) == (0, 1, 2)


def test_history_gives_way_where_it_needs_too_many_names() -> None:
    history = History()
    history.keep(*ALL_HISTORY)
    history.past_max = 5
    segments = [Segment(number, HOT, 1000) for number in (1, 2, 3)]
    known = {int(segment.number): segment for segment in segments}
    for at, segment in enumerate(segments):
        history.add_batch(segment, 64, at * 10, 10, 0, (0, 0))
        segment.is_sealed = at < 2
        for place in range(4):
            number = at * 10 + place
            history.name(number, f"q{number}")
            history.retire(PastName(number, f"q{number}", 1, number + 1), segment)
    while not history.forget_names(known):
        pass
    # The two that are sealed have left the window, and the names in them.
    assert history.floor == 20
    assert sorted(history.past) == sorted(history.names) == [20, 21, 22, 23]
    assert [segment.past_names for segment in segments] == [0, 0, 4]
    history.past_max = 3
    assert not history.forget_names(known)
    assert history.forget_names(known)
    # What is written leaves as far as it is written, and is written on.
    assert history.floor == 30
    assert (len(history.past), len(history.names)) == (0, 0)
    assert history.segments == segments[2:]


def test_names_are_forgotten_a_few_at_a_time() -> None:
    history = History()
    history.keep(*ALL_HISTORY)
    segment = Segment(1, HOT, 1000)
    for number in range(FORGOTTEN_AT_ONCE * 2 + 5):
        history.name(number, "q")
        history.retire(PastName(number, "q", 1, 1), segment)
    history.floor = 1
    assert not history.forget_names({1: segment})
    assert len(history.past) == FORGOTTEN_AT_ONCE + 5
    assert not history.forget_names({1: segment})
    assert history.forget_names({1: segment})
    assert history.past == {}
    assert segment.past_names == 0


def test_numbers_of_rows_that_were_never_seen_may_be_given_again_and_others_not() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, window=ALL_HISTORY)
    site.put(b"seen")
    site.commit()
    seen = read_history(site.yard, 0, 10).rows
    site.put(b"lost")
    site.journal.seal_batch()
    site.journal.write_pending()
    assert len(read_history(site.yard, 0, 10).rows) == len(seen) == 1
    again = OpenYard(storage.cut_off(), site.now_ms, window=ALL_HISTORY)
    again.put(b"new")
    again.commit()
    rows = read_history(again.yard, 0, 10).rows
    assert rows[0].seq == seen[0].seq
    assert rows[1].seq > seen[0].seq
    assert len(rows) == 2
