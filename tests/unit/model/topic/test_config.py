import pytest

from jobyard.model.topic.config import (
    DISK,
    FSYNC,
    JITTER_MS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    LOG,
    BadConfig,
    TopicConfig,
    decode_config,
    is_topic_name,
    read_config,
)


def test_what_is_left_out_has_its_default() -> None:
    assert read_config({}).fields() == TopicConfig().fields()
    assert (read_config({}).type, read_config({}).durability) == (LOG, DISK)


def test_null_counts_as_left_out() -> None:
    given: dict[str, object] = dict.fromkeys(TopicConfig().fields())
    assert read_config(given).fields() == TopicConfig().fields()


@pytest.mark.parametrize(
    ("given", "durability", "is_named"),
    [
        ({"durable": True}, FSYNC, False),
        ({"durable": False}, DISK, False),
        ({"durable": True, "durability": "memory"}, "memory", True),
        ({"durability": "fsync"}, FSYNC, True),
    ],
)
def test_a_named_durability_goes_before_a_derived_one(
    given: dict[str, object],
    durability: str,
    is_named: bool,  # noqa: FBT001
) -> None:
    config = read_config(given)
    assert (config.durability, config.is_named) == (durability, is_named)
    assert config.fields()["durable"] == (durability == FSYNC)


def test_what_is_shown_is_read_back_the_same() -> None:
    given = {
        "type": "queue",
        "ttl_ms": 1,
        "cap_records": 2,
        "cap_bytes": 3,
        "discard": "reject",
        "durable": True,
        "durability": "fsync",
        "priority": -1000,
        "auto_priority": False,
        "auto_create": False,
        "idempotency_window_ms": 4,
        "key_window_ms": 5,
        "key_max": 6,
        "dedupe_node": False,
        "lease_ms": 5000,
        "claim_jitter_ms": 6,
        "max_deliveries": 7,
        "dead_letter": "a.dlq",
        "leases_durable": True,
    }
    config = read_config(given)
    assert config.fields() == given
    again = decode_config(config.encode())
    assert (again.fields(), again.is_named) == (given, True)


def test_lengths_of_leases_are_clamped() -> None:
    assert read_config({"lease_ms": 1}).lease_ms == LEASE_MS_MIN
    assert read_config({"lease_ms": 1 << 40}).lease_ms == LEASE_MS_MAX
    assert read_config({"claim_jitter_ms": 1 << 40}).claim_jitter_ms == JITTER_MS_MAX


@pytest.mark.parametrize(
    "given",
    [
        {"type": "stream"},
        {"type": 1},
        {"ttl_ms": -1},
        {"ttl_ms": 1.5},
        {"ttl_ms": True},
        {"ttl_ms": 1 << 63},
        {"cap_records": "1"},
        {"discard": "new"},
        {"key_window_ms": 0},
        {"key_window_ms": 90 * 86_400_000 + 1},
        {"key_max": -1},
        {"durable": 1},
        {"durability": "strong"},
        {"priority": 1001},
        {"priority": False},
        {"dead_letter": "a/b"},
        {"dead_letter": 7},
    ],
)
def test_a_wrong_value_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(BadConfig):
        read_config(given)


@pytest.mark.parametrize("name", ["a", "A9._:-", "transcode.dlq", "x" * 255])
def test_names_of_topics(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize("name", ["", ".a", "_events", "a/b", "a b", "é", "aé", "x" * 256, "a\n"])
def test_what_is_no_name_of_a_topic(name: str) -> None:
    assert not is_topic_name(name)
