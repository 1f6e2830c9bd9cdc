import pytest

from jobyard.build import kind
from tools.path_of import OPERATIONS

pytestmark = pytest.mark.skipif(kind() != "plain", reason="compiled code has no frames")

# Depth and files of each put: upper bounds that may only shrink.
BOUNDS = {
    "beanstalk put": (11, 17),
    "bunqueue PUSH": (12, 27),
    "glide-mq addJob": (14, 34),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_way_of_a_put_does_not_grow(name: str) -> None:
    way = OPERATIONS[name]()
    depth, files = BOUNDS[name]
    assert way.depth() <= depth, way.deepest()
    assert len(way.files()) <= files, way.files()


def test_a_way_leads_from_the_session_to_the_journal_and_the_heap() -> None:
    for trace in OPERATIONS.values():
        way = trace()
        functions = [frame.function for frame in way.frames]
        assert functions[0].endswith("Session.receive")
        assert way.deepest()[0] == functions[0]
        assert len(way.deepest()) == way.depth()
        assert functions.index("Journal.append_put") < functions.index("Heap.push")
