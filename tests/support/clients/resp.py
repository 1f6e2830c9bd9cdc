"""RESP as redis-py writes and reads it: the reference for our own reader and writers."""

import socket
from types import SimpleNamespace
from typing import Any, Final

from redis._parsers import _RESP2Parser, _RESP3Parser
from redis._parsers.encoders import Encoder
from redis.connection import PythonRespSerializer
from redis.exceptions import ConnectionError as Ended

from tests.support.servers.patience import PATIENCE_S

# redis-py has no types for these.
_encoder: Any = Encoder
_serializer: Any = PythonRespSerializer
_ENCODER: Final = _encoder("utf-8", "strict", decode_responses=False)


def pack(*arguments: object) -> bytes:
    """Return a command as redis-py sends it."""
    return b"".join(_serializer(6000, _ENCODER.encode).pack(*arguments))


def unpack(data: bytes, proto: int = 2) -> list[Any]:
    """Return every answer in `data`, which must end with the last of them; errors as exceptions."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE_S)
        parser: Any = (_RESP3Parser if proto == 3 else _RESP2Parser)(65536)
        connection: Any = SimpleNamespace(_sock=ours, encoder=_ENCODER, socket_timeout=PATIENCE_S)
        parser.on_connect(connection)
        answers: list[Any] = []
        # Pieces that fit into any socket's buffer.
        for at in range(0, len(data), 65536):
            theirs.sendall(data[at : at + 65536])
            if at + 65536 < len(data):
                parser._buffer._read_from_socket(length=65536, raise_on_timeout=True)
        theirs.shutdown(socket.SHUT_WR)
        while True:
            try:
                answers.append(parser.read_response(disable_decoding=True))
            except Ended:
                return answers
