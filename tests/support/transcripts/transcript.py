"""Transcripts: conversations in plain text, parsed into cases that any player can perform.

A file holds cases; a case starts at ``== its name`` and is a list of steps, one a line:

    # a remark                         (also between cases)
    only: jobyard -- the reason        tags come before the first step; above the first case
    except: 1.12 -- the reason         they apply to the whole file
    server: max-job-size=10            a separate server with that setting
    fresh: the reason                  a server that has had no connection yet

    A> put 0 0 60 5                    connection A sends the line and CRLF
    A>| hel                            A sends exactly these bytes
    A< INSERTED {id}                   A receives the line and CRLF, nothing less
    A<| \\x00\\r\\n                      A receives exactly these bytes
    A<ok exactly                       A receives `OK <n>`, n bytes of YAML, CRLF; the indented
      - default                        lines are all of it (`having`: some of it, in this order)
    A is waiting                       nothing comes (`A is silent` says the same)
    A is closed                        the server has ended the connection
    A connects | A closes | A resets | A shuts down        actions of the peer
    tick 1500ms                        time passes
    server drains                      the server enters drain mode

A connection opens at its first step. Text follows the rules of `tests.support.transcripts.text`.
Knows nothing of servers; `tests.support.transcripts.play` performs what is read here.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.transcripts.text import TranscriptError, tokens_of

SEND: Final = re.compile(r"(?P<who>[A-Z]\w*)>(?P<raw>\|?)(?: (?P<text>.*))?")
RECEIVE: Final = re.compile(r"(?P<who>[A-Z]\w*)<(?P<raw>\|?) (?P<text>.*)")
RECEIVE_OK: Final = re.compile(r"(?P<who>[A-Z]\w*)<ok (?P<how>exactly|having)")
STATE: Final = re.compile(r"(?P<who>[A-Z]\w*) is (?P<state>waiting|silent|closed)")
DEED: Final = re.compile(r"(?P<who>[A-Z]\w*) (?P<deed>connects|closes|resets|shuts down)")
TICK: Final = re.compile(r"tick (?P<ms>\d+)ms")
TAG: Final = re.compile(r"(?P<name>only|except|server|fresh): (?P<value>.+)")
REASONED: Final = re.compile(r"(?P<target>\S+) -- (?P<reason>.+)")


@dataclass(frozen=True)
class Step:
    """One line of a case: an action or an expectation, by whom, and where it is written."""

    line: int
    kind: str  # send, receive, ok, state, deed, tick, drain
    who: str = ""
    text: str = ""
    is_raw: bool = False
    lines: tuple[str, ...] = ()
    ms: int = 0


@dataclass
class Case:
    """One conversation, the servers it applies to, and what it needs of them."""

    path: Path
    name: str
    line: int
    steps: list[Step] = field(default_factory=list)
    only: str | None = None
    excepted: set[str] = field(default_factory=set)
    reason: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    is_fresh: bool = False

    @property
    def id(self) -> str:
        """Return the name that pytest shows."""
        return f"{self.path.stem}:{re.sub(r'[^a-z0-9]+', '-', self.name.lower()).strip('-')}"

    @property
    def ticks_ms(self) -> int:
        """Return how much time the case lets pass."""
        return sum(step.ms for step in self.steps)

    def why_not(self, target: str, player: str = "") -> str | None:
        """Return why this case does not apply to a target (`jobyard`, `1.12`) or player."""
        is_elsewhere = self.only is not None and target != self.only
        if is_elsewhere or not self.excepted.isdisjoint((target, player)):
            return self.reason
        return None


def parse_step(text: str, number: int) -> Step:
    """Parse one unindented line."""
    if match := RECEIVE_OK.fullmatch(text):
        return Step(number, "ok", match["who"], match["how"])
    if match := SEND.fullmatch(text):
        tokens_of(match["text"] or "")
        return Step(number, "send", match["who"], match["text"] or "", bool(match["raw"]))
    if match := RECEIVE.fullmatch(text):
        tokens_of(match["text"])
        return Step(number, "receive", match["who"], match["text"], bool(match["raw"]))
    if match := STATE.fullmatch(text) or DEED.fullmatch(text):
        kind = "state" if match.re is STATE else "deed"
        return Step(number, kind, match["who"], match[2])
    if match := TICK.fullmatch(text):
        return Step(number, "tick", ms=int(match["ms"]))
    if text == "server drains":
        return Step(number, "drain")
    raise TranscriptError(f"line {number}: cannot read {text!r}")


def add_tag(case: Case, name: str, value: str, number: int) -> None:
    """Add a tag to a case; a restriction without a reason is an error."""
    if name == "server":
        key, _, setting = value.partition("=")
        case.settings[key] = setting
        case.is_fresh = True
        return
    if name == "fresh":
        case.is_fresh = True
        return
    reasoned = REASONED.fullmatch(value)
    if reasoned is None:
        raise TranscriptError(f"line {number}: `{name}` needs a reason: `target -- reason`")
    case.reason = reasoned["reason"]
    if name == "only":
        case.only = reasoned["target"]
    else:
        case.excepted.add(reasoned["target"])


def parse(path: Path) -> list[Case]:
    """Parse every case of a file."""
    cases: list[Case] = []
    common: list[tuple[str, str, int]] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if text != text.rstrip():
            raise TranscriptError(f"{path.name}:{number}: a line must not end in a space")
        if not text or text.startswith("#"):
            continue
        if text.startswith("== "):
            cases.append(Case(path, text[3:], number))
            for name, value, line in common:
                add_tag(cases[-1], name, value, line)
        elif cases:
            add_line(cases[-1], text, number)
        elif tag := TAG.fullmatch(text):
            common.append((tag["name"], tag["value"], number))
        else:
            raise TranscriptError(f"{path.name}:{number}: a step before the first case")
    ids = [case.id for case in cases]
    if len(set(ids)) != len(ids):
        raise TranscriptError(f"{path.name}: two cases of one name")
    return cases


def add_line(case: Case, text: str, number: int) -> None:
    """Add a tag, a step, or an indented line to the YAML expected by the step before."""
    if tag := TAG.fullmatch(text):
        if case.steps:
            raise TranscriptError(f"{case.path.name}:{number}: a tag after the first step")
        add_tag(case, tag["name"], tag["value"], number)
        return
    if not text.startswith("  "):
        case.steps.append(parse_step(text, number))
        return
    last = case.steps.pop() if case.steps else None
    if last is None or last.kind != "ok":
        raise TranscriptError(f"{case.path.name}:{number}: unexpected indented line")
    case.steps.append(Step(last.line, "ok", last.who, last.text, lines=(*last.lines, text.strip())))


def parse_all(folder: Path) -> list[Case]:
    """Parse every transcript in a folder, in the order of their names."""
    return [case for path in sorted(folder.glob("*.txt")) for case in parse(path)]
