"""The memory limit of all connections: charges, refusals, and that the account balances."""

import random

from jobyard.protocols.shared_limits import (
    FREE_SIZE,
    INPUT,
    LARGE_SIZE,
    NOTHING,
    OUTPUT,
    SharedLimits,
)

MIB = 1 << 20


def test_usual_connections_are_charged_nothing() -> None:
    shared_limits = SharedLimits(16 * MIB)
    assert shared_limits.charge(0, FREE_SIZE) == 0
    assert shared_limits.charge(0, FREE_SIZE + 1) == 1
    assert shared_limits.held == 1
    assert not shared_limits.is_overdrawn(1)


def test_large_input_is_refused_before_small() -> None:
    shared_limits = SharedLimits(16 * MIB)
    first = shared_limits.charge(0, 12 * MIB + FREE_SIZE)
    assert not shared_limits.is_overdrawn(first)
    large = shared_limits.charge(0, LARGE_SIZE + FREE_SIZE + 1)
    assert shared_limits.is_overdrawn(large)
    large = shared_limits.charge(large, 0)
    small = shared_limits.charge(0, LARGE_SIZE)
    assert not shared_limits.is_overdrawn(small)
    others = [shared_limits.charge(0, LARGE_SIZE) for _ in range(4)]
    assert shared_limits.is_overdrawn(others[-1])
    assert not shared_limits.is_overdrawn(0), "one who holds little is served whatever others do"


def test_whatever_is_charged_comes_out_even() -> None:
    rng = random.Random(5)
    shared_limits = SharedLimits(16 * MIB)
    charged = [0] * 50
    for _ in range(5000):
        at = rng.randrange(50)
        charged[at] = shared_limits.charge(
            charged[at], rng.choice((0, 9, FREE_SIZE, rng.randrange(MIB)))
        )
        assert shared_limits.held == sum(charged)
    for at, charge in enumerate(charged):
        charged[at] = shared_limits.charge(charge, 0)
    assert shared_limits.held == 0


def test_connections_of_one_address_are_counted() -> None:
    shared_limits = SharedLimits(16 * MIB)
    shared_limits.address_max = 2
    assert [shared_limits.arrive("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert shared_limits.arrive("10.0.0.2")
    assert shared_limits.connections_refused == 1
    shared_limits.leave("10.0.0.1")
    assert shared_limits.arrive("10.0.0.1")
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        shared_limits.leave(address)
    assert shared_limits.connections == {}


def test_more_is_given_up_of_what_is_more() -> None:
    shared_limits = SharedLimits(MIB)
    before = shared_limits.charge(0, MIB // 2)
    assert shared_limits.decide(0, before, MIB // 2, 0) == NOTHING
    charged = shared_limits.charge(before, 3 * MIB)
    assert shared_limits.decide(charged, charged, MIB, 2 * MIB) == NOTHING, "it has not grown"
    assert shared_limits.decide(before, charged, MIB, 2 * MIB) == OUTPUT
    assert shared_limits.decide(before, charged, 2 * MIB, MIB) == INPUT
    assert (shared_limits.outputs_cut, shared_limits.inputs_refused) == (1, 1)
