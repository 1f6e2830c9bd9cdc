"""Request templates: which requests fit, and which of their arguments differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.wire.resp.read import LIMITS, RespReader
from jobyard.wire.resp.template import GIVEN_SIZE_MAX, RequestTemplate, is_array
from tests.support.clients.resp import pack

FIRST = [b"FCALL", b"add", b"2", b"key", b"data", b"fixed", b"17", b""]
FREE = [4, 6]


def template_of(arguments: list[bytes], free: list[int]) -> RequestTemplate:
    reader = RespReader(LIMITS)
    reader.feed(b"*1\r\n$4\r\nPING\r\n" + pack(*arguments))
    reader.next()
    command = reader.next()
    assert command is not None
    assert is_array(command)
    return RequestTemplate(command, free)


def test_the_request_it_was_made_of_fits() -> None:
    template = template_of(FIRST, FREE)
    request = pack(*FIRST)
    assert template.fits(request, 0)
    assert (template.given, template.end) == ([b"data", b"17"], len(request))


@given(st.binary(max_size=300), st.binary(max_size=20), st.binary(max_size=30))
def test_only_free_arguments_may_differ(data: bytes, number: bytes, behind: bytes) -> None:
    template = template_of(FIRST, FREE)
    request = pack(*FIRST[:4], data, FIRST[5], number, FIRST[7])
    assert template.fits(behind + request + behind, len(behind))
    assert template.given == [data, number]
    assert template.end == len(behind) + len(request)


@pytest.mark.parametrize("at", [at for at in range(len(FIRST)) if at not in FREE])
def test_another_fixed_argument_does_not_fit(at: int) -> None:
    template = template_of(FIRST, FREE)
    other = [*FIRST[:at], FIRST[at] + b"x", *FIRST[at + 1 :]]
    assert not template.fits(pack(*other), 0)


def test_a_request_that_is_not_all_here_does_not_fit() -> None:
    template = template_of(FIRST, FREE)
    request = pack(*FIRST)
    for size in range(len(request)):
        assert not template.fits(request[:size], 0)


@pytest.mark.parametrize("length", [b"04", b"+4", b"-1", b"", b"4x", b"99999999999999999999", b"5"])
def test_an_invalid_length_does_not_fit(length: bytes) -> None:
    template = template_of(FIRST, FREE)
    request = pack(*FIRST).replace(b"$4\r\ndata", b"$" + length + b"\r\ndata")
    assert not template.fits(request + b"x" * 100, 0)


def test_a_long_argument_is_left_to_be_read() -> None:
    template = template_of(FIRST, FREE)
    request = [*FIRST]
    request[4] = b"x" * (GIVEN_SIZE_MAX + 1)
    assert not template.fits(pack(*request), 0)


def test_a_request_may_have_nothing_free() -> None:
    template = template_of(FIRST, [])
    assert template.fits(pack(*FIRST) * 2, len(pack(*FIRST)))
    assert not template.fits(pack(*FIRST[:-1], b"x"), 0)


def test_templates_of_the_same_requests_are_equal() -> None:
    assert template_of(FIRST, FREE).equals(template_of([*FIRST[:4], b"other", *FIRST[5:]], FREE))
    assert not template_of(FIRST, FREE).equals(template_of(FIRST, [4]))


def test_an_inline_command_is_no_array() -> None:
    reader = RespReader(LIMITS)
    reader.feed(b"FCALL add 2\r\n")
    command = reader.next()
    assert command is not None
    assert not is_array(command)
