"""Commands about the server: INFO, CONFIG GET, SLOWLOG, LATENCY, ROLE, TIME."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from jobyard import __version__
from jobyard.engine.state.health import DISK_FULL, problems
from jobyard.model.glidemq.stored_values import FIRST_ID, LAST_ID, ValueKind
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.commands.streams import write_entry
from jobyard.protocols.glidemq.door import REDIS_VERSION
from jobyard.protocols.glidemq.errors import (
    NO_SCRIPTS,
    Wrong,
    unknown_subcommand,
    wrong_count,
)
from jobyard.protocols.glidemq.groups.workers import groups_count, info_consumers, info_groups
from jobyard.wire.glob import is_match
from jobyard.wire.resp.write import (
    write_array,
    write_bulk,
    write_integer,
    write_map,
    write_nil,
    write_ok,
    write_text,
    write_verbatim,
)

# Cost of checking a connection.
_CLIENT_NS: Final = 50

Lines = Callable[[Call], list[str]]


def _server(call: Call) -> list[str]:
    facts = call.door.facts
    up_s = max(call.now_ms - call.door.started_ms, 0) // 1000
    _host, os_version, platform = facts.machine()
    return [
        f"redis_version:{REDIS_VERSION}",
        "server_name:jobyard",
        f"jobyard_version:{__version__}",
        "redis_mode:standalone",
        "server_mode:standalone",
        f"os:{os_version} {platform}",
        "arch_bits:64",
        f"process_id:{facts.pid()}",
        f"run_id:{facts.run_id()}",
        f"tcp_port:{facts.port()}",
        f"server_time_usec:{call.door.wall_ms(call.now_ms) * 1000}",
        f"uptime_in_seconds:{up_s}",
        f"uptime_in_days:{up_s // 86400}",
    ]


def _clients(call: Call) -> list[str]:
    call.session.work_ns += len(call.door.sessions) * _CLIENT_NS
    blocked = [one for one in call.door.sessions.values() if one.is_blocked()]
    return [
        f"connected_clients:{len(call.door.sessions)}",
        f"blocked_clients:{len(blocked)}",
    ]


def _memory(call: Call) -> list[str]:
    used = call.door.facts.memory_bytes()
    return [
        f"used_memory:{used}",
        f"used_memory_human:{used / (1 << 20):.2f}M",
        f"used_memory_rss:{used}",
        f"used_memory_dataset:{call.yard.bodies.in_memory}",
        "maxmemory:0",
        "maxmemory_human:0B",
        "maxmemory_policy:noeviction",
    ]


def _persistence(call: Call) -> list[str]:
    journal = call.yard.journal
    found = problems(call.yard)
    return [
        "loading:0",
        "rdb_bgsave_in_progress:0",
        f"aof_enabled:{1 if journal.is_on else 0}",
        "aof_rewrite_in_progress:0",
        f"aof_last_write_status:{'err' if DISK_FULL in found else 'ok'}",
        f"jobyard_problems:{','.join(found)}",
        f"jobyard_damaged_jobs:{len(journal.damages.jobs)}",
        f"jobyard_damaged_records:{journal.damages.texts_count}",
        f"jobyard_damaged_segments:{len(journal.damages.segments)}",
        f"jobyard_corrupt_reads:{journal.damages.reads_count}",
        f"jobyard_results_lost:{journal.results_lost}",
        f"jobyard_done_jobs_lost:{journal.done_lost}",
    ]


def _stats(call: Call) -> list[str]:
    return [
        f"total_connections_received:{call.door.sessions_total}",
        f"total_commands_processed:{call.door.commands_count}",
        f"total_net_input_bytes:{call.door.read_bytes}",
        "evicted_keys:0",
        f"total_error_replies:{call.door.errors_count}",
        f"jobyard_unexpected_errors:{call.yard.errors.survived_count}",
        *[f"jobyard_jobs_{name}:{count}" for name, count in call.yard.counters.totals().items()],
        f"jobyard_connection_memory:{call.door.shared_limits.held}",
        f"jobyard_failed_authentications:{call.door.shared_limits.attempts.failed_count}",
        f"jobyard_inputs_refused:{call.door.shared_limits.inputs_refused}",
        f"jobyard_outputs_cut:{call.door.shared_limits.outputs_cut}",
        f"rejected_connections:{call.door.shared_limits.connections_refused}",
    ]


def _replication(call: Call) -> list[str]:
    return [
        "role:master",
        "connected_slaves:0",
        "master_failover_state:no-failover",
        f"master_replid:{call.door.facts.run_id()}",
        "master_repl_offset:0",
        "repl_backlog_active:0",
    ]


def _cpu(call: Call) -> list[str]:
    user, system = call.door.facts.cpu_times()
    return [f"used_cpu_sys:{system:.6f}", f"used_cpu_user:{user:.6f}"]


def _modules(_call: Call) -> list[str]:
    return []


def _cluster(_call: Call) -> list[str]:
    return ["cluster_enabled:0"]


def _keyspace(call: Call) -> list[str]:
    # Approximate: one key per job, and the stored keys. DBSIZE counts exactly.
    count = call.yard.jobs.count + call.yard.stored_values.keys.count
    expiring = call.yard.stored_values.expiring_count
    return [f"db0:keys={count},expires={expiring},avg_ttl=0"] if count > 0 else []


_SECTIONS: Final[dict[str, Lines]] = {
    "Server": _server,
    "Clients": _clients,
    "Memory": _memory,
    "Persistence": _persistence,
    "Stats": _stats,
    "Replication": _replication,
    "CPU": _cpu,
    "Modules": _modules,
    "Cluster": _cluster,
    "Keyspace": _keyspace,
}
_ALL: Final = frozenset({"all", "default", "everything"})


def info(call: Call) -> None:
    """Answer with facts about the server, in sections."""
    wanted = {call.command.text(at).lower() for at in range(1, call.count())}
    is_all = not wanted or not wanted.isdisjoint(_ALL)
    parts: list[str] = []
    for name, lines in _SECTIONS.items():
        if is_all or name.lower() in wanted:
            parts.append("\r\n".join([f"# {name}", *lines(call), ""]))
    write_verbatim(call.out, "\r\n".join(parts), call.proto)


def config(call: Call) -> None:
    """Answer with settings; they cannot be changed this way."""
    if call.is_word(1, b"RESETSTAT"):
        write_ok(call.out)
        return
    if not call.is_word(1, b"GET"):
        if call.is_word(1, b"SET") or call.is_word(1, b"REWRITE"):
            raise Wrong("ERR CONFIG cannot change settings: they are given when the server starts")
        raise unknown_subcommand("CONFIG", call.command.text(1))
    if call.count() < 3:
        raise wrong_count("config|get")
    is_on = call.yard.journal.is_on
    values = {
        "appendonly": "yes" if is_on else "no",
        "appendfsync": "always" if call.door.is_synced else "everysec",
        "save": "",
        "databases": "1",
        "maxmemory": "0",
        "maxmemory-policy": "noeviction",
        "maxclients": "10000",
        "timeout": "0",
        "proto-max-bulk-len": str(64 << 20),
        "bind": "",
        "port": str(call.door.facts.port()),
        "requirepass": "",
        "cluster-enabled": "no",
        "notify-keyspace-events": "",
        "slowlog-log-slower-than": "-1",
        "slowlog-max-len": "0",
    }
    patterns = [call.arg(at).lower() for at in range(2, call.count())]
    found = {
        name: value
        for name, value in values.items()
        if any(is_match(pattern, name.encode()) for pattern in patterns)
    }
    write_map(call.out, len(found), call.proto)
    for name, value in found.items():
        write_text(call.out, name)
        write_text(call.out, value)


def slowlog(call: Call) -> None:
    """Answer that there are no slow commands: none are recorded."""
    if call.is_word(1, b"GET"):
        write_array(call.out, 0)
    elif call.is_word(1, b"LEN"):
        write_integer(call.out, 0)
    elif call.is_word(1, b"RESET"):
        write_ok(call.out)
    else:
        raise unknown_subcommand("SLOWLOG", call.command.text(1))


def latency(call: Call) -> None:
    """Answer that there are no latency spikes: none are recorded."""
    if call.is_word(1, b"LATEST") or call.is_word(1, b"HISTORY"):
        write_array(call.out, 0)
    elif call.is_word(1, b"RESET"):
        write_integer(call.out, 0)
    elif call.is_word(1, b"DOCTOR"):
        write_verbatim(call.out, "Latency is not monitored.", call.proto)
    else:
        raise unknown_subcommand("LATENCY", call.command.text(1))


def role(call: Call) -> None:
    """Answer that this server is the master."""
    write_array(call.out, 3)
    write_bulk(call.out, b"master")
    write_integer(call.out, 0)
    write_array(call.out, 0)


def time(call: Call) -> None:
    """Answer with the time: seconds, and the microseconds within the second."""
    wall_ms: i64 = call.door.wall_ms(call.now_ms)
    write_array(call.out, 2)
    write_text(call.out, str(wall_ms // 1000))
    write_text(call.out, str(wall_ms % 1000 * 1000))


def module(call: Call) -> None:
    """Answer that there are no modules."""
    if not call.is_word(1, b"LIST"):
        raise unknown_subcommand("MODULE", call.command.text(1))
    write_array(call.out, 0)


def acl(call: Call) -> None:
    """Answer with the only user."""
    if not call.is_word(1, b"WHOAMI"):
        raise unknown_subcommand("ACL", call.command.text(1))
    write_bulk(call.out, b"default")


def evaluate(_call: Call) -> None:
    """Refuse to run a script, and say what works instead."""
    raise Wrong(NO_SCRIPTS)


def script(call: Call) -> None:
    """Answer that no script exists: scripts are not supported."""
    if not call.is_word(1, b"EXISTS"):
        raise Wrong(NO_SCRIPTS)
    write_array(call.out, call.count() - 2)
    for _ in range(2, call.count()):
        write_integer(call.out, 0)


def xinfo(call: Call) -> None:
    """Describe a stream, its consumer groups, or the consumers of a group."""
    if call.is_word(1, b"GROUPS") and call.count() == 3:
        info_groups(call)
        return
    if call.is_word(1, b"CONSUMERS") and call.count() == 4:
        info_consumers(call)
        return
    if not call.is_word(1, b"STREAM") or call.count() < 3:
        raise unknown_subcommand("XINFO", call.command.text(1))
    key = call.found(2, ValueKind.STREAM)
    if key is None:
        raise Wrong("ERR no such key")
    last = key.last_id()
    out = call.out
    write_map(out, 5, call.proto)
    write_bulk(out, b"length")
    write_integer(out, key.entries_count())
    write_bulk(out, b"last-generated-id")
    write_text(out, f"{last[0]}-{last[1]}")
    write_bulk(out, b"groups")
    write_integer(out, groups_count(call))
    for name, is_last in ((b"first-entry", False), (b"last-entry", True)):
        write_bulk(out, name)
        found = key.entries(FIRST_ID, LAST_ID, 1, is_reversed=is_last)
        if found:
            write_entry(out, found[0])
        else:
            write_nil(out, call.proto)
