import json

import pytest

from jobyard.client import JobyardError, YardClient
from jobyard.client.redrive import REDRIVE_MAX, redrive
from jobyard.protocols.topics.queue.redrive import IDS_MAX
from tests.support.servers.scripted import ScriptedHttp, refused, said

BUSY = refused("503 Service Unavailable", "shutting_down")
DONE = b'{"topic":"q","redriven":2,"duplicate":false}'


def test_it_says_what_it_was_told() -> None:
    with (
        ScriptedHttp([said(DONE), said(DONE)]) as server,
        YardClient(server.url, pause=lambda _: None) as client,
    ):
        answer = redrive(client, "a/b", seqs=[1, 2], patch={"x": None}, key="k", dry_run=True)
        assert answer.number("redriven") == 2
        redrive(client, "q", job_ids=(7,))
        first, second = server.heard
    assert (first.method, first.target) == ("POST", "/v0/topics/a%2Fb/redrive")
    named = {"seqs": [1, 2], "patch": {"x": None}, "key": "k", "dry_run": True, "strict": True}
    assert json.loads(first.body) == named
    assert json.loads(second.body) == {"job_ids": [7], "strict": True}


def test_it_is_repeated_only_under_a_key() -> None:
    with (
        ScriptedHttp([BUSY, said(DONE), BUSY]) as server,
        YardClient(server.url, pause=lambda _: None) as client,
    ):
        assert redrive(client, "q", seqs=[1], key="k").number("redriven") == 2
        with pytest.raises(JobyardError):
            redrive(client, "q", seqs=[1])
        assert len(server.heard) == 3


def test_it_knows_how_many_a_call_may_name() -> None:
    assert REDRIVE_MAX == IDS_MAX
