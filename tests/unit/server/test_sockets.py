import contextlib
import os
import pwd
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobyard.config import Config
from jobyard.errors import StartRefused
from jobyard.server import sockets
from jobyard.server.addresses import TcpAddress, UnixAddress
from jobyard.server.sockets import (
    CannotListen,
    DoorListener,
    adopt_listener,
    become_user,
    close_doors,
    open_doors,
    open_listener,
)


@contextlib.contextmanager
def listening(
    address: TcpAddress | UnixAddress, *, is_private: bool = True
) -> Iterator[DoorListener]:
    listener = open_listener(address, is_private=is_private)
    try:
        yield listener
    finally:
        listener.close()


def port_of(listener: DoorListener) -> int:
    return int(listener.text.rpartition(":")[2])


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def test_port_zero_becomes_a_real_port_in_the_text() -> None:
    with listening(TcpAddress("127.0.0.1", 0)) as listener:
        assert listener.text.startswith("127.0.0.1:")
        assert port_of(listener) > 0
        socket.create_connection(("127.0.0.1", port_of(listener)), 1).close()


def test_a_listening_socket_never_blocks_and_is_not_inherited() -> None:
    with listening(TcpAddress("127.0.0.1", 0)) as listener:
        (sock,) = listener.sockets
        assert not sock.getblocking()
        assert not sock.get_inheritable()
        with pytest.raises(BlockingIOError):
            sock.accept()


def test_an_accepted_connection_has_no_delay_and_keeps_alive() -> None:
    with (
        listening(TcpAddress("127.0.0.1", 0)) as listener,
        socket.create_connection(("127.0.0.1", port_of(listener)), 1),
        listener.sockets[0].accept()[0] as peer,
    ):
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_port_in_use_is_named() -> None:
    with listening(TcpAddress("127.0.0.1", 0)) as first:
        port = port_of(first)
        with pytest.raises(CannotListen, match=f"port {port} is in use.*127.0.0.1:{port}"):
            open_listener(TcpAddress("127.0.0.1", port))


def test_a_port_can_be_used_again_at_once_after_its_connections_were_closed() -> None:
    with listening(TcpAddress("127.0.0.1", 0)) as first:
        port = port_of(first)
        client = socket.create_connection(("127.0.0.1", port), 1)
        server = first.sockets[0].accept()[0]
        server.close()  # the server's end waits in TIME_WAIT
        client.close()
    with listening(TcpAddress("127.0.0.1", port)) as second:
        assert port_of(second) == port


@needs_ipv6
def test_every_interface_takes_both_families_on_one_port() -> None:
    with listening(TcpAddress("", 0)) as listener:
        assert listener.text == f"*:{port_of(listener)}"
        assert len(listener.sockets) == 1
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port_of(listener)), 1).close()


@needs_ipv6
def test_every_interface_in_use_is_named() -> None:
    with listening(TcpAddress("", 0)) as first:
        port = port_of(first)
        with pytest.raises(CannotListen, match=f"port {port} is in use"):
            open_listener(TcpAddress("", port))


def without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sockets._listen_on

    def listen_on(
        family: socket.AddressFamily, host: str, port: int, zone: int = 0
    ) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return real(family, host, port, zone)

    monkeypatch.setattr(sockets, "_listen_on", listen_on)


def test_every_interface_of_a_machine_without_ipv6_is_ipv4(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_ipv6(monkeypatch)
    with listening(TcpAddress("", 0)) as listener:
        assert listener.sockets[0].family == socket.AF_INET
        socket.create_connection(("127.0.0.1", port_of(listener)), 1).close()


@needs_ipv6
def test_one_ipv6_address_takes_no_ipv4() -> None:
    with listening(TcpAddress("::1", 0)) as listener:
        assert listener.text == f"[::1]:{port_of(listener)}"
        assert listener.sockets[0].getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


def two_addresses(*_args: object, **_kwargs: object) -> list[tuple[object, ...]]:
    return [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]


@needs_ipv6
def test_a_name_with_two_addresses_gets_one_port_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    with listening(TcpAddress("both.test", 0)) as listener:
        assert listener.text == f"both.test:{port_of(listener)}"
        names = [sock.getsockname()[:2] for sock in listener.sockets]
        assert names == [("127.0.0.1", port_of(listener)), ("::1", port_of(listener))]


def test_a_name_whose_ipv6_address_is_absent_keeps_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    without_ipv6(monkeypatch)
    with listening(TcpAddress("both.test", 0)) as listener:
        assert [sock.family for sock in listener.sockets] == [socket.AF_INET]


@needs_ipv6
def test_a_port_free_on_one_address_only_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    real = sockets._listen_on
    refused: list[int] = []

    def listen_on(
        family: socket.AddressFamily, host: str, port: int, zone: int = 0
    ) -> socket.socket:
        if family == socket.AF_INET6 and not refused:
            refused.append(port)
            raise OSError(98, "Address already in use")
        return real(family, host, port, zone)

    monkeypatch.setattr(sockets, "_listen_on", listen_on)
    with listening(TcpAddress("both.test", 0)) as listener:
        assert len(listener.sockets) == 2
    assert len(refused) == 1


@needs_ipv6
def test_a_fixed_port_taken_on_one_address_is_refused_and_the_other_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    with listening(TcpAddress("::1", 0)) as taken:
        port = port_of(taken)
        with pytest.raises(CannotListen, match=f"port {port} is in use"):
            open_listener(TcpAddress("both.test", port))
    with listening(TcpAddress("127.0.0.1", port)):
        pass


def test_a_name_that_does_not_exist_is_named() -> None:
    with pytest.raises(CannotListen, match=r"cannot find host nowhere\.invalid"):
        open_listener(TcpAddress("nowhere.invalid", 0))


def test_a_name_that_can_be_none_is_refused() -> None:
    with pytest.raises(CannotListen, match="cannot find host"):
        open_listener(TcpAddress("a" * 70 + ".invalid", 0))


def test_an_address_of_another_machine_is_refused() -> None:
    # 192.0.2.0/24 is reserved for documents: no machine has it.
    with pytest.raises(CannotListen, match="not an address of this machine"):
        open_listener(TcpAddress("192.0.2.1", 0))


def test_a_socket_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    before = os.umask(0o022)
    try:
        with listening(UnixAddress(str(path))) as listener:
            assert listener.text == f"unix:{path}"
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_the_drop_ins_socket_file_follows_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "s"
    before = os.umask(0o027)
    try:
        with listening(UnixAddress(str(path)), is_private=False):
            assert stat.S_IMODE(path.stat().st_mode) == 0o750
    finally:
        os.umask(before)


def test_a_socket_file_goes_with_its_listener(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(UnixAddress(str(path))), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    assert not path.exists()


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    with listening(UnixAddress(str(path))), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_socket_file_in_use_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(UnixAddress(str(path))):
        inode = path.stat().st_ino
        with pytest.raises(CannotListen, match="is in use"):
            open_listener(UnixAddress(str(path)))
        assert path.stat().st_ino == inode


def test_a_full_backlog_is_a_server_in_use(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(str(path))
        busy.listen(0)
        while True:
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(0)
            if client.connect_ex(str(path)) != 0:
                break
        with pytest.raises(CannotListen, match="is in use"):
            open_listener(UnixAddress(str(path)))


@pytest.mark.parametrize("kind", ["file", "folder", "link", "fifo"])
def test_another_kind_of_file_is_refused_and_kept(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("elsewhere")
    else:
        os.mkfifo(path)
    with pytest.raises(CannotListen, match="not a socket already exists"):
        open_listener(UnixAddress(str(path)))
    assert path.is_symlink() or path.exists()


def test_a_socket_file_in_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match="No such file or directory"):
        open_listener(UnixAddress(str(tmp_path / "none" / "s")))


def test_a_socket_file_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(CannotListen, match="Not a directory"):
        open_listener(UnixAddress(str(tmp_path / "f" / "s")))


def test_closing_leaves_the_socket_file_of_a_successor(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = open_listener(UnixAddress(str(path)))
    aside = tmp_path / "aside"
    path.rename(aside)  # keeps the first inode in use, so that the second cannot get its number
    with listening(UnixAddress(str(path))):
        first.close()
        assert path.exists()


def test_an_inherited_socket_is_adopted() -> None:
    theirs = socket.socket()
    theirs.bind(("127.0.0.1", 0))
    theirs.listen()
    os.set_inheritable(theirs.fileno(), True)  # noqa: FBT003 - the flag is all it takes
    port = theirs.getsockname()[1]
    listener = adopt_listener([theirs.detach()])
    assert listener.text == f"127.0.0.1:{port}"
    assert not listener.sockets[0].getblocking()
    assert not listener.sockets[0].get_inheritable()
    socket.create_connection(("127.0.0.1", port), 1).close()
    listener.close()


def test_an_inherited_socket_file_stays_when_we_go(tmp_path: Path) -> None:
    path = tmp_path / "s"
    theirs = socket.socket(socket.AF_UNIX)
    theirs.bind(str(path))
    theirs.listen()
    listener = adopt_listener([theirs.detach()])
    assert listener.text == f"unix:{path}"
    listener.close()
    assert path.exists()  # the service manager made it and will use it again


def test_an_inherited_abstract_socket_has_a_name() -> None:
    theirs = socket.socket(socket.AF_UNIX)
    theirs.bind(f"\0jobyard-test-{os.getpid()}")
    theirs.listen()
    listener = adopt_listener([theirs.detach()])
    assert listener.text == f"unix:@jobyard-test-{os.getpid()}"
    listener.close()


def make_unfit(kind: str) -> int:
    if kind == "datagram":
        sock = socket.socket(type=socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        return sock.detach()
    if kind == "silent":
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        return sock.detach()
    reading, writing = os.pipe()
    os.close(writing)
    return reading


@pytest.mark.parametrize("kind", ["datagram", "silent", "pipe"])
def test_what_cannot_accept_is_not_adopted(kind: str) -> None:
    fd = make_unfit(kind)
    try:
        with pytest.raises(CannotListen, match=f"descriptor {fd} is not a listening"):
            adopt_listener([fd])
    finally:
        os.close(fd)


def test_a_descriptor_that_is_not_open_is_not_adopted() -> None:
    with pytest.raises(CannotListen, match="is not a listening"):
        adopt_listener([1_000_000])


def test_every_door_is_opened_by_name() -> None:
    free = "127.0.0.1:0"
    doors = open_doors(Config(beanstalk=free, bunqueue=free, glidemq=free, http=free))
    assert list(doors) == ["beanstalk", "bunqueue", "glidemq", "http"]
    assert all(port_of(door) > 0 for door in doors.values())
    close_doors(doors)


def test_a_door_that_is_off_is_not_opened() -> None:
    assert open_doors(Config(beanstalk="off", bunqueue="off", http="off", glidemq="off")) == {}


def test_inherited_sockets_replace_the_address() -> None:
    theirs = socket.socket()
    theirs.bind(("127.0.0.1", 0))
    theirs.listen()
    port = theirs.getsockname()[1]
    doors = open_doors(
        Config(
            beanstalk="192.0.2.1:1",
            bunqueue="off",
            http="off",
            glidemq="off",
            socket_fds=(theirs.detach(),),
        )
    )
    assert doors["beanstalk"].text == f"127.0.0.1:{port}"
    close_doors(doors)


@pytest.mark.parametrize(("drop_in", "exit_code"), [(False, 1), (True, 111)])
def test_a_door_that_cannot_open_refuses_the_start(*, drop_in: bool, exit_code: int) -> None:
    with pytest.raises(StartRefused, match="not an address of this machine") as refusal:
        open_doors(
            Config(
                beanstalk="192.0.2.1:0", bunqueue="off", http="off", glidemq="off", drop_in=drop_in
            )
        )
    assert refusal.value.exit_code == exit_code


def test_a_door_without_a_sensible_address_refuses_the_start() -> None:
    with pytest.raises(StartRefused, match="has no port"):
        open_doors(Config(beanstalk="nonsense", bunqueue="off", http="off", glidemq="off"))


def test_the_drop_ins_door_follows_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "s"
    before = os.umask(0o022)
    try:
        config = Config(
            beanstalk=f"unix:{path}", bunqueue="off", http="off", glidemq="off", drop_in=True
        )
        doors = open_doors(config)
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
        close_doors(doors)
    finally:
        os.umask(before)


def test_a_user_who_does_not_exist_refuses_the_start_with_all_doors_closed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with pytest.raises(StartRefused, match="no such user: 'no-such-user'") as refusal:
        open_doors(
            Config(
                beanstalk=f"unix:{path}",
                bunqueue="off",
                http="off",
                glidemq="off",
                user="no-such-user",
                drop_in=True,
            )
        )
    assert refusal.value.exit_code == 33
    assert not path.exists()


def test_becoming_oneself_is_no_trouble() -> None:
    become_user(pwd.getpwuid(os.getuid()).pw_name)


def test_a_user_we_may_not_become_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def setgid(_gid: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "initgroups", lambda _name, _gid: None)
    monkeypatch.setattr(os, "setgid", setgid)
    with pytest.raises(StartRefused, match="cannot switch to user 'root'") as refusal:
        become_user("root")
    assert refusal.value.exit_code == 34


def test_root_gives_its_groups_away_before_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "initgroups", lambda *args: calls.append(("initgroups", *args)))
    monkeypatch.setattr(os, "setgid", lambda *args: calls.append(("setgid", *args)))
    monkeypatch.setattr(os, "setuid", lambda *args: calls.append(("setuid", *args)))
    entry = pwd.getpwnam("daemon")
    become_user("daemon")
    assert calls == [
        ("initgroups", "daemon", entry.pw_gid),
        ("setgid", entry.pw_gid),
        ("setuid", entry.pw_uid),
    ]
