"""Repeated requests are answered as if each were parsed.

A request that comes in two pieces is always parsed, so the same conversation, whole and cut, shows
any difference. Commands in between change what a prepared call has stored.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.protocols.glidemq.prepared import entry_of, may_recur, number_of
from jobyard.wire.resp.read import of_arguments
from tests.support.clients.glidemq import GlideClient
from tests.support.clients.library import Library
from tests.support.clients.resp import pack
from tests.support.doors.glidemq import BareGlidemq
from tests.support.site.storage import MemoryStorage

ADD_KEYS = ["id", "stream", "scheduled", "events"]


class Whole(GlideClient):
    """A connection that keeps everything it received."""

    def __init__(self, site: BareGlidemq) -> None:
        super().__init__(site, site.entrance)
        self.heard: list[bytes] = []

    def take_unread(self) -> bytes:
        self.heard.append(super().take_unread())
        return self.heard[-1]


class Cut(Whole):
    """One on which every request comes in two pieces."""

    def send(self, *arguments: object) -> None:
        request = pack(*arguments)
        self.feed(request[:-1])
        self.feed(request[-1:])


class Talk(Library):
    """The commands of one client that takes jobs and finishes them."""

    def __init__(self, *, is_cut: bool) -> None:
        super().__init__(BareGlidemq(MemoryStorage()))
        self.client: Whole = Cut(self.site) if is_cut else Whole(self.site)
        self.held: list[tuple[str, str]] = []

    def stands(self) -> list[object]:
        """Return what another client sees."""
        other = Library(self.site)
        return [other.counts(), other.events(), other.job("1"), other.job("3")]


Step = Callable[[Talk], object]


def read(talk: Talk) -> None:
    talk.held += talk.read()


def finish(talk: Talk) -> None:
    if talk.held:
        answer = talk.next(*talk.held.pop(0))
        if answer[0] == b"NEXT_HASH":
            talk.held.append((answer[2].decode(), answer[3].decode()))


def add(**given: object) -> Step:
    return lambda talk: talk.add(**given)


def ask(*arguments: object) -> Step:
    return lambda talk: talk.client.ask(*arguments)


def add_wrongly(talk: Talk) -> None:
    talk.refused("addJob", ADD_KEYS, *talk.arguments(ts="soon"))


def add_in_a_transaction(talk: Talk) -> None:
    talk.client.ask("MULTI")
    assert talk.add() == b"QUEUED"
    talk.client.ask("EXEC")


KEY = "glide:{tasks}"
STEPS: list[Step] = [
    add(), add(), add(data='{"other":1}'), add(data=""), add(name="second"),
    add(opts='{"attempts":3}', attempts=3), add(priority=5), add(delay=1000), add(lifo=1),
    add(ts=17), add(custom="3"), add(custom="mine"), add(key="k"), add(ttl=1), add_wrongly,
    add_in_a_transaction,
    read, read, read, finish, finish, finish,
    # Jobs that another client has finished, or that are not held.
    lambda talk: talk.next("1", "1-0"),
    lambda talk: talk.promote(),
    lambda talk: talk.site.tick(1500),
    ask("HSET", f"{KEY}:meta", "paused", 1), ask("HDEL", f"{KEY}:meta", "paused"),
    ask("DEL", f"{KEY}:stream"), ask("DEL", f"{KEY}:id"),
    lambda talk: talk.client.speak(3), lambda talk: talk.client.speak(2),
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_the_same_is_answered_and_done_as_the_long_way(steps: list[Step]) -> None:
    whole, cut = Talk(is_cut=False), Talk(is_cut=True)
    for step in steps:
        step(whole)
        step(cut)
    assert whole.client.heard == cut.client.heard
    assert whole.stands() == cut.stands()


def test_a_prepared_call_answers_like_the_first_request() -> None:
    library = Library(BareGlidemq())
    assert [library.add() for _ in range(4)] == [b"1", b"2", b"3", b"4"]
    assert library.job("4") == {**library.job("1"), "id": "4"}
    [(job_id, entry)] = library.read()
    for each in "234":
        answer = library.next(job_id, entry)
        assert answer[:3] == [b"NEXT_HASH", job_id.encode(), each.encode()]
        job_id, entry = each, answer[3].decode()
    assert library.next(job_id, entry) == [b"NEXT_NONE", b"4"]


def test_requests_that_never_recur_are_not_prepared() -> None:
    library = Library(BareGlidemq())
    for number in range(200):
        library.add(name=f"job {number}")
    assert library.counts()["waiting"] == 200


def test_only_functions_that_recur_are_candidates_for_preparation() -> None:
    asked = [[b"xreadgroup", b"GROUP"], [b"FCALL", b"glidemq_addJob", b"4"]]
    assert all(may_recur(of_arguments(words)) for words in asked)
    assert not may_recur(of_arguments([b"FCALL", b"glidemq_promote", b"3"]))


def test_another_connection_says_the_password_first() -> None:
    site = BareGlidemq(password=b"secret")
    library = Library(site)
    library.client.ask("AUTH", "secret")
    library.add()
    library.add()
    library.client.ask("RESET")
    assert "NOAUTH" in library.refused("addJob", ADD_KEYS)


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"0", 0), (b"17", 17), (b"", -1), (b"-1", -1), (b"1.5", -1), (b"9" * 19, -1)],
)
def test_numbers_are_digits(text: bytes, value: int) -> None:
    assert number_of(text, 0, len(text)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0-0", 0), (b"1-1", (1 << 20) + 1), (b"", -1), (b"1", -1), (b"1-", -1), (b"-1", -1),
        (b"1-1048576", -1), (b"99999999999999999-0", -1), (b"1-1-1", -1),
    ],
)  # fmt: skip
def test_entries_are_two_numbers(text: bytes, value: int) -> None:
    assert entry_of(text) == value
