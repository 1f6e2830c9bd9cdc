import pytest

from jobyard.sessions.beanstalk import words


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"peek 1", words.PEEK),
        (b"peek-ready", words.PEEK_READY),
        (b"peek-delayed", words.PEEK_DELAYED),
        (b"peek-buried", words.PEEK_BURIED),
        (b"reserve", words.RESERVE),
        (b"reserve-job 1", words.RESERVE_JOB),
        (b"reserve-with-timeout 1", words.RESERVE_WITH_TIMEOUT),
        (b"delete 1", words.DELETE),
        (b"release 1 2 3", words.RELEASE),
        (b"bury 1 2", words.BURY),
        (b"kick 1", words.KICK),
        (b"kick-job 1", words.KICK_JOB),
        (b"touch 1", words.TOUCH),
        (b"stats", words.STATS),
        (b"stats-job 1", words.STATS_JOB),
        (b"stats-tube a", words.STATS_TUBE),
        (b"use a", words.USE),
        (b"watch a", words.WATCH),
        (b"ignore a", words.IGNORE),
        (b"list-tubes", words.LIST_TUBES),
        (b"list-tube-used", words.LIST_TUBE_USED),
        (b"list-tubes-watched", words.LIST_TUBES_WATCHED),
        (b"quit", words.QUIT),
        (b"pause-tube a 1", words.PAUSE_TUBE),
    ],
)
def test_every_command_is_found_by_its_word(line: bytes, code: int) -> None:
    found = words.find(line)
    assert found is not None
    assert found[1] == code


def test_a_shorter_word_takes_a_longer_one_without_its_argument() -> None:
    for line in (b"reserve-job", b"reserve-with-timeout", b"reservex"):
        found = words.find(line)
        assert found is not None
        assert found[1] == words.RESERVE
    for line in (b"stats-job", b"stats-tube", b"statsx"):
        found = words.find(line)
        assert found is not None
        assert found[1] == words.STATS


def test_anything_else_is_no_command() -> None:
    for line in (b"", b" ", b"peek", b"use", b"kick", b"PUT 1", b" stats", b"kick-job", b"touch"):
        assert words.find(line) is None


def test_counted_commands_come_before_the_uncounted() -> None:
    counted = [code for _, code, _ in words.WORDS if code < words.UNCOUNTED]
    assert sorted(counted) == list(range(1, words.UNCOUNTED))
