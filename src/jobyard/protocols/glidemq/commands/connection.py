"""Commands about the connection itself: HELLO, AUTH, CLIENT, PING, MULTI and the like."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.client import REPLIES_OFF, REPLIES_ON, REPLIES_SKIP
from jobyard.protocols.glidemq.door import REDIS_VERSION
from jobyard.protocols.glidemq.errors import (
    NO_PROTO,
    NOT_INTEGER,
    SYNTAX,
    WRONG_PAIR,
    Denied,
    Wrong,
    unknown_subcommand,
    wrong_count,
)
from jobyard.protocols.glidemq.many_arguments import for_each
from jobyard.wire.resp.write import (
    write_array,
    write_bulk,
    write_integer,
    write_map,
    write_nil,
    write_ok,
    write_simple,
    write_text,
    write_verbatim,
)

DEFAULT_USER: Final = b"default"
# Cost of describing a connection, whose addresses come from the kernel.
_LINE_UNITS: Final = 8

_NOTHING_TO_SAY: Final = (
    "ERR AUTH <password> called without any password configured for the default user. "
    "Are you sure your configuration is correct?"
)
_HELLO_FIRST: Final = (
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
    "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP "
    "protocol version at the same time"
)


def ping(call: Call) -> None:
    """Answer PONG, or echo the argument."""
    if call.count() > 2:
        raise wrong_count("ping")
    if call.count() == 2:
        write_bulk(call.out, call.arg(1))
    else:
        write_simple(call.out, b"PONG")


def echo(call: Call) -> None:
    """Echo the argument."""
    write_bulk(call.out, call.arg(1))


def leave(call: Call) -> None:
    """Close once everything is answered."""
    write_ok(call.out)
    call.session.is_finished = True


def select(call: Call) -> None:
    """Select the only database."""
    if call.integer(1) != 0:
        raise Wrong("ERR DB index is out of range")
    write_ok(call.out)


def auth(call: Call) -> None:
    """Check the password."""
    if call.count() > 3:
        raise Wrong(SYNTAX)
    is_named = call.count() == 3
    user = call.arg(1) if is_named else DEFAULT_USER
    _authenticate(call, user, call.arg(2 if is_named else 1), is_named=is_named)
    write_ok(call.out)


def _authenticate(call: Call, user: bytes, password: bytes, *, is_named: bool) -> None:
    if not call.door.password:
        # A default user without a password accepts any password, if the user is named.
        if not is_named:
            raise Wrong(_NOTHING_TO_SAY)
        if user != DEFAULT_USER:
            raise Wrong(WRONG_PAIR)
    elif not call.door.shared_limits.attempts.may_try(call.session.peer.host(), call.now_ms):
        raise Wrong("ERR too many failed attempts, try again later")
    elif not call.door.is_right(password) or user != DEFAULT_USER:
        raise Denied(WRONG_PAIR)
    call.session.authenticate()


def hello(call: Call) -> None:
    """Agree on a protocol version; describe the server."""
    proto: i64 = call.session.proto
    if call.count() > 1:
        wanted = call.command.integer(1)
        if wanted is None:
            raise Wrong("ERR Protocol version is not an integer or out of range")
        if wanted not in (2, 3):
            raise Wrong(NO_PROTO)
        proto = wanted
    name: bytes | None = None
    at: i64 = 2
    while at < call.count():
        if call.is_word(at, b"AUTH") and at + 2 < call.count():
            _authenticate(call, call.arg(at + 1), call.arg(at + 2), is_named=True)
            at += 3
        elif call.is_word(at, b"SETNAME") and at + 1 < call.count():
            name = _checked_name(call.arg(at + 1))
            at += 2
        else:
            option = call.command.text(at)[:128]
            raise Wrong(f"ERR Syntax error in HELLO option '{option}'")
    if not call.session.is_known:
        raise Wrong(_HELLO_FIRST)
    if name is not None:
        call.session.name = name
    call.session.proto = proto
    _greet(call, proto)


def _greet(call: Call, proto: i64) -> None:
    out = call.out
    write_map(out, 7, proto)
    write_bulk(out, b"server")
    write_bulk(out, b"redis")
    write_bulk(out, b"version")
    write_text(out, REDIS_VERSION)
    write_bulk(out, b"proto")
    write_integer(out, proto)
    write_bulk(out, b"id")
    write_integer(out, call.session.id)
    write_bulk(out, b"mode")
    write_bulk(out, b"standalone")
    write_bulk(out, b"role")
    write_bulk(out, b"master")
    write_bulk(out, b"modules")
    write_array(out, 0)


def reset(call: Call) -> None:
    """Reset the connection to its initial state."""
    session = call.session
    session.end_transaction()
    session.name = b""
    session.proto = 2
    session.replies = REPLIES_ON
    session.deauthenticate()
    write_simple(call.out, b"RESET")


# -- transactions ----------------------------------------------------------------------------------


def multi(call: Call) -> None:
    """Begin a transaction."""
    if call.session.queued is not None:
        raise Wrong("ERR MULTI calls can not be nested")
    call.session.queued = []
    write_ok(call.out)


def execute(call: Call) -> None:
    """Run the queued commands of the transaction."""
    if call.session.queued is None:
        raise Wrong("ERR EXEC without MULTI")
    call.session.execute(call.now_ms)


def discard(call: Call) -> None:
    """Discard the queued commands of the transaction."""
    if call.session.queued is None:
        raise Wrong("ERR DISCARD without MULTI")
    call.session.end_transaction()
    write_ok(call.out)


def watch(call: Call) -> None:
    """Refuse: most keys show queues, which change with every job at every door.

    An EXEC that ran in spite of a change would be wrong, and one that never ran would be useless.
    """
    if call.session.queued is not None:
        raise Wrong("ERR WATCH inside MULTI is not allowed")
    raise Wrong("ERR WATCH is not supported: keys show queues, which change with every job")


def unwatch(call: Call) -> None:
    """Do nothing: no key is ever watched."""
    write_ok(call.out)


# -- CLIENT ----------------------------------------------------------------------------------------


def client(call: Call) -> None:
    """Run a CLIENT subcommand."""
    run = _SUBCOMMANDS.get(call.command.word(1))
    if run is None:
        raise unknown_subcommand("CLIENT", call.command.text(1))
    run(call)


def _need(call: Call, count: i64) -> None:
    if call.count() != count:
        raise wrong_count("client|" + call.command.text(1))


def _id(call: Call) -> None:
    _need(call, 2)
    write_integer(call.out, call.session.id)


def _checked_name(name: bytes) -> bytes:
    for byte in name:
        if byte < 33 or byte > 126:
            raise Wrong("ERR Client names cannot contain spaces, newlines or special characters.")
    return name


def _set_name(call: Call) -> None:
    _need(call, 3)
    call.session.name = _checked_name(call.arg(2))
    write_ok(call.out)


def _get_name(call: Call) -> None:
    _need(call, 2)
    if call.session.name:
        write_bulk(call.out, call.session.name)
    else:
        write_nil(call.out, call.proto)


def _set_info(call: Call) -> None:
    _need(call, 4)
    value = call.arg(3)
    for byte in value:
        if byte < 33 or byte > 126:
            what = call.command.text(2).lower()
            raise Wrong(f"ERR {what} cannot contain spaces, newlines or special characters.")
    if call.is_word(2, b"LIB-NAME"):
        call.session.library = value
    elif call.is_word(2, b"LIB-VER"):
        call.session.library_version = value
    else:
        raise Wrong(f"ERR Unrecognized option '{call.command.text(2)[:128]}'")
    write_ok(call.out)


def _line(call: Call, number: int) -> str:
    session = call.door.sessions[number]
    age_s = (call.now_ms - max(session.began_ms, 0)) // 1000 if session.began_ms >= 0 else 0
    idle_s = (call.now_ms - session.heard_ms) // 1000
    queued = -1 if session.queued is None else len(session.queued)
    there, here = session.peer.addresses()
    return (
        f"id={session.id} addr={there} laddr={here} fd=-1 name={session.name.decode()} age={age_s} "
        f"idle={idle_s} flags={'N' if queued < 0 else 'x'} db=0 sub=0 psub=0 ssub=0 "
        f"multi={queued} watch=0 cmd={session.last_command.decode().lower()} "
        f"user={DEFAULT_USER.decode()} redir=-1 resp={session.proto} "
        f"lib-name={session.library.decode()} lib-ver={session.library_version.decode()}\n"
    )


def _info(call: Call) -> None:
    _need(call, 2)
    write_verbatim(call.out, _line(call, call.session.id), call.proto)


def _list(call: Call) -> None:
    sessions = call.door.sessions
    numbers = list(sessions)
    lines: list[str] = []

    def look(start: int, end: int) -> int:
        lines.extend(_line(call, one) for one in numbers[start:end] if one in sessions)
        return 0

    def answer(_: int) -> None:
        write_verbatim(call.out, "".join(lines), call.proto)

    for_each(call, len(numbers), look, answer, _LINE_UNITS, is_reading=True)


def _reply(call: Call) -> None:
    _need(call, 3)
    if call.is_word(2, b"ON"):
        call.session.replies = REPLIES_ON
        write_ok(call.out)
    elif call.is_word(2, b"OFF"):
        call.session.replies = REPLIES_OFF
    elif call.is_word(2, b"SKIP"):
        call.session.replies = REPLIES_SKIP
    else:
        raise Wrong(SYNTAX)


def _switch(call: Call) -> None:
    """Accept an option that has no meaning here: nothing is evicted."""
    _need(call, 3)
    if not call.is_word(2, b"ON") and not call.is_word(2, b"OFF"):
        raise Wrong(SYNTAX)
    write_ok(call.out)


def _redirect(call: Call) -> None:
    _need(call, 2)
    write_integer(call.out, -1)


def _kill(call: Call) -> None:
    """Close a connection by its id."""
    if call.count() != 4 or not call.is_word(2, b"ID"):
        raise Wrong("ERR only CLIENT KILL ID <client-id> is supported")
    number = call.command.integer(3)
    if number is None:
        raise Wrong(NOT_INTEGER)
    session = call.door.sessions.get(number)
    if session is not None:
        session.is_finished = True
        if session is not call.session:
            session.peer.wake()
    write_integer(call.out, 0 if session is None else 1)


_SUBCOMMANDS: Final[dict[bytes, Callable[[Call], None]]] = {
    b"ID": _id,
    b"SETNAME": _set_name,
    b"GETNAME": _get_name,
    b"SETINFO": _set_info,
    b"INFO": _info,
    b"LIST": _list,
    b"REPLY": _reply,
    b"NO-EVICT": _switch,
    b"NO-TOUCH": _switch,
    b"GETREDIR": _redirect,
    b"KILL": _kill,
}
