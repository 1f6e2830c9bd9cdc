"""Every beanstalk transcript against every player that can perform it.

bare: the session over a yard without a socket, on a clock the player moves.
bytewise: the same, with every send arriving one byte at a time.
memory, data: a running `jobyard serve`. original: the installed beanstalkd, which keeps the
transcripts honest; where it is known to be wrong or older the case says so and why.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.support.play import play
from tests.support.theatre import DATA, ORIGINAL, PLAYERS, Theatre
from tests.support.transcript import Case, parse_all

CASES: Final = parse_all(Path(__file__).parent / "beanstalk")

# Time passes alike with and without a disk; waiting for it twice proves nothing new.
DATA_TICKS_MS_MAX: Final = 0


def plays() -> list[object]:
    """Every case with every player it is meant for."""
    return [
        pytest.param(case, player, id=f"{player}-{case.id}")
        for player in PLAYERS
        for case in CASES
        if not (player == DATA and case.ticks_ms > DATA_TICKS_MS_MAX)
        and not (player == ORIGINAL and case.only == "jobyard")
    ]


@pytest.mark.parametrize(("case", "player"), plays())
def test_transcript(case: Case, player: str, theatre: Theatre) -> None:
    if player == ORIGINAL and theatre.original_version is None:
        pytest.skip("beanstalkd is not installed")
    reason = case.why_not(theatre.target(player))
    if reason is not None:
        pytest.skip(reason)
    with theatre.open(case, player) as stage:
        play(case, stage)
