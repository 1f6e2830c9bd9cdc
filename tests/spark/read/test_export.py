"""One range, read from a server that does what the script says."""

import logging
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from jobyard.client import JobyardError, YardClient
from jobyard.client.errors import Code
from jobyard.spark.read.export import RangeExport
from jobyard.spark.read.losses import Losses, LossRule
from jobyard.spark.read.ranges import SeqRange
from tests.support.servers.scripted import Heard, Reply, ScriptedHttp, chunked, refused
from tests.support.values.exports import KIND, answer, broken, end, noted, notes, rows, stream_of

Play = Callable[..., tuple[ScriptedHttp, RangeExport]]
WANTED = SeqRange("clicks", "77", 0, 10)


@pytest.fixture
def play(request: pytest.FixtureRequest) -> Play:
    def start(
        *replies: Reply, is_loss_fatal: bool = True, retries_max: int = 2
    ) -> tuple[ScriptedHttp, RangeExport]:
        server = ScriptedHttp(list(replies))
        client = YardClient(server.url, retries_max=0)
        request.addfinalizer(server.close)
        request.addfinalizer(client.close)
        return server, RangeExport(
            client, WANTED, {"columns": "seq,value"}, lambda _: False,
            retries_max=retries_max, losses=Losses(LossRule(is_loss_fatal)),
        )  # fmt: skip

    return start


def seqs_of(export: RangeExport) -> Iterator[int]:
    while (batch := export.next_batch()) is not None:
        yield from batch.column("seq").to_pylist()


def asked(server: ScriptedHttp) -> list[dict[str, str]]:
    return [
        {name: values[0] for name, values in parse_qs(urlsplit(each.target).query).items()}
        for each in server.heard
    ]


def test_a_range_is_read_to_its_end(play: Play) -> None:
    server, export = play(answer([1, 2, 5], [7, 10]))
    assert list(seqs_of(export)) == [1, 2, 5, 7, 10]
    assert asked(server) == [
        {"columns": "seq,value", "from_seq": "0", "to_seq": "10", "incarnation": "77"}
    ]
    assert server.heard[0].headers["accept"] == KIND


def test_a_range_without_rows_is_no_loss(play: Play) -> None:
    _, export = play(answer())
    assert list(seqs_of(export)) == []


@pytest.mark.parametrize("cut", [8, 40, 400, 700])
def test_a_stream_that_breaks_off_is_taken_up_behind_the_last_row(play: Play, cut: int) -> None:
    def rest(heard: Heard) -> bytes:
        after = int(parse_qs(urlsplit(heard.target).query)["from_seq"][0])
        return answer([seq for seq in (1, 2, 5, 6, 9) if seq > after])

    server, export = play(broken([1, 2], [5, 6], cut=cut), rest)
    assert list(seqs_of(export)) == [1, 2, 5, 6, 9]
    assert len(server.heard) == 2


def test_progress_gives_back_all_attempts(play: Play) -> None:
    parts: list[Reply] = [broken([seq]) for seq in range(1, 10)]
    server, export = play(*parts, answer([10]), retries_max=1)
    assert list(seqs_of(export)) == list(range(1, 11))
    assert [each["from_seq"] for each in asked(server)] == [str(seq) for seq in range(10)]


def test_attempts_without_progress_end(play: Play) -> None:
    server, export = play(broken([1]), *[broken(cut=8)] * 3)
    with pytest.raises(JobyardError) as caught:
        list(seqs_of(export))
    assert (caught.value.code, caught.value.topic) == (Code.CUT_OFF, "clicks")
    assert len(server.heard) == 3


def test_a_server_that_restarts_is_waited_for(play: Play) -> None:
    _, export = play(broken([1, 2]), b"", answer([9]))
    assert list(seqs_of(export)) == [1, 2, 9]


def test_a_parked_stream_goes_on_behind_its_last_row(play: Play) -> None:
    server, export = play(answer([1, 2], [5]), answer([5]))
    batch = export.next_batch()
    assert batch is not None
    export.park()
    assert list(seqs_of(export)) == [5]
    assert asked(server)[1]["from_seq"] == "2"


@pytest.mark.parametrize(
    "body",
    [
        answer([1, 2], total=3),
        answer([2, 1]),
        answer([1], [1]),
        answer([5, 11]),
        chunked([stream_of([noted([1]), end(1)])], "Topics-Rows: 2\r\n", kind=KIND),
        chunked([stream_of([noted([1]), end(1)])], kind=KIND),
        chunked([stream_of([noted([1]), end(1), noted([2])])], "Topics-Rows: 1\r\n", kind=KIND),
        chunked(
            [stream_of([(rows([1, 2]), notes(first_seq=1, last_seq=2, rows=3)), end(2)])],
            "Topics-Rows: 2\r\n",
            kind=KIND,
        ),
    ],
)
def test_counts_that_contradict_each_other_are_an_error(play: Play, body: bytes) -> None:
    _, export = play(body)
    with pytest.raises(JobyardError) as caught:
        list(seqs_of(export))
    assert caught.value.code == Code.NOT_JOBYARD


@pytest.mark.parametrize("body", [b"", b"not arrow", stream_of([])])
def test_a_stream_without_its_counts_is_cut_off(play: Play, body: bytes) -> None:
    _, export = play(*[chunked([body] if body else [], kind=KIND)] * 4)
    with pytest.raises(JobyardError) as caught:
        list(seqs_of(export))
    assert caught.value.code == Code.CUT_OFF


GONE = refused(
    "410 Gone", "gone", "lost", '{"gap_from":1,"gap_to":4,"reason":"ttl","earliest_seq":5}'
)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (GONE, "records 1 to 4 of clicks are gone (ttl)"),
        (refused("409 Conflict", "wrong_incarnation"), "deleted and made again"),
        (refused("404 Not Found", "topic_not_found"), "was deleted"),
        (refused("416 X", "out_of_range", "x", '{"head_seq":3}'), "ends at seq 3"),
    ],
)
def test_data_loss_names_the_topic(
    play: Play, reply: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, export = play(reply)
    with pytest.raises(JobyardError) as caught:
        list(seqs_of(export))
    assert (caught.value.code, caught.value.topic) == (Code.DATA_LOSS, "clicks")
    assert said in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    with caplog.at_level(logging.WARNING, "jobyard.spark"):
        _, export = play(reply, is_loss_fatal=False)
        assert list(seqs_of(export)) == []
    assert said in caplog.text


def test_gaps_are_allowed_and_logged_where_loss_is_not_fatal(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "jobyard.spark"):
        server, export = play(
            answer([5], [6], lost=2, headers=["Topics-Gap-To: 4"]), is_loss_fatal=False
        )
        assert list(seqs_of(export)) == [5, 6]
    assert asked(server)[0]["allow_gap"] == "true"
    assert "records 1 to 4 of clicks are gone" in caplog.text
    assert "2 records between 1 and 10 of clicks were lost" in caplog.text


def test_records_that_were_deleted_meanwhile_are_no_loss(play: Play) -> None:
    _, export = play(answer([1, 9], lost=3))
    assert list(seqs_of(export)) == [1, 9]


def test_another_refusal_is_told_at_once(play: Play) -> None:
    server, export = play(refused("403 Forbidden", "forbidden", "no read"))
    with pytest.raises(JobyardError) as caught:
        list(seqs_of(export))
    assert (caught.value.code, caught.value.topic) == ("forbidden", "clicks")
    assert len(server.heard) == 1
