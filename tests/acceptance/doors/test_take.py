"""What a job of every family looks like to a worker of every door."""

import gzip
import json
from base64 import b64encode
from dataclasses import dataclass, field

import pytest

from tests.support.servers.doors import LETTERS, FourDoors

GZ_MAX = 1 << 20


def gz(text: bytes) -> bytes:
    return b"gz:" + b64encode(gzip.compress(text, mtime=0))


@dataclass
class Case:
    """A payload: as it is put at the doors that can, and as it is shown.

    `shown` is by door, or by family and door where that differs.
    """

    name: str
    put: dict[str, object]
    shown: dict[str, object] = field(default_factory=dict)


VALUE = {"to": "\u00e4@example.org", "n": [1, 2.5, None, True, -7], "deep": {"er": [{}, []]}}
TEXT = json.dumps(VALUE, separators=(",", ":"), ensure_ascii=False).encode()
SPACED = b'{ "a" : [1,  2] }'
WORDS = "plain w\u00f6rds"
BYTES = b"\x00\xff\xfe\r\n"
BASE64 = {"$base64": "AP/+DQo="}
BASE64_TEXT = b'{"$base64":"AP/+DQo="}'
LONG = b'{"id":9007199254740993,"ms":1794743315146}'
LONG_N = {"id": 9007199254740992.0, "ms": 1794743315146.0}
ZIPPED = gz(TEXT)
LARGE = gz(b"[" + b" " * GZ_MAX + b"]")
BROKEN = b"gz:bm8gemlw"

CASES = [
    Case("json", dict.fromkeys(LETTERS, VALUE), {"B": TEXT, "N": VALUE, "G": TEXT, "T": VALUE}),
    # Blanks and order stay as they were written, but for the one family that has no text.
    Case(
        "json-as-written",
        dict.fromkeys("BGT", SPACED),
        {"B": SPACED, "N": {"a": [1, 2]}, "G": SPACED, "T": {"a": [1, 2]}},
    ),
    Case(
        "plain-text",
        {"B": WORDS.encode(), "G": WORDS.encode(), "N": WORDS, "T": WORDS},
        {
            "BB": WORDS.encode(),
            "GB": WORDS.encode(),
            "B": f'"{WORDS}"'.encode(),
            "N": WORDS,
            "GG": WORDS.encode(),
            "G": f'"{WORDS}"'.encode(),
            "T": WORDS,
        },
    ),
    Case(
        "no-text",
        {"B": BYTES, "G": BYTES, "N": BYTES},
        {"B": BYTES, "NN": BYTES, "N": BASE64, "GG": BYTES, "G": BASE64_TEXT, "T": BASE64},
    ),
    Case(
        "bytes-inside",
        {"N": {"bin": b"\x00\xff"}},
        {
            "B": b'{"bin":{"$base64":"AP8="}}',
            "N": {"bin": b"\x00\xff"},
            "G": b'{"bin":{"$base64":"AP8="}}',
            "T": {"bin": {"$base64": "AP8="}},
        },
    ),
    Case(
        "long-numbers",
        dict.fromkeys("BGT", LONG),
        {"B": LONG, "N": LONG_N, "G": LONG, "T": json.loads(LONG)},
    ),
    Case(
        "long-numbers-of-javascript",
        {"N": {"ms": 1794743315146.0}},
        {
            "B": b'{"ms":1794743315146}',
            "N": {"ms": 1794743315146.0},
            "G": b'{"ms":1794743315146}',
            "T": {"ms": 1794743315146},
        },
    ),
    Case(
        "empty",
        {"B": b"", "G": b"", "N": "", "T": ""},
        {"BB": b"", "GB": b"", "B": b'""', "N": "", "GG": b"", "G": b'""', "T": ""},
    ),
    Case("null", dict.fromkeys("BGT"), {"B": b"null", "N": None, "G": b"null", "T": None}),
    Case("zipped", {"G": ZIPPED}, {"B": TEXT, "N": VALUE, "G": ZIPPED, "T": VALUE}),
    # Of other families it is a text like any other.
    Case(
        "like-zipped",
        {"B": ZIPPED, "N": ZIPPED.decode(), "T": ZIPPED.decode()},
        {
            "BB": ZIPPED,
            "B": b'"' + ZIPPED + b'"',
            "N": ZIPPED.decode(),
            "G": b'"' + ZIPPED + b'"',
            "T": ZIPPED.decode(),
        },
    ),
    Case(
        "zipped-too-large",
        {"G": LARGE},
        {"B": LARGE, "N": LARGE.decode(), "G": LARGE, "T": LARGE.decode()},
    ),
    Case(
        "zipped-broken",
        {"G": BROKEN},
        {"B": BROKEN, "N": BROKEN.decode(), "G": BROKEN, "T": BROKEN.decode()},
    ),
]
RUNS = [(case, family, door) for case in CASES for family in case.put for door in LETTERS]


@pytest.mark.parametrize(
    ("case", "family", "door"), RUNS, ids=[f"{c.name}-{f}-to-{d}" for c, f, d in RUNS]
)
def test_data_are_shown(doors: FourDoors, queue: str, case: Case, family: str, door: str) -> None:
    doors.door(family).put(queue, case.put[family])
    taken = doors.door(door).must_take(queue)
    expected = case.shown.get(family + door, case.shown[door])
    assert taken.data == expected
    assert type(taken.data) is type(expected)
    doors.door(door).finish(taken)
