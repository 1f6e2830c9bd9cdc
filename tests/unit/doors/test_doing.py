"""The command named in the log when something unexpected happens."""

from jobyard.protocols.beanstalk.commands import name_of
from tests.support.doors.doors import BareDoors
from tests.support.site.storage import MemoryStorage


def test_a_command_is_reported_with_its_protocol_and_without_its_arguments() -> None:
    site = BareDoors(MemoryStorage())
    tcp = site.bunqueue()
    tcp.push("secret", {"password": "secret"})
    assert tcp.session.doing() == "bunqueue PUSH"
    tcp.send("x" * 1000)
    assert tcp.session.doing() == "bunqueue " + "x" * 40
    library = site.library()
    library.client.ask("HGET", "glide:{q}:meta", "secret")
    assert library.client.session.doing() == "glide-mq HGET"
    site.api.put("q", type="queue")
    site.api.send("POST", "/v0/topics/q/claim?token=secret", {"node": "secret", "wait_ms": 1000})
    assert site.api.session.doing() == "HTTP POST /v0/topics/{topic}/claim"
    assert site.beanstalk().session.doing().startswith("beanstalk ")


def test_a_body_is_no_command() -> None:
    assert name_of(b"release 1 2 3\r\n", 0) == "release"
    assert name_of(b"peek-ready\r\nkick 5\r\n", 12) == "kick"
    assert name_of(b"secret words\r\n", 0) == "put"
