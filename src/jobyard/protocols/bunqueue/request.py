"""One command on its way through a session."""

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr

from jobyard.wire.msgpack.read import Fields

if TYPE_CHECKING:
    from jobyard.model.queue import Queue


@final
@mypyc_attr(free_list_len=1, acyclic=True)
class Request:
    """One command, read as far as its fields' places."""

    def __init__(self, fields: Fields, name: bytes, now_ms: i64) -> None:
        self.fields = fields
        self.name: bytes = name
        self.now_ms: i64 = now_ms
        # Echoed as it came; empty if there was none.
        self.req_id: bytes = fields.raw_at(fields.req_id) or b""


@final
class Pull:
    """What a PULL or PULLB wants, for when it has to wait."""

    def __init__(self, req_id: bytes, count: i64, *, is_batch: bool, is_owned: bool) -> None:
        self.req_id: bytes = req_id
        self.count: i64 = count
        self.is_batch: bool = is_batch
        self.is_owned: bool = is_owned
        # Whether its jobs stay with whoever pulled when the connection goes.
        self.is_detached: bool = False
        # Where it waits.
        self.queue: Queue | None = None
