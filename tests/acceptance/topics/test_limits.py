"""Limits as they are set: by a flag, or as the original calls them."""

import contextlib
import os
from http.client import HTTPConnection

import pytest

from tests.support.servers.http import HttpYard, Topics


@pytest.mark.parametrize("is_flag", [True, False])
def test_limits_are_set_by_flags_and_by_the_names_of_the_original(*, is_flag: bool) -> None:
    wanted = {"max_topics": "1", "max_body_bytes": "2KiB", "max_sse_connections": "1"}
    flags: list[str] = []
    env = dict(os.environ)
    for name, value in wanted.items():
        if is_flag:
            flags += ["--" + name.replace("_", "-"), value]
        else:
            env[f"TOPICS_{name.upper()}"] = value
    with contextlib.closing(HttpYard("--memory", *flags, env=env)) as yard:
        callers = [Topics(yard.address) for _ in range(4)]
        api = callers[0]
        assert api.ask("PUT", "/v0/topics/q", {"type": "queue"})[0] == 201
        status, answer = api.ask("PUT", "/v0/topics/other")
        assert (status, answer["error"]["detail"]) == (429, {"limit": "max_topics", "max": 1})
        status, answer = api.ask("POST", "/v0/watch", {"topics": {"q": {}}})
        assert status == 200
        with contextlib.closing(HTTPConnection(*yard.address, timeout=60)) as reader:
            reader.request("GET", answer["stream_url"])
            assert reader.getresponse().status == 200
            status, refused = callers[1].ask("GET", "/v0/topics/q/work?node=w")
            assert (status, refused["error"]["code"]) == (429, "throttled")
        body = {"records": [{"data": "x" * 2048}]}
        status, refused = callers[2].ask("POST", "/v0/topics/q", body)
        assert (status, refused["error"]["code"]) == (413, "payload_too_large")
        for caller in callers:
            caller.close()
