"""Every beanstalk transcript against every player that can perform it.

bare: the session over a yard without a socket, on a clock the player moves.
bytewise: the same, with every send arriving one byte at a time.
memory, data: a running `jobyard serve`; uvloop, asyncio: the same on its other loops.
original: the installed beanstalkd, which keeps the transcripts honest; where it is known to be
wrong or older the case says so and why.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.support.transcripts.play import play
from tests.support.transcripts.theatre import (
    BARE,
    BYTEWISE,
    DATA,
    ORIGINAL,
    OTHER_LOOPS,
    PLAYERS,
    Theatre,
)
from tests.support.transcripts.transcript import Case, parse_all

CASES: Final = parse_all(Path(__file__).parent / "beanstalk")

# The other loops move bytes; what the bytes mean is the same code and needs no third proof.
LOOP_FILES: Final = frozenset({"01-framing", "06-size", "08-waiters", "16-connections", "17-drain"})

# Cases that let time pass are played side by side: waiting costs no processor.
SIDE_BY_SIDE: Final = 8

Play = tuple[str, str]


def is_meant(case: Case, player: str) -> bool:
    """Return whether a case tests anything with a player."""
    if player == ORIGINAL:
        return case.only != "jobyard"
    if player in OTHER_LOOPS:
        return case.path.stem in LOOP_FILES and case.ticks_ms == 0
    # Time passes alike with and without a disk.
    return player != DATA or case.ticks_ms == 0


def is_slow(case: Case, player: str) -> bool:
    """Return whether a play mostly waits."""
    return case.ticks_ms > 0 and player not in (BARE, BYTEWISE)


def why_not(case: Case, player: str, theatre: Theatre) -> str | None:
    """Return why a play is skipped here, or None."""
    if player == ORIGINAL and theatre.original_version is None:
        return "beanstalkd is not installed"
    return case.why_not(theatre.target(player), player)


def perform(case: Case, player: str, theatre: Theatre) -> None:
    """Play a case on a server of its own."""
    with theatre.start(player, case.settings) as stage:
        play(case, stage)


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, theatre: Theatre) -> dict[Play, Future[None]]:
    """All slow plays that were asked for, already performed."""
    plays: dict[Play, Future[None]] = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for item in request.session.items:
            params = item.callspec.params if hasattr(item, "callspec") else {}
            case, player = params.get("case"), params.get("player")
            if not isinstance(case, Case) or not isinstance(player, str):
                continue
            if is_slow(case, player) and why_not(case, player, theatre) is None:
                plays[case.id, player] = pool.submit(perform, case, player, theatre)
    return plays


@pytest.mark.parametrize(
    ("case", "player"),
    [
        pytest.param(case, player, id=f"{player}-{case.id}")
        for player in PLAYERS
        for case in CASES
        if is_meant(case, player)
    ],
)
def test_transcript(
    case: Case, player: str, theatre: Theatre, played: dict[Play, Future[None]]
) -> None:
    reason = why_not(case, player, theatre)
    if reason is not None:
        pytest.skip(reason)
    if (case.id, player) in played:
        played[case.id, player].result()
        return
    with theatre.open(case, player) as stage:
        play(case, stage)
