import pytest

from tests.support.clients.glidemq import GlideClient
from tests.support.doors.glidemq import BareGlidemq

KEY = "glide:{q}:schedulers"


@pytest.fixture
def client() -> GlideClient:
    return BareGlidemq().connect()


def sections(text: bytes) -> list[str]:
    return [line[2:] for line in text.decode().split("\r\n") if line.startswith("# ")]


def test_info_has_sections(client: GlideClient) -> None:
    everything = client.ask("INFO")
    assert {"Server", "Clients", "Replication", "Keyspace"} <= set(sections(everything))
    replication = client.ask("INFO", "REPLICATION")
    assert sections(replication) == ["Replication"]
    assert b"\r\nrole:master\r\n" in replication
    assert sections(client.ask("INFO", "server", "cpu")) == ["Server", "CPU"]
    assert client.ask("INFO", "nonsense") == b""
    client.ask("HSET", KEY, "a", "b")
    assert b"db0:keys=1,expires=0" in client.ask("INFO", "keyspace")


def test_keys_that_go_by_themselves_are_counted(client: GlideClient) -> None:
    def expiring() -> bytes:
        told: bytes = client.ask("INFO", "keyspace")
        return told.partition(b"expires=")[2].partition(b",")[0]

    keys = [f"glide:{{q}}:w:{at}" for at in range(3)]
    for key in keys:
        client.ask("SET", key, "x", "EX", 60)
    client.ask("SET", keys[0], "y", "EX", 30)
    client.ask("SET", "glide:{q}:tpm:1", "x")
    assert expiring() == b"3"
    client.ask("DEL", keys[1])
    assert expiring() == b"2"


def test_info_is_for_people_in_version_3(client: GlideClient) -> None:
    client.speak(3)
    client.send("INFO", "cluster")
    assert client.take_unread() == b"=34\r\ntxt:# Cluster\r\ncluster_enabled:0\r\n\r\n"


def test_config_tells_a_little_and_sets_nothing(client: GlideClient) -> None:
    assert client.ask("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"0"]
    assert client.ask("CONFIG", "GET", "append*", "x") == [
        b"appendonly", b"no", b"appendfsync", b"always",
    ]  # fmt: skip
    assert client.ask("CONFIG", "GET", "nonsense") == []
    assert client.refused("CONFIG", "SET", "maxmemory", "1").startswith("ERR CONFIG cannot change")
    client.speak(3)
    assert client.ask("CONFIG", "GET", "databases") == {b"databases": b"1"}


def test_what_dashboards_ask(client: GlideClient) -> None:
    assert client.ask("SLOWLOG", "GET") == []
    assert client.ask("SLOWLOG", "LEN") == 0
    assert client.ask("LATENCY", "LATEST") == []
    assert client.ask("MODULE", "LIST") == []
    assert client.ask("ROLE") == [b"master", 0, []]
    assert client.ask("ACL", "WHOAMI") == b"default"
    assert client.ask("TIME") == [b"1700000000", b"0"]
    assert client.ask("DBSIZE") == 0


def test_memory_and_encoding_of_a_key(client: GlideClient) -> None:
    assert client.ask("MEMORY", "USAGE", KEY) is None
    assert client.ask("OBJECT", "ENCODING", KEY) is None
    client.ask("HSET", KEY, "a", "b")
    assert client.ask("MEMORY", "USAGE", KEY) > 0
    assert client.ask("OBJECT", "ENCODING", KEY) == b"hashtable"


def test_commands_are_reported(client: GlideClient) -> None:
    names = client.ask("COMMAND", "LIST")
    assert client.ask("COMMAND", "COUNT") == len(names) == len(client.ask("COMMAND"))
    (get, nothing) = client.ask("COMMAND", "INFO", "get", "nonsense")
    assert get[:6] == [b"get", 2, [b"readonly", b"fast"], 1, 1, 1]
    assert nothing is None
    docs = client.ask("COMMAND", "DOCS", "GET", "nonsense")
    assert docs == [b"get", [b"summary", b"See the Valkey documentation"]]
    assert len(client.ask("COMMAND", "DOCS")) == 2 * len(names)


def test_keys_of_commands(client: GlideClient) -> None:
    assert client.ask("COMMAND", "GETKEYS", "DEL", "a", "b") == [b"a", b"b"]
    assert client.ask("COMMAND", "GETKEYS", "HSET", "a", "b", "c") == [b"a"]
    assert client.ask("COMMAND", "GETKEYS", "FCALL", "f", "2", "a", "b", "c") == [b"a", b"b"]
    assert client.refused("COMMAND", "GETKEYS", "PING") == "ERR The command has no key arguments"
    assert client.refused("COMMAND", "GETKEYS", "NONE") == "ERR Invalid command specified"


def test_no_command_brings_the_session_down_whatever_its_arguments(client: GlideClient) -> None:
    words = ["glide:{q}:w:1", "0", "-1", "x", "", "COUNT", "STREAMS", "glide:{q}:jstream:1"]
    for name in client.ask("COMMAND", "LIST"):
        if name in (b"quit", b"multi", b"client", b"hello", b"reset", b"xread"):
            continue
        for count in range(7):
            for first in range(len(words)):
                arguments = (words[first:] + words[:first])[:count]
                client.send(name, *arguments)
                assert client.take_unread(), (name, arguments)


def test_functions(client: GlideClient) -> None:
    assert client.ask("FCALL", "glidemq_version", "0") == b"93"
    assert client.ask("FCALL", "glidemq_version", "1", "{glidemq}:_") == b"93"
    assert client.ask("fcall", "glidemq_version", "0") == b"93"
    assert client.refused("FCALL", "x") == "ERR wrong number of arguments for 'fcall' command"
    assert client.refused("FCALL", "nonsense", "0") == "ERR Function not found"
    assert client.refused("FCALL", "glidemq_version", "x") == "ERR Bad number of keys provided"
    assert client.refused("FCALL", "glidemq_version", "-1").endswith("can't be negative")
    assert client.refused("FCALL", "glidemq_version", "2", "a").endswith("than number of args")
    assert "write flag" in client.refused("FCALL_RO", "glidemq_version", "0")


def test_the_library_is_there_whatever_is_loaded(client: GlideClient) -> None:
    code = "#!lua name=glidemq\nredis.register_function('x', function() end)"
    assert client.ask("FUNCTION", "LOAD", "REPLACE", code) == b"glidemq"
    assert "already exists" in client.refused("FUNCTION", "LOAD", code)
    assert "cannot be loaded" in client.refused("FUNCTION", "LOAD", "#!lua name=mine\n")
    assert client.refused("FUNCTION", "LOAD", "return 1") == "ERR Missing library metadata"
    assert client.refused("FUNCTION", "LOAD", "#!lua\n") == "ERR Library name was not given"
    assert "cannot be changed" in client.refused("FUNCTION", "DELETE", "glidemq")
    (library,) = client.ask("FUNCTION", "LIST")
    assert library[:2] == [b"library_name", b"glidemq"]
    assert client.ask("FUNCTION", "LIST", "LIBRARYNAME", "mine") == []
    stats = client.ask("FUNCTION", "STATS")
    assert stats[:2] == [b"running_script", None]
    assert client.ask("FCALL", "glidemq_version", "0") == b"93"
