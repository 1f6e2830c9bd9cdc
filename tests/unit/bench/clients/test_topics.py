"""A topic as the benchmark sees it: filled with the exact number of records, and checked."""

import http.client
import os
from collections.abc import Iterator

import pytest

from bench.clients.topics import Topic, TopicState
from bench.load import BenchError
from bench.servers import KINDS, Stable
from tests.support.servers.patience import PATIENCE_S


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    doors = ("beanstalk", "bunqueue", "glidemq", "http")
    folder = tmp_path_factory.mktemp("topics")
    stable = Stable(folder, python_path=os.environ["PYTHONPATH"], doors=doors)
    with stable.serving(KINDS["jobyard-http-memory"]) as server:
        yield server.port


def test_a_log_is_filled_to_the_record(port: int) -> None:
    topic = Topic(port, "log")
    topic.make()
    topic.fill(2500)
    assert topic.state() == TopicState(head_seq=2500, count=2500)
    topic.check_page(0, 1000)
    topic.check_page(1500, 1000)


def test_so_is_a_queue(port: int) -> None:
    topic = Topic(port, "queue")
    topic.make(is_queue=True)
    topic.fill(3)
    assert topic.state() == TopicState(head_seq=3, count=3)


def test_a_topic_that_is_there_already_is_refused(port: int) -> None:
    topic = Topic(port, "twice")
    topic.make()
    with pytest.raises(BenchError, match="PUT /v0/topics/twice answered 200"):
        topic.make()


def test_a_topic_that_is_not_there_has_no_state(port: int) -> None:
    with pytest.raises(BenchError, match=r"answered 404: .*topic_not_found"):
        Topic(port, "nowhere").state()


def test_a_page_past_the_end_is_not_what_was_written(port: int) -> None:
    topic = Topic(port, "short")
    topic.make()
    topic.fill(9)
    topic.check_page(0, 9)
    with pytest.raises(BenchError, match="diff of 10 from 0 differs from the written"):
        topic.check_page(0, 10)


def test_records_of_others_are_not_what_was_written(port: int) -> None:
    topic = Topic(port, "other")
    topic.make()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", topic.path, b'{"records":[{"data":"y"}]}', headers)
    assert connection.getresponse().status == 200
    connection.close()
    with pytest.raises(BenchError, match="diff of 1 from 0"):
        topic.check_page(0, 1)
