"""The table of errors in docs/spark.md has every code that the Spark part gives a meaning."""

import re
from pathlib import Path

from jobyard.client.errors import Code
from jobyard.spark.write.bad_rows import BAD_ROWS
from jobyard.spark.write.refusals import REMEDIES, TXN_DIFFERS

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
# Of the server, or of the session, without a remedy that the code adds.
OTHERS = {"unauthorized", "forbidden", "corrupt", "no_java"}
# Of Spark itself, which shows it where a write has no mode.
OF_SPARK = {"UNSUPPORTED_DATA_SOURCE_SAVE_MODE"}


def test_the_page_lists_all_codes_with_cause_and_remedy() -> None:
    table = PAGE.read_text().partition("| code | cause | remedy |")[2]
    shown: list[str] = []
    for line in table.splitlines()[2:]:
        names, cause, remedy = line.strip("|").split(" | ")
        assert cause.strip()
        assert remedy.strip()
        shown += re.findall(r"`(\w+)`", names)
    ours = {value for name, value in vars(Code).items() if name.isupper()}
    codes = ours | set(REMEDIES) | OTHERS | OF_SPARK | {BAD_ROWS, TXN_DIFFERS}
    assert sorted(shown) == sorted(codes)
