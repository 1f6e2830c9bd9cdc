"""What to do about the refusals that a write may meet: the remedy belongs into the message."""

from typing import Final

from jobyard.client import JobyardError

TXN_TOO_LARGE: Final = "txn_too_large"
TXN_DIFFERS: Final = "txn_differs"
COMMITTED: Final = "committed"
TOPIC_NOT_FOUND: Final = "topic_not_found"
NOT_A_QUEUE: Final = "not_a_queue"

# By code: the option that it is about, if it is about one, and what to do.
REMEDIES: Final[dict[str, tuple[str, str]]] = {
    TXN_TOO_LARGE: (
        "commit",
        (
            "Write less at once: several runs, a smaller maxOffsetsPerTrigger, or commit=direct; "
            "or start the server with a greater --txn-rows-max or --txn-bytes-max."
        ),
    ),
    "too_many_keys": (
        "key",
        "Raise key_max of the topic, or lower its key_window_ms; keys expire with time.",
    ),
    "topic_full": ("topic", "Raise cap_records or cap_bytes of the topic, or have it drained."),
    "record_too_large": ("topic", "Raise cap_records or cap_bytes of the topic, or write less."),
    "throttled": (
        "commit",
        (
            "Too much is staged or remembered at once: try again later, use commit=direct, "
            "or start the server with a greater --txn-stage-bytes or --txn-max."
        ),
    ),
    "incomplete": (
        "commit",
        "Another program aborted the transaction meanwhile. Nothing was written: run it again.",
    ),
    "txn_expired": (
        "commit",
        (
            "The write took longer than --txn-stage-minutes without a call. Nothing was written: "
            "run it again, in smaller pieces."
        ),
    ),
    TOPIC_NOT_FOUND: ("topic", "Create it first: PUT /v0/topics/NAME with its type."),
    NOT_A_QUEUE: (
        "topic",
        "Drop the columns priority, delay_ms, job_id, name and max_attempts, or write to a queue.",
    ),
    "shutting_down": (
        "url",
        "The server is being stopped, and takes no writes meanwhile: run it again when it is back.",
    ),
    "storage_full": ("url", "The server has no room for more: free some of its disk."),
}


def explained(error: JobyardError, topic: str = "") -> JobyardError:
    """Return a refusal with what to do about it."""
    option, remedy = REMEDIES.get(error.code, ("", ""))
    return error.within(topic=topic, option=option, remedy=remedy)


def too_large(size: str, most: str) -> JobyardError:
    """Return the error for more than the server commits at once, both with their units."""
    return explained(
        JobyardError(
            TXN_TOO_LARGE,
            f"at least {size}; the server commits at most {most} at once, so nothing was written",
        )
    )
