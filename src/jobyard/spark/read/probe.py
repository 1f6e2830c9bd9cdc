"""Asks whether a range can still be read, before any task begins to read it."""

from jobyard.client import JobyardError, YardClient
from jobyard.client.calls import topic_path
from jobyard.spark.read.losses import Losses, loss_of
from jobyard.spark.read.ranges import SeqRange


def check_present(client: YardClient, wanted: SeqRange, losses: Losses) -> None:
    """Raise JobyardError if a part of a range is gone and that must not be."""
    if wanted.size <= 0:
        return
    query: dict[str, object] = {
        "columns": "seq",
        "from_seq": wanted.after_seq,
        "to_seq": wanted.to_seq,
        "incarnation": wanted.incarnation,
    }
    try:
        client.stream(topic_path(wanted.topic, "export"), query).close()
    except JobyardError as error:
        loss = loss_of(error, wanted.topic, wanted.after_seq, wanted.to_seq)
        if loss is None:
            raise error.within(topic=wanted.topic) from None
        losses.meet(loss)
