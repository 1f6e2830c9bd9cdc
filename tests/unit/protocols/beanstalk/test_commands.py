import pytest

from jobyard.protocols.beanstalk import commands


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"peek 1", commands.PEEK),
        (b"peek-ready", commands.PEEK_READY),
        (b"peek-delayed", commands.PEEK_DELAYED),
        (b"peek-buried", commands.PEEK_BURIED),
        (b"reserve", commands.RESERVE),
        (b"reserve-job 1", commands.RESERVE_JOB),
        (b"reserve-with-timeout 1", commands.RESERVE_WITH_TIMEOUT),
        (b"delete 1", commands.DELETE),
        (b"release 1 2 3", commands.RELEASE),
        (b"bury 1 2", commands.BURY),
        (b"kick 1", commands.KICK),
        (b"kick-job 1", commands.KICK_JOB),
        (b"touch 1", commands.TOUCH),
        (b"stats", commands.STATS),
        (b"stats-job 1", commands.STATS_JOB),
        (b"stats-tube a", commands.STATS_TUBE),
        (b"use a", commands.USE),
        (b"watch a", commands.WATCH),
        (b"ignore a", commands.IGNORE),
        (b"list-tubes", commands.LIST_TUBES),
        (b"list-tube-used", commands.LIST_TUBE_USED),
        (b"list-tubes-watched", commands.LIST_TUBES_WATCHED),
        (b"quit", commands.QUIT),
        (b"pause-tube a 1", commands.PAUSE_TUBE),
    ],
)
def test_every_command_is_found_by_its_word(line: bytes, code: int) -> None:
    found = commands.find(line)
    assert found is not None
    assert found[1] == code


def test_a_shorter_word_takes_a_longer_one_without_its_argument() -> None:
    for line in (b"reserve-job", b"reserve-with-timeout", b"reservex"):
        found = commands.find(line)
        assert found is not None
        assert found[1] == commands.RESERVE
    for line in (b"stats-job", b"stats-tube", b"statsx"):
        found = commands.find(line)
        assert found is not None
        assert found[1] == commands.STATS


def test_anything_else_is_no_command() -> None:
    for line in (b"", b" ", b"peek", b"use", b"kick", b"PUT 1", b" stats", b"kick-job", b"touch"):
        assert commands.find(line) is None


def test_counted_commands_come_before_the_uncounted() -> None:
    counted = [code for _, code, _ in commands.WORDS if code < commands.UNCOUNTED]
    assert sorted(counted) == list(range(1, commands.UNCOUNTED))
