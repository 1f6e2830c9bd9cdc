"""A disk that returns other text than was written: reported to the reader, and in the log."""

import contextlib
from pathlib import Path

from tests.support.servers.http import HttpYard, Topics

MARK = b"find me here"


def damage(folder: Path) -> int:
    """Damage one record wherever it is stored; return how often it was found."""
    found = 0
    for path in folder.rglob("*.journal"):
        data = path.read_bytes()
        at = data.find(MARK)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(b"F")
            found += 1
    return found


def test_a_server_outlives_damaged_text(tmp_path: Path) -> None:
    yard = HttpYard("--data", str(tmp_path), "--body-memory", "0")
    with contextlib.closing(yard), contextlib.closing(Topics(yard.address)) as api:
        for first in range(0, 3000, 500):
            records: list[dict[str, object]] = [{"data": at} for at in range(first, first + 500)]
            if first == 0:
                records[6]["data"] = MARK.decode()
            assert api.ask("POST", "/v0/topics/t", {"records": records})[0] in {200, 201}
        assert api.ask("POST", "/v0/topics/other", {"records": [{"data": 1}]})[0] == 201
        assert damage(tmp_path) == 1
        status, page = api.ask("POST", "/v0/topics/t/diff", {"limit": 9})
        assert (status, page["next_from_seq"]) == (200, 6)
        status, answer = api.ask("POST", "/v0/topics/t/diff", {"from_seq": 6})
        assert (status, answer["error"]["code"]) == (500, "corrupt")
        assert answer["error"]["detail"] == {"first_seq": 7, "last_seq": 7}
        status, page = api.ask("POST", "/v0/topics/t/diff", {"from_seq": 7, "limit": 1})
        assert [one["data"] for one in page["records"]] == [7]
        assert api.ask("POST", "/v0/topics/other/diff", {})[1]["records"][0]["data"] == 1
        told = ""
        while "record 7 is damaged on disk" not in told:
            # The log is written once a second; a server that had stopped would not answer.
            assert api.ask("GET", "/v0/health")[0] == 200
            told = yard.process.errors()
