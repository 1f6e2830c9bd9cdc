"""Commands for the event stream of a connection.

A connection receives the events of one queue at a time. Events are sent and not kept, so there is
nothing to trim.
"""

from typing import Final

from jobyard.protocols.bunqueue.command import Command
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.door import Answer
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession

LENGTH_MAX: Final = 1_000_000_000


def subscribe_events(session: BunqueueSession, request: Request) -> Answer:
    """SubscribeEvents: send the events of this queue, instead of any other queue, from now on."""
    name = push_options.queue_name(request.fields)
    if session.events_of is None:
        session.yard.bus.add(session)
    session.events_of = name
    return {}


def unsubscribe_events(session: BunqueueSession, _request: Request) -> Answer:
    """UnsubscribeEvents: stop sending events."""
    if session.events_of is not None:
        session.events_of = None
        session.yard.bus.remove(session)
    return {}


def trim_events(_session: BunqueueSession, request: Request) -> Answer:
    """TrimEvents: validate the request and remove nothing, as events are not kept."""
    push_options.queue_name(request.fields)
    push_options.number(request.fields, b"maxLength", 0, 0, LENGTH_MAX)
    return {"data": {"removed": 0}}


EVENT_COMMANDS: Final[dict[bytes, Command]] = {
    b"SubscribeEvents": subscribe_events,
    b"UnsubscribeEvents": unsubscribe_events,
    b"TrimEvents": trim_events,
}
