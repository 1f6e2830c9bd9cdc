from jobyard.engine.state.history_watch import Onlookers, OpenOnlooker


class Counter(OpenOnlooker):
    """Counts how often it was told."""

    def __init__(self) -> None:
        self.told = 0

    def events_came(self) -> None:
        self.told += 1


def test_all_are_told_once_when_more_is_durable() -> None:
    onlookers = Onlookers()
    onlookers.look(5)
    first, second = Counter(), Counter()
    onlookers.hold(first, 7)
    onlookers.look(7)
    assert first.told == 0
    onlookers.hold(second, 9)
    onlookers.look(9)
    onlookers.look(9)
    assert (first.told, second.told) == (1, 1)
    onlookers.drop(first)
    onlookers.drop(first)
    onlookers.look(10)
    assert (first.told, second.told) == (1, 2)


def test_who_has_not_found_anything_yet_is_told_again() -> None:
    onlookers = Onlookers()
    one = Counter()
    onlookers.hold(one, 3)
    onlookers.tell_again()
    assert not onlookers.look(3)
    assert not onlookers.look(3)
    assert one.told == 1


def test_one_that_asks_while_it_is_told_is_told_in_the_next_turn() -> None:
    class Greedy(Counter):
        def events_came(self) -> None:
            super().events_came()
            if self.told < 3:
                onlookers.tell_again()

    onlookers = Onlookers()
    one = Greedy()
    onlookers.hold(one, 3)
    assert [onlookers.look(4), onlookers.look(4), onlookers.look(4)] == [True, True, False]
    assert one.told == 3
