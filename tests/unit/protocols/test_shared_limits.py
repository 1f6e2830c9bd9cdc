"""The account of all connections: what is charged, who is refused, and that it comes out even."""

import random

from jobyard.protocols.shared_limits import FREE_SIZE, INPUT, LARGE_SIZE, NOTHING, OUTPUT, Guard

MIB = 1 << 20


def test_usual_connections_are_charged_nothing() -> None:
    guard = Guard(16 * MIB)
    assert guard.charge(0, FREE_SIZE) == 0
    assert guard.charge(0, FREE_SIZE + 1) == 1
    assert guard.held == 1
    assert not guard.is_overdrawn(1)


def test_large_input_is_refused_before_small() -> None:
    guard = Guard(16 * MIB)
    first = guard.charge(0, 12 * MIB + FREE_SIZE)
    assert not guard.is_overdrawn(first)
    large = guard.charge(0, LARGE_SIZE + FREE_SIZE + 1)
    assert guard.is_overdrawn(large)
    large = guard.charge(large, 0)
    small = guard.charge(0, LARGE_SIZE)
    assert not guard.is_overdrawn(small)
    others = [guard.charge(0, LARGE_SIZE) for _ in range(4)]
    assert guard.is_overdrawn(others[-1])
    assert not guard.is_overdrawn(0), "one who holds little is served whatever others do"


def test_whatever_is_charged_comes_out_even() -> None:
    rng = random.Random(5)
    guard = Guard(16 * MIB)
    charged = [0] * 50
    for _ in range(5000):
        at = rng.randrange(50)
        charged[at] = guard.charge(charged[at], rng.choice((0, 9, FREE_SIZE, rng.randrange(MIB))))
        assert guard.held == sum(charged)
    for at, charge in enumerate(charged):
        charged[at] = guard.charge(charge, 0)
    assert guard.held == 0


def test_connections_of_one_address_are_counted() -> None:
    guard = Guard(16 * MIB)
    guard.address_max = 2
    assert [guard.arrive("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert guard.arrive("10.0.0.2")
    assert guard.connections_refused == 1
    guard.leave("10.0.0.1")
    assert guard.arrive("10.0.0.1")
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        guard.leave(address)
    assert guard.connections == {}


def test_more_is_given_up_of_what_is_more() -> None:
    guard = Guard(MIB)
    before = guard.charge(0, MIB // 2)
    assert guard.decide(0, before, MIB // 2, 0) == NOTHING
    charged = guard.charge(before, 3 * MIB)
    assert guard.decide(charged, charged, MIB, 2 * MIB) == NOTHING, "it has not grown"
    assert guard.decide(before, charged, MIB, 2 * MIB) == OUTPUT
    assert guard.decide(before, charged, 2 * MIB, MIB) == INPUT
    assert (guard.outputs_cut, guard.inputs_refused) == (1, 1)
