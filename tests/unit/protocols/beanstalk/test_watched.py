"""Much at once over one connection: kicks over turns, and tubes without end."""

from jobyard.protocols.beanstalk.watched import TUBES_MAX
from tests.support.site.recount import recount
from tests.support.site.yard import OpenYard


def test_a_long_kick_is_answered_when_it_is_done_and_before_what_follows_it() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"put 0 60 60 1\r\nx\r\n" * 1500)
    assert client.say(b"kick 1400\r\nlist-tube-used\r\n") == b""
    assert site.connect().say(b"reserve\r\n").startswith(b"RESERVED")
    while site.yard.tasks.proceed(site.now_ms):
        assert client.hear() == b""
    assert client.ears.wakes == 1
    client.session.resume(site.now_ms)
    assert client.hear() == b"KICKED 1400\r\nUSING default\r\n"
    assert site.yard.delayed_count == 100
    recount(site.yard)


def test_a_connection_that_leaves_during_a_kick_lets_it_end() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"put 0 60 60 1\r\nx\r\n" * 1500)
    assert client.say(b"kick 1500\r\n") == b""
    client.session.end_input(site.now_ms)
    assert not client.session.is_finished
    client.leave()
    while site.yard.tasks.proceed(site.now_ms):
        pass
    assert site.yard.delayed_count == 0
    recount(site.yard)


def test_a_connection_watches_a_bounded_number_of_tubes() -> None:
    site = OpenYard()
    client = site.connect()
    for start in range(1, TUBES_MAX, 1000):
        names = range(start, min(start + 1000, TUBES_MAX))
        client.say(b"".join(b"watch t%d\r\n" % at for at in names))
    assert client.say(b"watch one-more\r\n") == b"OUT_OF_MEMORY\r\n"
    assert "one-more" not in site.yard.queues
    assert client.say(b"watch t1\r\nignore t1\r\n") == b"WATCHING %d\r\nWATCHING %d\r\n" % (
        TUBES_MAX,
        TUBES_MAX - 1,
    )
    assert client.say(b"watch one-more\r\n") == b"WATCHING %d\r\n" % TUBES_MAX
    client.leave()
    assert list(site.yard.queues) == ["default"]
