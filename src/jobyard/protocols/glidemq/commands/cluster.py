"""Commands of clients that are configured for a cluster: they see a cluster of one node.

That node has all slots, so clients are never redirected, and one command may name keys of different
queues. INFO reports that there is no cluster, because there is nothing to manage.
"""

from typing import Final

from mypy_extensions import i64

from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import NO_CLUSTER, Wrong, wrong_count
from jobyard.wire.resp.write import (
    write_array,
    write_bulk,
    write_integer,
    write_map,
    write_ok,
    write_verbatim,
)

SLOTS_COUNT: Final = 16384
_POLYNOMIAL: Final = 0x1021


def cluster(call: Call) -> None:
    """Describe the one node; refuse to change a cluster that does not exist."""
    sub = call.command.word(1)
    if sub == b"KEYSLOT":
        if call.count() != 3:
            raise wrong_count("cluster|keyslot")
        write_integer(call.out, slot_of(call.arg(2)))
        return
    if sub not in (b"SLOTS", b"SHARDS", b"NODES", b"INFO", b"MYID"):
        raise Wrong(NO_CLUSTER)
    if call.count() != 2:
        raise wrong_count(f"cluster|{sub.decode().lower()}")
    if sub == b"SLOTS":
        _write_slots(call)
    elif sub == b"SHARDS":
        _write_shards(call)
    elif sub == b"NODES":
        host, port = _here(call)
        line = f"{call.door.facts.run_id()} {host}:{port}@0 myself,master - 0 0 0"
        write_verbatim(call.out, f"{line} connected 0-{SLOTS_COUNT - 1}\n", call.proto)
    elif sub == b"INFO":
        write_verbatim(call.out, "\r\n".join(_info()) + "\r\n", call.proto)
    else:
        write_bulk(call.out, call.door.facts.run_id().encode())


def stay(call: Call) -> None:
    """Accept a command for cluster nodes that has nothing to do here."""
    write_ok(call.out)


def _here(call: Call) -> tuple[str, int]:
    """Return the address at which the client reached the node.

    Some clients take an empty host for the one they asked; others wait forever.
    """
    host, _, port = call.session.peer.addresses()[1].rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not port.isdigit() or int(port) == 0:
        # It came in by a Unix socket, or has just disconnected.
        return "", call.door.facts.port()
    return host, int(port)


def _write_slots(call: Call) -> None:
    host, port = _here(call)
    out = call.out
    write_array(out, 1)
    write_array(out, 3)
    write_integer(out, 0)
    write_integer(out, SLOTS_COUNT - 1)
    write_array(out, 4)
    write_bulk(out, host.encode())
    write_integer(out, port)
    write_bulk(out, call.door.facts.run_id().encode())
    write_array(out, 0)


def _write_shards(call: Call) -> None:
    host, port = _here(call)
    out, proto = call.out, call.proto
    write_array(out, 1)
    write_map(out, 2, proto)
    write_bulk(out, b"slots")
    write_array(out, 2)
    write_integer(out, 0)
    write_integer(out, SLOTS_COUNT - 1)
    write_bulk(out, b"nodes")
    write_array(out, 1)
    write_map(out, 7, proto)
    for name, text in (
        (b"id", call.door.facts.run_id().encode()),
        (b"ip", host.encode()),
        (b"endpoint", host.encode()),
        (b"role", b"master"),
        (b"health", b"online"),
    ):
        write_bulk(out, name)
        write_bulk(out, text)
    write_bulk(out, b"port")
    write_integer(out, port)
    write_bulk(out, b"replication-offset")
    write_integer(out, 0)


def _info() -> list[str]:
    return [
        "cluster_state:ok",
        f"cluster_slots_assigned:{SLOTS_COUNT}",
        f"cluster_slots_ok:{SLOTS_COUNT}",
        "cluster_slots_pfail:0",
        "cluster_slots_fail:0",
        "cluster_known_nodes:1",
        "cluster_size:1",
    ]


def slot_of(key: bytes) -> i64:
    """Return the slot of a key: the hash of its first non-empty {tag}, else of the whole key."""
    _, opened, tail = key.partition(b"{")
    tag, closed, _ = tail.partition(b"}")
    hashed = tag if opened and closed and tag else key
    crc: i64 = 0
    for byte in hashed:
        crc ^= i64(byte) << 8
        for _ in range(8):
            crc = (crc << 1) ^ _POLYNOMIAL if crc & 0x8000 else crc << 1
        crc &= 0xFFFF
    return crc % SLOTS_COUNT
