"""Creates, shows, lists and removes routers."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter

from jobyard.engine.logs import logs
from jobyard.engine.topics import routers, topic_setup
from jobyard.errors import YardFull
from jobyard.model.topic.config import QUEUE, TOPIC_NAME_MAX, TopicConfig
from jobyard.model.topic.router import AT_LEAST_ONCE, GUARANTEES, Router, is_router_name
from jobyard.protocols.http.call import HttpCall, HttpRefused
from jobyard.protocols.topics.admin.topics import page_cursor, page_size, read_cursor
from jobyard.protocols.topics.answers import finish, put_bool
from jobyard.protocols.topics.api import check_name
from jobyard.protocols.topics.api_keys import ApiKey
from jobyard.protocols.topics.body import flag, invalid, read_body, text
from jobyard.protocols.topics.find import drop_topic, find_queue, no_topic
from jobyard.protocols.topics.limits import check_routers, check_topics
from jobyard.protocols.topics.names import check_topic_name
from jobyard.protocols.topics.records.reads import read_match
from jobyard.wire.http.target import parse_query
from jobyard.wire.json.write import encode, write_text

if TYPE_CHECKING:
    from jobyard.model.queue import Queue
    from jobyard.protocols.topics.door import TopicsDoor
    from jobyard.wire.json.read import JsonFields

_INCOMPATIBLE: Final = "topic_exists_incompatible"


def put_router(door: TopicsDoor, call: HttpCall) -> None:
    """PUT /v0/routers/{router}."""
    router = _read_router(call)
    check_name(call, router.source)
    check_name(call, router.dest)
    yard = door.yard
    source = find_queue(yard, router.source)
    lacks_source = router.source not in yard.logs and source is None
    lacks_dest = router.dest not in yard.logs and find_queue(yard, router.dest) is None
    if lacks_dest and not router.create_dest:
        raise no_topic(router.dest)
    if router.name not in yard.routers.by_name:
        check_routers(door)
    if lacks_source or lacks_dest:
        check_topics(door, 2 if lacks_source and lacks_dest else 1)
    _check_router(door, router)
    if lacks_source:
        logs.open_log(yard, router.source, TopicConfig(), call.now_ms)
    elif source is not None and source.config is None:
        _configure(door, call, source)
    try:
        is_new = routers.set_router(yard, router, call.now_ms)
    except YardFull:
        if lacks_source:
            drop_topic(yard, router.source, call.now_ms)
        raise
    _hold_dest(door, call, router)
    out = BytesWriter()
    out.write(encode(router.fields())[:-1])
    put_bool(out, b',"created":', value=is_new)
    finish(call, out, 201 if is_new else 200)


def _check_router(door: TopicsDoor, router: Router) -> None:
    """Refuse a router that conflicts with others."""
    try:
        routers.check_router(door.yard, router)
    except routers.RouterCycle as cycle:
        found: dict[str, object] = {"cycle": cycle.circle}
        raise HttpRefused(409, "router_cycle", str(cycle), found) from None
    except routers.RouterFanIn as other:
        reason: dict[str, object] = {"reason": "router_dest_fan_in"}
        raise HttpRefused(409, _INCOMPATIBLE, str(other), reason) from None
    except routers.RouterElsewhere as elsewhere:
        raise HttpRefused(409, "router_repoint_forbidden", str(elsewhere)) from None


def _hold_dest(door: TopicsDoor, call: HttpCall, router: Router) -> None:
    """Create the destination if it is missing, and keep it when it is empty."""
    yard = door.yard
    if router.dest in yard.logs:
        return
    queue = find_queue(yard, router.dest)
    if queue is None:
        logs.open_log(yard, router.dest, TopicConfig(), call.now_ms)
    elif queue.config is None:
        _configure(door, call, queue)


def _configure(door: TopicsDoor, call: HttpCall, queue: Queue) -> None:
    """Give a queue the default configuration, so that it stays when it is empty."""
    config = TopicConfig()
    config.type = QUEUE
    topic_setup.set_queue_config(door.yard, queue, config, call.now_ms)


def _read_router(call: HttpCall) -> Router:
    name = call.params[0]
    if not is_router_name(name):
        raise invalid(
            "a router name consists of 1 to 255 letters, digits and . _ : - >, "
            "and begins with a letter or digit"
        )
    fields = read_body(call, may_be_empty=False)
    router = Router(name, _topic(fields, b"source"), _topic(fields, b"dest"))
    if router.source == router.dest:
        raise invalid("source and dest must be different topics")
    router.preserve_node = flag(fields, b"preserve_node", otherwise=True)
    router.preserve_tag = flag(fields, b"preserve_tag", otherwise=True)
    router.create_dest = flag(fields, b"create_dest", otherwise=True)
    router.allow_cycle = flag(fields, b"allow_cycle", otherwise=False)
    router.guarantee = text(fields, b"guarantee", 32) or AT_LEAST_ONCE
    if router.guarantee not in GUARANTEES:
        raise invalid(f"guarantee must be one of {', '.join(GUARANTEES)}")
    router.tag, router.is_prefix, router.has_match = read_match(fields, b"filter")
    return router


def _topic(fields: JsonFields, key: bytes) -> str:
    name = text(fields, key, TOPIC_NAME_MAX)
    if not name:
        raise invalid(f"{key.decode()} is required")
    check_topic_name(name)
    return name


def get_router(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/routers/{router}."""
    router = door.yard.routers.by_name.get(call.params[0])
    if router is None:
        raise HttpRefused(404, "router_not_found", f"router {call.params[0]} does not exist")
    check_name(call, router.source)
    check_name(call, router.dest)
    out = BytesWriter()
    out.write(encode(_state(door, router))[:-1])
    finish(call, out)


def _state(door: TopicsDoor, router: Router) -> dict[str, object]:
    state = router.fields()
    state["forwarded_total"] = int(router.forwarded_total)
    state["cursor"] = int(router.cursor)
    source = routers.find_source(door.yard, router.source)
    assert source is not None
    state["lag"] = int(source.head_seq() - router.cursor)
    return state


def list_routers(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/routers."""
    asked = parse_query(call.request.query)
    prefix = asked.get("prefix", "")
    source = asked.get("source", "")
    dest = asked.get("dest", "")
    size = page_size(asked.get("page_size", ""))
    after = read_cursor(asked.get("cursor", ""))
    table = door.yard.routers.by_name
    names = [
        router.name
        for router in table.values()
        if router.name > after
        and router.name.startswith(prefix)
        and source in ("", router.source)
        and dest in ("", router.dest)
        and _may_see(call, router)
    ]
    found = nsmallest(size + 1, names)
    out = BytesWriter()
    out.write(b'{"routers":')
    out.write(encode([_state(door, table[name]) for name in found[:size]]))
    if len(found) > size:
        out.write(b',"next_cursor":')
        write_text(out, page_cursor(found[size - 1]))
    finish(call, out)


def _may_see(call: HttpCall, router: Router) -> bool:
    key = call.identity
    return not isinstance(key, ApiKey) or (key.covers(router.source) and key.covers(router.dest))


def delete_router(door: TopicsDoor, call: HttpCall) -> None:
    """DELETE /v0/routers/{router}; deleting a missing router is not an error."""
    name = call.params[0]
    router = door.yard.routers.by_name.get(name)
    if router is not None:
        check_name(call, router.source)
        check_name(call, router.dest)
        routers.drop_router(door.yard, router)
    out = BytesWriter()
    out.write(b'{"router":')
    write_text(out, name)
    put_bool(out, b',"deleted":', value=router is not None)
    finish(call, out)
