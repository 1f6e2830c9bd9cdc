"""Frames, MessagePack and the five wire rules, with good bytes and with bad ones."""

import struct

import msgspec
import pytest

from tests.support.servers.bunqueue import (
    FRAME_SIZE_MAX,
    REPLY_S,
    UNDEFINED,
    Client,
    codes,
    frame,
    ours,
    pack,
    unpack,
)

FLOAT64 = 0xCB


def raw_command(queue: str, data: bytes, cmd: str = "PUSH") -> bytes:
    """A command whose data are the given MessagePack bytes."""
    return b"\x83" + pack("cmd") + pack(cmd) + pack("queue") + pack(queue) + pack("data") + data


def test_a_command_is_answered_with_its_req_id(client: Client) -> None:
    client.send_payload(pack({"cmd": "Ping", "reqId": "one"}))
    answer = client.receive()
    assert answer["ok"] is True
    assert answer["reqId"] == "one"
    assert answer["data"]["pong"] is True


@pytest.mark.parametrize("request_id", [7, -1, 1.5, True, [1], {"a": "b"}, "", "x" * 1000])
def test_a_req_id_of_any_type_is_echoed(client: Client, request_id: object) -> None:
    client.send_payload(pack({"cmd": "Ping", "reqId": request_id}))
    assert client.receive()["reqId"] == request_id


def test_without_a_req_id_none_is_answered(client: Client) -> None:
    client.send_payload(pack({"cmd": "Ping"}))
    assert "reqId" not in client.receive()


def test_an_error_carries_the_req_id_too(client: Client) -> None:
    client.send_payload(pack({"cmd": "GetJob", "id": "none", "reqId": "two"}))
    assert client.receive() == {"ok": False, "error": "Job not found", "reqId": "two"}


def test_times_are_floats_and_small_numbers_integers(client: Client) -> None:
    client.send_payload(pack({"cmd": "Ping"}))
    assert FLOAT64 in list(codes(client.receive_payload()))
    client.send_payload(pack({"cmd": "Count", "queue": "times-are-floats"}))
    assert FLOAT64 not in list(codes(client.receive_payload()))


def test_a_frame_may_come_byte_by_byte(client: Client) -> None:
    for byte in frame(pack({"cmd": "Ping", "reqId": "slow"})):
        client.send_bytes(bytes([byte]))
    assert client.receive("slow")["ok"] is True


def test_many_frames_may_come_at_once(client: Client, queue: str) -> None:
    pushes = [{"cmd": "PUSH", "queue": queue, "data": n, "reqId": str(n)} for n in range(200)]
    client.send_bytes(b"".join(frame(pack(push)) for push in pushes))
    answers = {str(n): client.receive(str(n)) for n in range(200)}
    assert all(answer["ok"] for answer in answers.values())
    assert len({answer["id"] for answer in answers.values()}) == 200
    assert client.ok("Count", queue=queue)["count"] == 200


def test_a_half_closed_connection_still_gets_its_answer(client: Client, queue: str) -> None:
    request = client.send("PUSH", queue=queue, data=1)
    client.half_close()
    assert client.receive(request)["ok"] is True


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc0",
        b"\x81\xa3cmd\xa4Pi",
        pack({"cmd": "Ping"}) + b"\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xffabc",
        b"\xc6\xff\xff\xff\xffabc",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\x91" * 100_000 + b"\xc0",
        b"\x81\xa1a" * 100_000 + b"\xc0",
        raw_command("deep", b"\x91" * 100_000 + b"\xc0"),
        raw_command("long", b"\xdd\xff\xff\xff\xff"),
        raw_command("wide", b"\xdf\x7f\xff\xff\xff\xc0\xc0"),
    ],
    ids=lambda payload: payload[:12].hex() or "empty",
)
def test_what_is_no_message_is_refused_and_the_connection_stays(
    client: Client, payload: bytes
) -> None:
    client.send_payload(payload)
    assert client.receive() == {"ok": False, "error": "Invalid command format"}
    assert client.ok("Ping")


@ours("it reads the byte that MessagePack never uses as undefined")
def test_the_unused_byte_is_no_message(client: Client) -> None:
    client.send_payload(b"\xc1")
    assert client.receive() == {"ok": False, "error": "Invalid command format"}


@pytest.mark.parametrize(
    "payload",
    [b"\x80", b"\x05", b"\x90", b"\xa3abc", b"\xc3", pack({"cmd": ""}), pack({"cmd": None})],
    ids=lambda payload: payload.hex(),
)
def test_what_is_no_command_is_refused(client: Client, payload: bytes) -> None:
    client.send_payload(payload)
    assert client.receive() == {"ok": False, "error": "Invalid command"}
    assert client.ok("Ping")


def test_only_a_string_req_id_returns_with_what_is_no_command(client: Client) -> None:
    client.send_payload(pack({"reqId": "z"}))
    assert client.receive() == {"ok": False, "error": "Invalid command", "reqId": "z"}
    client.send_payload(pack({"reqId": 5}))
    assert client.receive() == {"ok": False, "error": "Invalid command"}


@pytest.mark.parametrize("name", ["Nope", "ping", "PUSHX", "push", " Ping"])
def test_an_unknown_command_is_named(client: Client, name: str) -> None:
    assert client.refused(name) == f"Unknown command: {name}"


def test_a_command_that_is_a_number_is_unknown(client: Client) -> None:
    client.send_payload(pack({"cmd": 5, "reqId": "n"}))
    assert client.receive() == {"ok": False, "error": "Unknown command: 5", "reqId": "n"}


@pytest.mark.parametrize("size", [FRAME_SIZE_MAX + 1, 2**31, 2**32 - 1])
def test_an_oversize_frame_is_refused_once_and_the_connection_closed(
    client: Client, other: Client, size: int
) -> None:
    client.send_bytes(struct.pack(">I", size) + b"\x81" * 100)
    error = f"Frame too large: {size} bytes exceeds maximum {FRAME_SIZE_MAX}"
    assert client.receive() == {"ok": False, "error": error}
    client.await_end()
    assert other.ok("Ping")


def test_an_announced_length_reserves_nothing(client: Client, address: tuple[str, int]) -> None:
    waiting = [Client(address) for _ in range(20)]
    for each in waiting:
        each.send_bytes(struct.pack(">I", FRAME_SIZE_MAX) + b"\x81")
    assert client.ok("Ping")
    for each in waiting:
        each.close()


def test_data_past_ten_megabytes_are_refused_and_below_kept(client: Client, queue: str) -> None:
    text = "x" * (10 * 2**20 + 10)
    assert client.refused("PUSH", queue=queue, data=text) == "Job data too large (max 10MB)"
    jobs = [{"data": 1}, {"data": text}]
    error = client.refused("PUSHB", queue=queue, jobs=jobs)
    assert error == "jobs[1]: Job data too large (max 10MB)"
    assert client.is_empty(queue)
    text = "y" * (9 * 2**20)
    client.push(queue, {"text": text})
    assert client.pull(queue)["data"] == {"text": text}


def test_undefined_options_count_as_absent(client: Client, queue: str) -> None:
    names = ("priority", "delay", "maxAttempts", "backoff", "ttl", "timeout", "uniqueKey", "jobId")
    options = dict.fromkeys((*names, "dependsOn", "tags", "groupId", "lifo", "repeat"), UNDEFINED)
    client.push(queue, 1, **options)
    job = client.pull(queue)
    assert job["priority"] == 0
    assert job["maxAttempts"] == 3
    assert job["uniqueKey"] is None
    assert job["tags"] == []


EXOTIC = [
    b"\xca\x3f\x80\x00\x00",
    b"\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00",
    b"\xd3\x00\x00\x00\x00\x00\x00\x00\x01",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xce\x00\x00\x00\x01",
    b"\xd9\x01a",
    b"\xc4\x03\x00\xff\x01",
    b"\xd5\x05ab",
    b"\xc7\x03\x07abc",
    b"\xd4\x00\x00",
    b"\xde\x00\x01\xa1a\xdc\x00\x01\xc2",
    b"\x82\x01\xa1a\xc0\xa1b",
    b"\xca\x7f\xc0\x00\x00",
]


@ours("it decodes data and encodes them anew")
@pytest.mark.parametrize("data", EXOTIC, ids=lambda data: data.hex())
def test_data_come_back_byte_for_byte(client: Client, queue: str, data: bytes) -> None:
    client.send_payload(raw_command(queue, b"\x91" + data))
    assert client.receive()["ok"] is True
    client.send_payload(pack({"cmd": "PULL", "queue": queue}))
    assert pack("data") + b"\x91" + data in client.receive_payload()


@ours("64-bit integers crash its arithmetic")
def test_a_64_bit_integer_is_a_number(client: Client, queue: str) -> None:
    number = b"\xd3" + struct.pack(">q", 5000)
    fields = pack("delay") + number + pack("maxAttempts") + b"\xcf" + struct.pack(">Q", 4)
    client.send_payload(b"\x85" + raw_command(queue, b"\x01")[1:] + fields)
    job_id = client.receive()["id"]
    job = client.job(job_id)
    assert job["state"] == "delayed"
    assert job["maxAttempts"] == 4
    assert job["runAt"] - job["createdAt"] == 5000


def test_float32_and_float64_integers_are_integers(client: Client, queue: str) -> None:
    fields = pack("priority") + b"\xca" + struct.pack(">f", 5.0)
    client.send_payload(b"\x84" + raw_command(queue, b"\x01")[1:] + fields)
    assert client.receive()["ok"] is True
    client.push(queue, 2, maxAttempts=7.0)
    job = client.pull(queue)
    assert (job["data"], job["priority"]) == (1, 5)
    assert client.pull(queue)["maxAttempts"] == 7


def test_keys_nobody_knows_are_ignored(client: Client, queue: str) -> None:
    client.push(queue, 1, unheardOf={"a": [1, 2]}, another=UNDEFINED)
    assert client.pull(queue)["data"] == 1


def test_success_has_no_data_key(client: Client, queue: str) -> None:
    ids = [client.push(queue, n) for n in range(3)]
    client.ok("PULLB", queue=queue, count=3)
    for command in (
        {"cmd": "ACK", "id": ids[0]},
        {"cmd": "ACKB", "ids": [ids[1]]},
        {"cmd": "FAIL", "id": ids[2], "error": "x"},
    ):
        client.send_payload(pack(command))
        assert set(plain(client.receive_payload())) == {"ok"}


def plain(payload: bytes) -> dict[str, object]:
    """An answer as it is, with undefined keys left out and null ones kept."""
    answer = unpack(payload)
    assert isinstance(answer, dict)
    return answer


def test_fifty_commands_of_a_connection_may_wait_and_the_next_waits_for_one(
    client: Client, other: Client, queue: str
) -> None:
    pulls = [client.send("PULL", queue=queue, timeout=30_000) for _ in range(50)]
    ping = client.send("Ping")
    assert client.is_silent()
    assert other.ok("Ping")
    job_id = other.push(queue, 1)
    assert client.receive(ping)["ok"] is True
    served = client.receive()
    assert served["reqId"] in pulls
    assert served["job"]["id"] == job_id


def test_waiting_pulls_end_with_their_connection(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    with Client(address) as gone:
        for _ in range(50):
            gone.send("PULL", queue=queue, timeout=30_000)
        assert gone.is_silent()
    job_id = client.push(queue, 1)
    assert client.pull(queue)["id"] == job_id


def test_answers_may_overtake_a_waiting_pull(client: Client, queue: str) -> None:
    pull = client.send("PULL", queue=queue, timeout=30_000)
    assert client.ok("Ping")
    job_id = client.push(queue, 1)
    assert client.receive(pull)["job"]["id"] == job_id


def test_a_client_that_never_reads_hurts_only_itself(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    job_id = client.push(queue, "x" * 2**20)
    with Client(address) as deaf:
        deaf.send_without_waiting(frame(pack({"cmd": "GetJob", "id": job_id})) * 300)
        for _ in range(20):
            assert client.ok("Ping")
        deaf.drain_or_end(REPLY_S)
    assert client.pull(queue)["id"] == job_id


def test_a_reset_connection_is_forgotten(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    job_id = client.push(queue, 1)
    rude = Client(address)
    assert rude.pull(queue)["id"] == job_id
    rude.reset()
    assert client.pull(queue)["id"] == job_id


def test_text_that_is_not_utf8_is_no_crash(client: Client, queue: str) -> None:
    client.send_payload(raw_command(queue, b"\xa2\xff\xfe"))
    assert "ok" in client.receive_lenient()
    client.send_payload(b"\x81\xa3cmd\xa2\xff\xfe")
    client.send_payload(pack({"cmd": "Ping", "reqId": "after"}))
    assert "after" in [client.receive_lenient().get("reqId") for _ in range(2)]


def test_a_map_with_odd_keys_is_no_crash(client: Client) -> None:
    client.send_payload(msgspec.msgpack.encode({1: 2, None: 3, "cmd": "Ping", "reqId": "k"}))
    assert client.receive("k")["ok"] is True


def test_the_last_of_two_equal_keys_counts(client: Client, queue: str) -> None:
    client.send_payload(b"\x82\xa3cmd\xa4Nope\xa3cmd\xa4Ping")
    assert client.receive()["ok"] is True
    assert client.is_empty(queue)
