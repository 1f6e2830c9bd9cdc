import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.server.addresses import (
    BadAddress,
    TcpAddress,
    UnixAddress,
    end_text,
    parse_address,
    parse_port,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:11300", TcpAddress("127.0.0.1", 11300)),
        ("127.0.0.1:0", TcpAddress("127.0.0.1", 0)),
        ("0.0.0.0:65535", TcpAddress("0.0.0.0", 65535)),
        ("localhost:11300", TcpAddress("localhost", 11300)),
        ("queue-1.example.org:1", TcpAddress("queue-1.example.org", 1)),
        ("[::1]:11300", TcpAddress("::1", 11300)),
        ("[::]:11300", TcpAddress("::", 11300)),
        ("[fe80::1%eth0]:11300", TcpAddress("fe80::1%eth0", 11300)),
        (":11300", TcpAddress("", 11300)),
        ("*:11300", TcpAddress("", 11300)),
        ("unix:/run/jobyard.sock", UnixAddress("/run/jobyard.sock")),
        ("unix:here.sock", UnixAddress("here.sock")),
        ("unix:/with space/and:colon", UnixAddress("/with space/and:colon")),
    ],
)
def test_an_address_is_read(text: str, address: TcpAddress | UnixAddress) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no port"),
        ("127.0.0.1", "has no port"),
        ("11300", "write 127.0.0.1:11300, or :11300"),
        ("127.0.0.1:", "'' is not a port"),
        ("127.0.0.1:65536", "is not a port"),
        ("127.0.0.1:-1", "is not a port"),
        ("127.0.0.1:+1", "is not a port"),
        ("127.0.0.1: 1", "is not a port"),
        ("127.0.0.1:1_0", "is not a port"),
        ("127.0.0.1:http", "is not a port"),
        ("127.0.0.1:٣", "is not a port"),
        ("::1:11300", "in brackets"),
        ("[::1]", "in brackets"),
        ("[127.0.0.1]:1", "not an IPv6 address"),
        ("[::g]:1", "not an IPv6 address"),
        ("[]:1", "not an IPv6 address"),
        ("300.1.1.1:1", "not an IPv4 address"),
        ("127.1:1", "not an IPv4 address"),
        ("a b:1", "not a host name"),
        ("a\x1b[31m:1", "not a host name"),
        ("me@host:1", "not a host name"),
        ("tcp://127.0.0.1:1", "is a URL"),
        ("unix:", "needs the path"),
        ("unix:a\0b", "NUL"),
        ("unix:" + "a" * 108, "108 bytes long; the limit is 107"),
        ("unix:" + "é" * 54, "108 bytes long"),
    ],
)
def test_what_is_not_an_address_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(BadAddress, match=complaint.replace("[", r"\[")) as refusal:
        parse_address(text)
    assert str(refusal.value).isprintable()


def test_the_longest_socket_path_is_taken() -> None:
    assert parse_address("unix:" + "a" * 107) == UnixAddress("a" * 107)


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1:11300", "[::1]:0", "*:11300", "localhost:1", "unix:/run/jobyard.sock"],
)
def test_the_text_of_an_address_is_how_a_user_writes_it(text: str) -> None:
    assert parse_address(text).text == text


def test_every_interface_has_one_text_for_its_two_spellings() -> None:
    assert parse_address(":7").text == "*:7"


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:1",
        "127.9.9.9:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
        "localhost:1",
        "LOCALHOST:1",
        "unix:/run/x",
    ],
)
def test_an_address_of_this_machine_alone_is_not_public(text: str) -> None:
    assert not parse_address(text).is_public


@pytest.mark.parametrize(
    "text",
    [
        ":1",
        "*:1",
        "0.0.0.0:1",
        "[::]:1",
        "10.0.0.1:1",
        "192.168.1.1:1",
        "[fe80::1]:1",
        "[::ffff:10.0.0.1]:1",
        "example.org:1",
        # Only the name itself is known to stay on this machine.
        "localhost.example.org:1",
    ],
)
def test_an_address_others_may_reach_is_public(text: str) -> None:
    assert parse_address(text).is_public


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_printable_refusal(text: str) -> None:
    complaint = ""
    try:
        address = parse_address(text)
        assert parse_address(address.text) == address
    except BadAddress as refusal:
        complaint = str(refusal)
    assert complaint.isprintable()


@given(st.integers(0, 65535))
def test_every_port_is_read_back(port: int) -> None:
    assert parse_port(str(port)) == port


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("127.0.0.1", 4711), "127.0.0.1:4711"),
        (("::1", 4711, 0, 0), "[::1]:4711"),
        ("/run/yard.sock", "/run/yard.sock:0"),
        (b"\0yard", "@yard:0"),
        ("", "?:0"),
        (None, "?:0"),
    ],
)
def test_an_end_of_a_connection_is_shown_as_tools_do(name: object, text: str) -> None:
    assert end_text(name) == text
