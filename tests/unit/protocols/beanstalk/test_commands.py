import pytest

from jobyard.protocols.beanstalk import commands


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"peek 1", commands.CommandNo.PEEK),
        (b"peek-ready", commands.CommandNo.PEEK_READY),
        (b"peek-delayed", commands.CommandNo.PEEK_DELAYED),
        (b"peek-buried", commands.CommandNo.PEEK_BURIED),
        (b"reserve", commands.CommandNo.RESERVE),
        (b"reserve-job 1", commands.CommandNo.RESERVE_JOB),
        (b"reserve-with-timeout 1", commands.CommandNo.RESERVE_WITH_TIMEOUT),
        (b"delete 1", commands.CommandNo.DELETE),
        (b"release 1 2 3", commands.CommandNo.RELEASE),
        (b"bury 1 2", commands.CommandNo.BURY),
        (b"kick 1", commands.CommandNo.KICK),
        (b"kick-job 1", commands.CommandNo.KICK_JOB),
        (b"touch 1", commands.CommandNo.TOUCH),
        (b"stats", commands.CommandNo.STATS),
        (b"stats-job 1", commands.CommandNo.STATS_JOB),
        (b"stats-tube a", commands.CommandNo.STATS_TUBE),
        (b"use a", commands.CommandNo.USE),
        (b"watch a", commands.CommandNo.WATCH),
        (b"ignore a", commands.CommandNo.IGNORE),
        (b"list-tubes", commands.CommandNo.LIST_TUBES),
        (b"list-tube-used", commands.CommandNo.LIST_TUBE_USED),
        (b"list-tubes-watched", commands.CommandNo.LIST_TUBES_WATCHED),
        (b"quit", commands.CommandNo.QUIT),
        (b"pause-tube a 1", commands.CommandNo.PAUSE_TUBE),
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
        assert found[1] == commands.CommandNo.RESERVE
    for line in (b"stats-job", b"stats-tube", b"statsx"):
        found = commands.find(line)
        assert found is not None
        assert found[1] == commands.CommandNo.STATS


def test_anything_else_is_no_command() -> None:
    for line in (b"", b" ", b"peek", b"use", b"kick", b"PUT 1", b" stats", b"kick-job", b"touch"):
        assert commands.find(line) is None


def test_counted_commands_come_before_the_uncounted() -> None:
    counted = [code for _, code, _ in commands.WORDS if code < commands.CommandNo.UNCOUNTED]
    assert sorted(counted) == list(range(1, commands.CommandNo.UNCOUNTED))
