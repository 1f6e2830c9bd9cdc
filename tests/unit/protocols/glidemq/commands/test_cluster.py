"""What clients configured for a cluster find: one node, which has all slots."""

import pytest

from jobyard.protocols.session import Peer
from tests.support.clients.glidemq import GlideClient
from tests.support.doors.glidemq import BareGlidemq

NODE = b"f" * 40


@pytest.fixture
def client() -> GlideClient:
    return BareGlidemq().connect()


class Reached(Peer):
    """A connection that came in at an address."""

    def __init__(self, here: str) -> None:
        self._here = here

    def addresses(self) -> tuple[str, str]:
        return "10.0.0.9:50000", self._here


@pytest.mark.parametrize(
    ("here", "host", "port"),
    [("10.0.0.1:6390", "10.0.0.1", 6390), ("[::1]:6379", "::1", 6379), ("/run/yard:0", "", 6379)],
)
def test_the_node_is_where_the_client_has_reached_it(here: str, host: str, port: int) -> None:
    client = BareGlidemq().connect()
    client.session.peer = Reached(here)
    assert client.ask("CLUSTER", "SLOTS") == [[0, 16383, [host.encode(), port, NODE, []]]]
    assert f" {host}:{port}@0 ".encode() in client.ask("CLUSTER", "NODES")
    client.speak(3)
    [node] = client.ask("CLUSTER", "SHARDS")[0][b"nodes"]
    assert (node[b"ip"], node[b"endpoint"], node[b"port"]) == (host.encode(), host.encode(), port)


def test_one_node_has_all_slots(client: GlideClient) -> None:
    assert client.ask("CLUSTER", "SLOTS") == [[0, 16383, [b"", 6379, NODE, []]]]
    assert client.ask("CLUSTER", "MYID") == NODE
    assert client.ask("CLUSTER", "NODES") == (
        NODE + b" :6379@0 myself,master - 0 0 0 connected 0-16383\n"
    )
    assert b"cluster_state:ok\r\n" in client.ask("CLUSTER", "INFO")
    client.speak(3)
    [shard] = client.ask("CLUSTER", "SHARDS")
    assert shard[b"slots"] == [0, 16383]
    [node] = shard[b"nodes"]
    assert (node[b"id"], node[b"port"], node[b"role"]) == (NODE, 6379, b"master")


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        ("123456789", 12739),
        ("glide:{q}:id", 11958),
        ("glide:{q}:job:1", 11958),
        ("{}q", 14410),
        ("{q", 14869),
        ("", 0),
    ],
)
def test_the_slot_of_a_key_is_that_of_its_tag(client: GlideClient, key: str, slot: int) -> None:
    assert client.ask("CLUSTER", "KEYSLOT", key) == slot


def test_nobody_is_sent_elsewhere(client: GlideClient) -> None:
    for command in ("READONLY", "READWRITE", "ASKING"):
        assert client.ask(command) == b"OK"


def test_there_is_nothing_to_set_up(client: GlideClient) -> None:
    disabled = "ERR This instance has cluster support disabled"
    for words in (("MEET", "127.0.0.1", "6380"), ("ADDSLOTS", "1"), ("FAILOVER",), ("nonsense",)):
        assert client.refused("CLUSTER", *words) == disabled
    assert client.refused("CLUSTER", "SLOTS", "1").startswith("ERR wrong number of arguments")
    assert client.refused("CLUSTER", "KEYSLOT").startswith("ERR wrong number of arguments")
