import pytest

from tests.support.clients.glidemq import GlideClient
from tests.support.clients.resp import pack
from tests.support.doors.glidemq import BareGlidemq


@pytest.fixture
def site() -> BareGlidemq:
    return BareGlidemq()


@pytest.fixture
def client(site: BareGlidemq) -> GlideClient:
    return site.connect()


def test_ping_and_echo(client: GlideClient) -> None:
    assert client.ask("PING") == b"PONG"
    assert client.ask("ping", "hi") == b"hi"
    assert client.ask("ECHO", b"\x00\r\n") == b"\x00\r\n"


def test_inline_commands(client: GlideClient) -> None:
    client.feed(b'PING\r\nECHO "a b"\n\r\n')
    assert client.hear() == [b"PONG", b"a b"]


def test_pipelined_commands_are_answered_in_order(client: GlideClient) -> None:
    client.feed(b"".join(pack("ECHO", number) for number in range(100)))
    assert client.hear() == [str(number).encode() for number in range(100)]


def test_a_protocol_error_closes_the_connection(client: GlideClient) -> None:
    client.feed(pack("PING") + b"*1\r\n$-5\r\n" + pack("PING"))
    assert client.take_unread() == b"+PONG\r\n-ERR Protocol error: invalid bulk length\r\n"
    assert client.session.is_finished


def test_a_browser_is_hung_up_on(client: GlideClient) -> None:
    client.feed(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nPING\r\n")
    assert client.take_unread() == b""
    assert client.session.is_finished


def test_unknown_commands_and_wrong_counts(client: GlideClient) -> None:
    assert client.refused("BLPOP", "x", "0") == (
        "ERR unknown command 'BLPOP', with args beginning with: 'x' '0' "
    )
    client.feed(b"*1\r\n$6\r\nEVA\r\nL\r\n")
    assert client.take_unread() == (b"-ERR unknown command 'EVA L', with args beginning with: \r\n")
    assert client.refused("ECHO") == "ERR wrong number of arguments for 'echo' command"
    assert client.refused("PING", "a", "b") == "ERR wrong number of arguments for 'ping' command"
    assert client.refused("CLIENT", "FLY") == "ERR unknown subcommand 'FLY'. Try CLIENT HELP."
    assert client.refused("CLIENT", "SETNAME") == (
        "ERR wrong number of arguments for 'client|setname' command"
    )


def test_there_is_one_database(client: GlideClient) -> None:
    assert client.ask("SELECT", "0") == b"OK"
    assert client.refused("SELECT", "1") == "ERR DB index is out of range"
    assert client.refused("SELECT", "x") == "ERR value is not an integer or out of range"


def test_hello_changes_the_protocol(client: GlideClient) -> None:
    assert client.ask("HELLO")[:6] == [b"server", b"redis", b"version", b"7.2.4", b"proto", 2]
    client.proto = 3
    answer = client.ask("HELLO", "3", "SETNAME", "me")
    assert answer[b"proto"] == 3
    assert (answer[b"mode"], answer[b"role"], answer[b"modules"]) == (b"standalone", b"master", [])
    assert client.ask("CLIENT", "GETNAME") == b"me"
    assert client.refused("HELLO", "4") == "NOPROTO unsupported protocol version"
    assert client.refused("HELLO", "x").startswith("ERR Protocol version is not an integer")
    assert client.refused("HELLO", "3", "FLY") == "ERR Syntax error in HELLO option 'FLY'"
    assert client.ask("HELLO")[b"proto"] == 3


def test_a_password_is_asked_for_first() -> None:
    site = BareGlidemq(password=b"secret")
    client = site.connect()
    assert client.refused("PING") == "NOAUTH Authentication required."
    assert client.refused("NONSENSE") == "NOAUTH Authentication required."
    assert client.refused("HELLO", "3").startswith("NOAUTH HELLO must be called")
    assert client.ask("HELLO", "2", "AUTH", "default", "secret")
    assert client.ask("PING") == b"PONG"
    assert client.ask("RESET") == b"RESET"
    assert client.refused("PING") == "NOAUTH Authentication required."
    wrong = "WRONGPASS invalid username-password pair or user is disabled."
    assert client.refused("AUTH", "other") == wrong
    assert client.refused("AUTH", "somebody", "secret") == wrong
    assert client.refused("HELLO", "3", "AUTH", "default", "x") == wrong
    assert client.ask("AUTH", "secret") == b"OK"
    assert client.ask("PING") == b"PONG"


def test_a_stranger_cannot_send_much() -> None:
    client = BareGlidemq(password=b"secret").connect()
    client.feed(b"*11\r\n")
    assert client.take_unread() == b"-ERR Protocol error: unauthenticated multibulk length\r\n"
    assert client.session.is_finished
    client = BareGlidemq(password=b"secret").connect()
    assert client.ask("AUTH", "secret") == b"OK"
    assert client.ask("ECHO", "x" * 20_000) == b"x" * 20_000


def test_a_password_nobody_asked_for(client: GlideClient) -> None:
    assert client.refused("AUTH", "x").startswith("ERR AUTH <password> called without any password")
    assert client.ask("AUTH", "default", "x") == b"OK"


def test_quit_answers_and_closes(client: GlideClient) -> None:
    client.feed(pack("QUIT") + pack("PING"))
    assert client.take_unread() == b"+OK\r\n"
    assert client.session.is_finished


def test_clients_tell_about_themselves(site: BareGlidemq, client: GlideClient) -> None:
    other = site.connect()
    assert client.ask("CLIENT", "ID") == 1
    assert other.ask("CLIENT", "ID") == 2
    assert client.ask("CLIENT", "GETNAME") is None
    assert client.ask("CLIENT", "SETNAME", "worker-1") == b"OK"
    assert client.refused("CLIENT", "SETNAME", "a b").startswith("ERR Client names cannot contain")
    assert client.ask("CLIENT", "SETINFO", "LIB-NAME", "redis-py") == b"OK"
    assert client.ask("CLIENT", "SETINFO", "lib-ver", "8.1") == b"OK"
    assert client.refused("CLIENT", "SETINFO", "X", "y") == "ERR Unrecognized option 'X'"
    assert client.ask("CLIENT", "NO-EVICT", "on") == b"OK"
    assert client.ask("CLIENT", "NO-TOUCH", "off") == b"OK"
    (line,) = client.ask("CLIENT", "INFO").decode().splitlines()
    assert "id=1 " in line
    assert "name=worker-1 " in line
    assert line.endswith("lib-name=redis-py lib-ver=8.1")
    assert client.ask("CLIENT", "LIST").count(b"\n") == 2
    other.close()
    assert client.ask("CLIENT", "LIST").count(b"\n") == 1


def test_a_client_can_end_another(site: BareGlidemq, client: GlideClient) -> None:
    other = site.connect()
    assert client.ask("CLIENT", "KILL", "ID", "2") == 1
    assert other.session.is_finished
    assert client.ask("CLIENT", "KILL", "ID", "99") == 0


def test_answers_can_be_switched_off(client: GlideClient) -> None:
    client.send("CLIENT", "REPLY", "OFF")
    client.send("PING")
    client.send("NONSENSE")
    assert client.take_unread() == b""
    assert client.ask("CLIENT", "REPLY", "ON") == b"OK"
    client.send("CLIENT", "REPLY", "SKIP")
    client.send("PING")
    assert client.take_unread() == b""
    assert client.ask("PING") == b"PONG"


def test_a_transaction_is_answered_as_one(client: GlideClient) -> None:
    assert client.ask("MULTI") == b"OK"
    assert client.ask("SET", "glide:{q}:tpm:1", "5") == b"QUEUED"
    assert client.ask("INCRBY", "glide:{q}:tpm:1", "x") == b"QUEUED"
    assert client.ask("INCR", "glide:{q}:tpm:1") == b"QUEUED"
    client.send("EXEC")
    assert client.take_unread() == (
        b"*3\r\n+OK\r\n-ERR value is not an integer or out of range\r\n:6\r\n"
    )
    assert client.ask("GET", "glide:{q}:tpm:1") == b"6"


def test_a_transaction_with_a_mistake_is_not_run(client: GlideClient) -> None:
    client.ask("MULTI")
    client.ask("SET", "glide:{q}:tpm:1", "5")
    assert client.refused("NONSENSE").startswith("ERR unknown command")
    assert client.refused("EXEC").startswith("EXECABORT")
    assert client.ask("EXISTS", "glide:{q}:tpm:1") == 0
    client.ask("MULTI")
    assert client.refused("ECHO").startswith("ERR wrong number")
    assert client.refused("EXEC").startswith("EXECABORT")


def test_transactions_end(client: GlideClient) -> None:
    assert client.refused("EXEC") == "ERR EXEC without MULTI"
    assert client.refused("DISCARD") == "ERR DISCARD without MULTI"
    client.ask("MULTI")
    assert client.refused("MULTI") == "ERR MULTI calls can not be nested"
    client.ask("PING")
    assert client.ask("DISCARD") == b"OK"
    assert client.ask("PING") == b"PONG"
    client.ask("MULTI")
    assert client.ask("RESET") == b"RESET"
    assert client.ask("PING") == b"PONG"


def test_nothing_is_watched(client: GlideClient) -> None:
    assert client.refused("WATCH", "glide:{q}:tpm:1").startswith("ERR WATCH is not supported")
    assert client.ask("UNWATCH") == b"OK"


def test_too_much_output_waits_until_it_is_read(client: GlideClient) -> None:
    client.feed(pack("ECHO", "x" * 100_000) * 30)
    assert len(client.take_unread()) < 1_300_000
    session = client.session
    assert (session.is_stalled, session.unread_size() > 0) == (True, True)
    while session.is_stalled:
        client.resume()
    assert session.unread_size() == 0
    assert len(client.take_unread()) > 1_300_000


def test_a_command_that_does_not_grow_is_given_up(site: BareGlidemq, client: GlideClient) -> None:
    client.feed(b"*2\r\n$4\r\nECHO\r\n")
    site.tick(59_999)
    client.feed(b"$2\r\n")
    site.tick(59_999)
    assert not client.session.is_finished
    site.tick(1)
    assert client.session.is_finished


def test_a_connection_that_is_silent_stays(site: BareGlidemq, client: GlideClient) -> None:
    client.feed(b"*1\r\n$4\r\nPI")
    client.feed(b"NG\r\n")
    site.tick(600_000)
    assert not client.session.is_finished
    client.close()
