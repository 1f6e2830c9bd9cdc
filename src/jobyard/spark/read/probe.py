"""Asks whether a range can still be read, before any task begins to read it."""

from jobyard.client import JobyardError, YardClient
from jobyard.client.calls import topic_path
from jobyard.spark.read.export import LOG, loss_of
from jobyard.spark.read.ranges import SeqRange


def check_present(client: YardClient, wanted: SeqRange, *, is_loss_fatal: bool) -> int:
    """Return how many seqs of a range are gone; raise JobyardError if that must not be."""
    if wanted.size <= 0:
        return 0
    query: dict[str, object] = {
        "columns": "seq",
        "from_seq": wanted.after_seq,
        "to_seq": wanted.to_seq,
        "incarnation": wanted.incarnation,
    }
    if not is_loss_fatal:
        query["allow_gap"] = "true"
    try:
        stream = client.stream(topic_path(wanted.topic, "export"), query)
    except JobyardError as error:
        raise loss_of(error, wanted.topic) or error.within(topic=wanted.topic) from None
    gap_to = int(stream.headers.get("topics-gap-to", 0))
    stream.close()
    if gap_to <= wanted.after_seq:
        return 0
    LOG.warning(
        "%s: records %d to %d are gone and are skipped (failOnDataLoss is false)",
        wanted.topic, wanted.after_seq + 1, gap_to,
    )  # fmt: skip
    return gap_to - wanted.after_seq
