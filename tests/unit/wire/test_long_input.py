"""A message that arrives in pieces: complete, once, without a copy."""

from jobyard.wire.long_input import LongInput


def test_gives_back_every_piece_in_order() -> None:
    message = LongInput()
    for at in range(100):
        message.append(b"%d," % at)
    assert message.size == sum(len(b"%d," % at) for at in range(100))
    assert message.take() == b"".join(b"%d," % at for at in range(100))


def test_a_long_input_starts_over_after_it_was_taken() -> None:
    message = LongInput()
    message.append(b"one")
    taken = message.take()
    assert message.size == 0
    message.append(b"two")
    assert (taken, message.take(), message.take()) == (b"one", b"two", b"")


def test_forgets_what_came() -> None:
    message = LongInput()
    message.append(b"one")
    message.clear()
    assert (message.size, message.take()) == (0, b"")
