"""FCALL: the functions of the library, by name, and FUNCTION, which manages that one library.

Functions are compiled into the server. A library that a client loads under the same name is
accepted and ignored, because the server already implements it.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import (
    SYNTAX,
    Wrong,
    unknown_subcommand,
    wrong_count,
)
from jobyard.protocols.glidemq.functions.table import FUNCTIONS, find_function
from jobyard.wire.resp.write import (
    write_array,
    write_bulk,
    write_map,
    write_nil,
    write_ok,
    write_set,
)

LIBRARY: Final = b"glidemq"


def fcall(call: Call) -> None:
    """Run a function."""
    function = find_function(call.arg(1))
    function.run(function.bind(call))


def fcall_ro(call: Call) -> None:
    """Refuse: no function of the library is declared read-only."""
    if call.arg(1) not in FUNCTIONS:
        raise Wrong("ERR Function not found")
    raise Wrong("ERR Can not execute a script with write flag using *_ro command.")


# -- FUNCTION --------------------------------------------------------------------------------------


def function(call: Call) -> None:
    """Load, list or count functions."""
    run = _SUBCOMMANDS.get(call.command.word(1))
    if run is None:
        raise unknown_subcommand("FUNCTION", call.command.text(1))
    run(call)


def _load(call: Call) -> None:
    at: i64 = 3 if call.is_word(2, b"REPLACE") else 2
    if call.count() != at + 1:
        raise wrong_count("function|load")
    code = call.arg(at)
    head = code.partition(b"\n")[0].strip()
    if not head.startswith(b"#!"):
        raise Wrong("ERR Missing library metadata")
    name = b""
    for word in head.split()[1:]:
        if word.startswith(b"name="):
            name = word[5:]
    if not name:
        raise Wrong("ERR Library name was not given")
    if name != LIBRARY:
        shown = name[:64].decode("utf-8", "replace")
        raise Wrong(f"ERR Library '{shown}' cannot be loaded: only '{LIBRARY.decode()}' can")
    if at == 2:
        raise Wrong(f"ERR Library '{LIBRARY.decode()}' already exists")
    write_bulk(call.out, LIBRARY)


def _list(call: Call) -> None:
    with_code = False
    is_ours = True
    at: i64 = 2
    while at < call.count():
        if call.is_word(at, b"WITHCODE"):
            with_code = True
        elif call.is_word(at, b"LIBRARYNAME") and at + 1 < call.count():
            at += 1
            is_ours = call.arg(at) in (LIBRARY, b"*", b"glide*")
        else:
            raise Wrong(SYNTAX)
        at += 1
    out = call.out
    if not is_ours:
        write_array(out, 0)
        return
    write_array(out, 1)
    write_map(out, 4 if with_code else 3, call.proto)
    write_bulk(out, b"library_name")
    write_bulk(out, LIBRARY)
    write_bulk(out, b"engine")
    write_bulk(out, b"LUA")
    write_bulk(out, b"functions")
    write_array(out, len(FUNCTIONS))
    for name in FUNCTIONS:
        write_map(out, 3, call.proto)
        write_bulk(out, b"name")
        write_bulk(out, name)
        write_bulk(out, b"description")
        write_nil(out, call.proto)
        write_bulk(out, b"flags")
        write_set(out, 0, call.proto)
    if with_code:
        write_bulk(out, b"library_code")
        write_bulk(out, b"#!lua name=glidemq\n-- part of the server")


def _stats(call: Call) -> None:
    out = call.out
    write_map(out, 2, call.proto)
    write_bulk(out, b"running_script")
    write_nil(out, call.proto)
    write_bulk(out, b"engines")
    write_map(out, 1, call.proto)
    write_bulk(out, b"LUA")
    write_map(out, 2, call.proto)
    write_bulk(out, b"libraries_count")
    out.write(b":1\r\n")
    write_bulk(out, b"functions_count")
    out.write(b":%d\r\n" % len(FUNCTIONS))


def _fixed(_call: Call) -> None:
    """Refuse to remove functions: they are part of the server."""
    raise Wrong(f"ERR the library '{LIBRARY.decode()}' is built in and cannot be changed")


def _kill(_call: Call) -> None:
    raise Wrong("NOTBUSY No scripts in execution right now.")


def _help(call: Call) -> None:
    lines = [b"FUNCTION LOAD [REPLACE] <code>, LIST, STATS", b"HELP"]
    write_array(call.out, len(lines))
    for line in lines:
        write_bulk(call.out, line)


def _nothing_to_flush(call: Call) -> None:
    """Accept: clients flush before they load, and the library is always there."""
    write_ok(call.out)


_SUBCOMMANDS: Final[dict[bytes, Callable[[Call], None]]] = {
    b"LOAD": _load,
    b"LIST": _list,
    b"STATS": _stats,
    b"DELETE": _fixed,
    b"RESTORE": _fixed,
    b"DUMP": _fixed,
    b"FLUSH": _nothing_to_flush,
    b"KILL": _kill,
    b"HELP": _help,
}
