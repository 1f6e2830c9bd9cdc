from random import Random

from jobyard.model.index.recent_keys import RecentKeys


class Value:
    def __init__(self, number: int) -> None:
        self.number = number


def test_the_oldest_is_found_and_removed() -> None:
    keys: RecentKeys[Value] = RecentKeys()
    known: dict[str, Value] = {}
    rng = Random(3)
    for number in range(5000):
        name = f"k{rng.randrange(300)}"
        known.pop(name, None)
        known[name] = Value(number)
        keys.put(name, known[name])
        while len(known) > 200 or rng.random() < 0.3:
            oldest = keys.oldest()
            if not known:
                assert oldest is None
                break
            name = next(iter(known))
            assert oldest == (name, known.pop(name))
            keys.remove_oldest()
        assert keys.count() == len(known)
    assert dict(keys.items()) == known
    assert {value.number for value in keys.values()} == {v.number for v in known.values()}
    assert all(keys.get(name) is value for name, value in known.items())
    assert keys.get("other") is None


def test_a_hundred_thousand_go_in_a_moment() -> None:
    """To find the oldest of a plain dict again and again takes minutes for as many."""
    keys: RecentKeys[Value] = RecentKeys()
    for number in range(100_000):
        keys.put(str(number), Value(number))
    for number in range(100_000):
        oldest = keys.oldest()
        assert oldest is not None
        assert oldest[1].number == number
        keys.remove_oldest()
    assert keys.oldest() is None
