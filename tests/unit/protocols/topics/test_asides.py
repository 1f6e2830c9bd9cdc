"""Optional parts of a call that are invalid."""

import pytest

from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics

ONE = {"records": [{"data": 1}]}


@pytest.mark.parametrize("word", ["", "1", "yes", "TRUE", "false%20", "null"])
def test_an_invalid_flag_is_refused_before_anything_happens(
    site: BareTopics, api: TopicsClient, word: str
) -> None:
    assert api.post(f"t?return_seqs={word}", ONE).refusal == (400, "invalid_request")
    assert "t" not in site.yard.logs
    api.post("t", ONE)
    gone = api.ask("DELETE", f"/v0/topics/t?if_empty={word}")
    assert gone.refusal == (400, "invalid_request")
    assert "t" in site.yard.logs


def test_a_key_in_the_header_is_looked_at_even_where_the_body_has_one(api: TopicsClient) -> None:
    body = {**ONE, "idempotency_key": "k"}
    headers = {"Content-Type": "application/json", "Idempotency-Key": "x" * 257}
    answer = api.ask("POST", "/v0/topics/t", body, headers)
    assert answer.refusal == (400, "invalid_request")


def test_a_config_is_looked_at_even_where_it_is_of_no_use(api: TopicsClient) -> None:
    api.post("t", ONE)
    answer = api.post("t", {**ONE, "config": {"cap_records": -1}})
    assert answer.refusal == (400, "invalid_request")
    assert api.post("t", {**ONE, "config": {"cap_records": 1}}).json["last_seq"] == 2
