"""From addresses to listening sockets: bind, inherit, replace a stale socket file, drop root.

Everything here happens once, before the loop runs, and either succeeds completely or refuses the
start with one line that names the address; nothing stays bound after a refusal. Must not know which
protocol a socket serves or what accepts from it. Listening sockets are non-blocking.

`serve` creates socket files with mode 0700, for the owner only. The drop-in uses 0777 minus the
umask like the original, because its clients may run as other users.
Both replace a file on which no server listens any longer. Unlike the original, neither takes the
file from a server that still listens: that server would run on unreachable, with its jobs.
"""

import contextlib
import errno
import os
import pwd
import socket
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, final

from jobyard.config import (
    DOOR_OFF,
    DOORS,
    DROP_IN_EXIT_LISTEN,
    DROP_IN_EXIT_NO_USER,
    DROP_IN_EXIT_USER,
    EXIT_FAILED,
    Config,
)
from jobyard.errors import StartRefused
from jobyard.server.addresses import (
    Address,
    BadAddress,
    TcpAddress,
    UnixAddress,
    parse_address,
)

# As in the original; the kernel limits it to net.core.somaxconn.
BACKLOG: Final = 1024

# A name with two addresses needs one port for both: a port that is free on the first may be taken
# on the second, and then another is tried. A second try has never been needed so far.
FREE_PORT_TRIES: Final = 16

# Long enough for a running server to accept the probe into its backlog.
PROBE_TIMEOUT_S: Final = 1.0


# A peer that vanished is detected within a minute, and its jobs are given back.
KEEPALIVE_AFTER_S: Final = 30
KEEPALIVE_EVERY_S: Final = 10
KEEPALIVE_TRIES: Final = 3
PEER_TIMEOUT_MS: Final = 60_000

# Family, address and zone (the interface of a link-local IPv6 address, else 0).
Place = tuple[socket.AddressFamily, str, int]


class CannotListen(Exception):
    """One line with the address and the reason."""


@final
class DoorListener:
    """One open door: its listening sockets, and its address with the real port."""

    def __init__(self, text: str, sockets: Sequence[socket.socket], path: str = "") -> None:
        """Hold `sockets`; `path` is the socket file that was created, if any."""
        self.text = text
        self.sockets = tuple(sockets)
        self._path = path
        self._inode = os.lstat(path).st_ino if path else 0

    @property
    def port(self) -> int:
        """The port, or 0 if there is none."""
        tail = self.text.rpartition(":")[2]
        return int(tail) if tail.isdigit() else 0

    def close(self) -> None:
        """Stop listening. Remove the socket file unless another server has replaced it."""
        for sock in self.sockets:
            sock.close()
        if self._path:
            # Privileges may have been dropped; the next start replaces a leftover file.
            with contextlib.suppress(OSError):
                if os.lstat(self._path).st_ino == self._inode:
                    Path(self._path).unlink()


def open_doors(config: Config) -> dict[str, DoorListener]:
    """Open every door that is not off, then switch to `config.user`; return them by name.

    Closes everything again before it raises StartRefused.
    """
    doors: dict[str, DoorListener] = {}
    try:
        for door in DOORS:
            text: str = getattr(config, door.name)
            if text != DOOR_OFF:
                doors[door.name] = _open_door(config, text)
        if config.user is not None:
            become_user(config.user)
    except CannotListen as error:
        close_doors(doors)
        exit_code = DROP_IN_EXIT_LISTEN if config.drop_in else EXIT_FAILED
        raise StartRefused(str(error), exit_code) from error
    except StartRefused:
        close_doors(doors)
        raise
    return doors


def close_doors(doors: dict[str, DoorListener]) -> None:
    """Close every listener."""
    for listener in doors.values():
        listener.close()


def _open_door(config: Config, text: str) -> DoorListener:
    if config.socket_fds:
        return adopt_listener(config.socket_fds)
    try:
        address = parse_address(text)
    except BadAddress as error:
        raise CannotListen(str(error)) from error
    return open_listener(address, is_private=not config.drop_in)


def open_listener(address: Address, *, is_private: bool = True) -> DoorListener:
    """Listen on an address, or raise CannotListen.

    `is_private` creates a socket file that only its owner may use.
    """
    if isinstance(address, UnixAddress):
        sock = _listen_on_path(address, is_private=is_private)
        return DoorListener(address.text, [sock], address.path)
    sockets = _listen_on_host(address)
    port = sockets[0].getsockname()[1]
    return DoorListener(TcpAddress(address.host, port).text, sockets)


def adopt_listener(fds: Sequence[int]) -> DoorListener:
    """Use listening sockets that a service manager opened."""
    sockets = [_adopt(fd) for fd in fds]
    return DoorListener(_bound_text(sockets[0]), sockets)


def _adopt(fd: int) -> socket.socket:
    refusal = f"inherited descriptor {fd} is not a listening TCP or unix socket"
    try:
        sock = socket.socket(fileno=fd)
        is_listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise CannotListen(refusal) from error
    families = {socket.AF_INET, socket.AF_INET6, socket.AF_UNIX}
    if not is_listening or sock.type != socket.SOCK_STREAM or sock.family not in families:
        sock.detach()  # not ours to close
        raise CannotListen(refusal)
    os.set_inheritable(fd, False)  # noqa: FBT003 - the flag is all it takes
    sock.settimeout(0)
    if sock.family != socket.AF_UNIX:
        _set_stream_options(sock)
    return sock


def _bound_text(sock: socket.socket) -> str:
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        # An abstract name is bytes with a leading NUL, which tools show as @.
        path = name if isinstance(name, str) else "@" + name[1:].decode("ascii", "replace")
        return UnixAddress(path).text
    return TcpAddress(name[0], name[1]).text


def _listen_on_host(address: TcpAddress) -> list[socket.socket]:
    if not address.host:
        return [_listen_everywhere(address)]
    places = _resolve(address)
    for _ in range(FREE_PORT_TRIES):
        sockets = _listen_on_places(address, places)
        if sockets:
            return sockets
    raise CannotListen(f"no port is free on every address of {address.host}")


def _listen_on_places(address: TcpAddress, places: list[Place]) -> list[socket.socket]:
    """Return one socket per place, all on one port; none if port 0 gave one not free on all."""
    sockets: list[socket.socket] = []
    first_error: OSError | None = None
    port = address.port
    for family, host, zone in places:
        try:
            sock = _listen_on(family, host, port, zone)
        except OSError as error:
            is_drawn = sockets and address.port == 0
            # A machine without IPv6 may still list ::1 for localhost in its hosts file.
            is_absent = error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
            if is_absent and len(places) > 1:
                first_error = first_error or error
                continue
            for other in sockets:
                other.close()
            if is_drawn:
                return []
            raise CannotListen(_why_not(address, error)) from error
        sockets.append(sock)
        port = sock.getsockname()[1]
    if not sockets and first_error is not None:
        raise CannotListen(_why_not(address, first_error)) from first_error
    return sockets


def _listen_everywhere(address: TcpAddress) -> socket.socket:
    # One IPv6 socket that also accepts IPv4: one port to reserve, one socket to watch.
    try:
        return _listen_on(socket.AF_INET6, "::", address.port)
    except OSError as error:
        if error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
            raise CannotListen(_why_not(address, error)) from error
    try:
        return _listen_on(socket.AF_INET, "0.0.0.0", address.port)  # noqa: S104 - was asked for
    except OSError as error:
        raise CannotListen(_why_not(address, error)) from error


def _resolve(address: TcpAddress) -> list[Place]:
    try:
        found = socket.getaddrinfo(
            address.host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a host name"
        raise CannotListen(f"cannot find host {address.host}: {why}") from error
    places: set[Place] = set()
    for family, _, _, _, name in found:
        zone = int(name[3]) if len(name) == 4 else 0
        places.add((family, str(name[0]), zone))
    # IPv4 first: a free port is chosen where most clients connect.
    return sorted(places)


def _listen_on(family: socket.AddressFamily, host: str, port: int, zone: int = 0) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    with _closed_on_error(sock):
        # Without it a restart would have to wait for connections of the previous run.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Only the wildcard accepts IPv4 too, whatever the system's default is.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        _set_stream_options(sock)
        sock.bind((host, port, 0, zone) if family == socket.AF_INET6 else (host, port))
        sock.listen(BACKLOG)
        sock.settimeout(0)
    return sock


def _set_stream_options(sock: socket.socket) -> None:
    # On Linux accepted connections inherit all of these, which saves calls for each.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_AFTER_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TRIES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PEER_TIMEOUT_MS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _listen_on_path(address: UnixAddress, *, is_private: bool) -> socket.socket:
    _clear_path(address)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _closed_on_error(sock):
        # A chmod after the bind would leave a moment in which any user could connect.
        umask = os.umask(0o077) if is_private else None
        try:
            sock.bind(address.path)
        except OSError as error:
            raise CannotListen(_why_not(address, error)) from error
        finally:
            if umask is not None:
                os.umask(umask)
        sock.listen(BACKLOG)
        sock.settimeout(0)
    return sock


def _clear_path(address: UnixAddress) -> None:
    """Remove a stale socket file; refuse any other file."""
    try:
        mode = os.lstat(address.path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotListen(_why_not(address, error)) from error
    if not stat.S_ISSOCK(mode):
        raise CannotListen(f"{address.text}: a file that is not a socket already exists there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        result = probe.connect_ex(address.path)
    # EAGAIN is a full backlog: a server is there. Only a refusal proves that the file is stale.
    if result not in {errno.ECONNREFUSED, errno.ENOENT}:
        raise CannotListen(f"{address.text} is in use: another server is listening there")
    try:
        Path(address.path).unlink(missing_ok=True)
    except OSError as error:
        raise CannotListen(_why_not(address, error)) from error


@contextlib.contextmanager
def _closed_on_error(sock: socket.socket) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.callback(sock.close)
        yield
        stack.pop_all()


def _why_not(address: Address, error: OSError) -> str:
    if isinstance(address, TcpAddress):
        if error.errno == errno.EADDRINUSE:
            return f"port {address.port} is in use: another server listens on {address.text}"
        if error.errno == errno.EACCES:
            return f"port {address.port} cannot be used: ports below 1024 need privileges"
        if error.errno == errno.EADDRNOTAVAIL:
            return f"cannot listen on {address.text}: not an address of this machine"
    return f"cannot listen on {address.text}: {os.strerror(error.errno or 0)}"


def become_user(name: str) -> None:
    """Switch to this user and its groups permanently, or raise StartRefused."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise StartRefused(f"no such user: {name!r}", DROP_IN_EXIT_NO_USER) from error
    try:
        # The groups first: later they cannot be set. Root's groups must not be kept.
        if os.geteuid() == 0:
            os.initgroups(name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except OSError as error:
        raise StartRefused(
            f"cannot switch to user {name!r}: {error.strerror}", DROP_IN_EXIT_USER
        ) from error
