from jobyard.engine.state.history_watch import HistoryWatchers, OpenHistoryWatcher


class Counter(OpenHistoryWatcher):
    """Counts its notifications."""

    def __init__(self) -> None:
        self.told = 0

    def events_came(self) -> None:
        self.told += 1


def test_all_are_told_once_when_more_is_durable() -> None:
    watchers = HistoryWatchers()
    watchers.look(5)
    first, second = Counter(), Counter()
    watchers.hold(first, 7)
    watchers.look(7)
    assert first.told == 0
    watchers.hold(second, 9)
    watchers.look(9)
    watchers.look(9)
    assert (first.told, second.told) == (1, 1)
    watchers.drop(first)
    watchers.drop(first)
    watchers.look(10)
    assert (first.told, second.told) == (1, 2)


def test_who_has_not_found_anything_yet_is_told_again() -> None:
    watchers = HistoryWatchers()
    one = Counter()
    watchers.hold(one, 3)
    watchers.notify_next_turn()
    assert not watchers.look(3)
    assert not watchers.look(3)
    assert one.told == 1


def test_one_that_asks_while_it_is_told_is_told_in_the_next_turn() -> None:
    class Greedy(Counter):
        def events_came(self) -> None:
            super().events_came()
            if self.told < 3:
                watchers.notify_next_turn()

    watchers = HistoryWatchers()
    one = Greedy()
    watchers.hold(one, 3)
    assert [watchers.look(4), watchers.look(4), watchers.look(4)] == [True, True, False]
    assert one.told == 3
