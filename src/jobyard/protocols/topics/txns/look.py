"""Shows a transaction, and aborts it: the calls about one that need no body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter

from jobyard.engine.topics import transactions
from jobyard.errors import Refused
from jobyard.model.topic.txn import TxnState
from jobyard.protocols.topics.answers import finish, put_int
from jobyard.protocols.topics.txn_fields import check_id, in_http, put_limits
from jobyard.protocols.topics.txns.access import check_txn
from jobyard.wire.json.write import write_text

if TYPE_CHECKING:
    from jobyard.protocols.http.call import HttpCall
    from jobyard.protocols.topics.door import TopicsDoor


def look(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/txns/{txn}."""
    name = check_id(call.params[0], "the name of a transaction")
    check_txn(door.yard, call, name)
    yard = door.yard
    state = transactions.look(yard, name, call.now_ms)
    out = _begin(name, state)
    txn = yard.txns.open.get(name)
    decided = yard.txns.decided.get(name)
    if txn is not None:
        put_int(out, b',"chunks":', len(txn.chunks))
        put_int(out, b',"rows":', txn.rows)
        put_int(out, b',"bytes":', txn.bytes)
        put_int(out, b',"expires_at":', door.wall_ms(txn.until_ms))
    elif decided is not None and state == TxnState.COMMITTED:
        out.write(b",")
        out.write(decided.answer.encode())
    put_limits(out, yard)
    finish(call, out)


def abort(door: TopicsDoor, call: HttpCall) -> None:
    """DELETE /v0/txns/{txn}; to abort one that is not open is no error, and changes nothing."""
    name = check_id(call.params[0], "the name of a transaction")
    check_txn(door.yard, call, name)
    try:
        transactions.abort(door.yard, name, call.now_ms)
    except Refused as refused:
        raise in_http(refused) from None
    state = transactions.look(door.yard, name, call.now_ms)
    finish(call, _begin(name, state))


def _begin(name: str, state: str) -> BytesWriter:
    is_expired = state == TxnState.EXPIRED
    out = BytesWriter()
    out.write(b'{"txn":')
    write_text(out, name)
    out.write(b',"state":')
    write_text(out, TxnState.ABORTED if is_expired else state)
    if is_expired:
        out.write(b',"expired":true')
    return out
