"""A command while its session runs it, and a pull that waits."""

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr

from jobyard.wire.msgpack.read import MapFields

if TYPE_CHECKING:
    from jobyard.model.queue import Queue


@final
@mypyc_attr(free_list_len=1, acyclic=True)
class Request:
    """One command; its fields are located but not decoded."""

    def __init__(self, fields: MapFields, name: bytes, now_ms: i64) -> None:
        self.fields = fields
        self.name: bytes = name
        self.now_ms: i64 = now_ms
        # Echoed unchanged; empty if there was none.
        self.req_id: bytes = fields.raw_at(fields.req_id) or b""


@final
class Pull:
    """The parameters of a PULL or PULLB, kept while it waits."""

    def __init__(self, req_id: bytes, count: i64, *, is_batch: bool, is_owned: bool) -> None:
        self.req_id: bytes = req_id
        self.count: i64 = count
        self.is_batch: bool = is_batch
        self.is_owned: bool = is_owned
        # Whether its jobs stay leased when the connection closes.
        self.is_detached: bool = False
        # The queue on which it waits.
        self.queue: Queue | None = None
