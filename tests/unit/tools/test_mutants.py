"""Mutants: where bugs are planted, and the report of what detected them."""

import sys
import textwrap
from pathlib import Path

import pytest

from tools import mutants


def wrongs(text: str) -> list[str]:
    source = textwrap.dedent(text)
    return [
        mutants.planted(site, source).wrong.decode()
        for site in mutants.sites("engine/toy.py", source)
    ]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("a < b", "(a <= b)"),
        ("a >= b", "(a > b)"),
        ("a == b", "(a != b)"),
        ("a is None", "(a is not None)"),
        ("a not in b", "(a in b)"),
        ("a and b or c", "((a and b) and c)"),
        ("not a", "(a)"),
        ("a + b", "(a - b)"),
        ("a // b", "(a * b)"),
        ("a << b", "(a >> b)"),
        ("a & b", "(a | b)"),
        ("f(x, 0)", "f(x, 1)"),
        ("f(x, 4096)", "f(x, 2048)"),
        ("f(x, True)", "f(x, False)"),
    ],
)
def test_an_operator_or_a_constant_is_changed(right: str, wrong: str) -> None:
    assert f"r = {wrong}\n" in wrongs(f"r = {right}\n")


def test_each_comparison_of_a_chain_is_changed_alone() -> None:
    assert wrongs("r = a < b < c\n") == ["r = (a <= b < c)\n", "r = (a < b <= c)\n"]


def test_a_sum_that_is_kept_is_changed() -> None:
    assert wrongs("a += b\n") == ["a -= b\n"]


def test_a_call_whose_result_nobody_reads_is_dropped() -> None:
    assert wrongs("f(\n    x,\n)\ny = g(x)\n") == ["pass\ny = g(x)\n"]


def test_places_are_right_behind_letters_of_many_bytes() -> None:
    assert wrongs('r = "ä€", a < b\n') == ['r = "ä€", (a <= b)\n']


@pytest.mark.parametrize(
    "text",
    [
        '"""A charter with 1 < 2."""\n',
        "assert a < b, 1\n",
        'r = f"{a + 1}"\n',
        "def f(a: X[1]) -> Y[2]: ...\n",
        "@mark(length=1)\nclass C: ...\n",
        "if TYPE_CHECKING:\n    n = 1\n",
        "a: Final[Literal[1]] = b\n",
        "r = 'text'\n",
    ],
)
def test_what_does_nothing_when_the_program_runs_is_left_alone(text: str) -> None:
    assert wrongs(text) == []


def repository(tmp_path: Path) -> Path:
    """Make a repository of a module with three places for bugs, each detected by something else."""
    files = {
        "src/jobyard/__init__.py": "",
        "src/jobyard/engine/__init__.py": "",
        "src/jobyard/engine/toy.py": """
            def checked(a, b):
                return a < b
            def simulated(a, b):
                return a + b
            def unseen(a):
                return not a
        """,
        "tests/unit/engine/test_toy.py": """
            from jobyard.engine.toy import checked
            def test_checked():
                assert [checked(1, 2), checked(2, 2)] == [True, False]
        """,
        "sim/__main__.py": """
            from jobyard.engine.toy import simulated
            if simulated(2, 3) != 5:
                print("  seed 1: the sum is wrong   (python -m sim --seed 1)")
                raise SystemExit(1)
        """,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


def test_who_noticed_is_told_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = repository(tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert mutants.main(["--seed", "1", "--sim-seeds", "1", "--nice", "0"], root) == 0
    told = capsys.readouterr().out
    assert "toy.py:3: detected by unit tests (tests/unit/engine/test_toy.py::test_checked)" in told
    assert "toy.py:5: detected by the simulator (seed 1: the sum is wrong)" in told
    assert "toy.py:7: detected by nobody\n      -    return not a\n      +    return (a)\n" in told
    last = "3 mutants of seed 1: detected 1 by unit tests, 1 by the simulator, 1 by nobody\n"
    assert told.endswith(last)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_tests_that_fail_without_a_mutant_judge_none(tmp_path: Path) -> None:
    root = repository(tmp_path)
    (root / "tests/unit/engine/test_toy.py").write_text("def test_it():\n    assert False\n")
    with pytest.raises(SystemExit, match="fails without a mutant: pytest"):
        mutants.main(["--seed", "1", "--nice", "0"], root)


def test_a_seed_draws_the_same_places_again() -> None:
    def places(seed: int) -> list[tuple[str, list[str]]]:
        return [
            (each.path, each.diff()) for each in mutants.drawn(mutants.ROOT, 5, seed, "journal")
        ]

    assert places(1) == places(1)
    assert places(1) != places(2)
    assert all(path.startswith("journal/") for path, _ in places(1))


def test_the_nearest_tests_are_asked_first() -> None:
    asked = mutants.judges(mutants.ROOT, "journal/format/record.py", 3, is_wide=False)
    assert [(judge.who, judge.command[-1]) for judge in asked[:-1]] == [
        (mutants.UNIT, "tests/unit/journal/format/test_record.py"),
        (mutants.UNIT, "tests/unit/journal/format"),
        (mutants.UNIT, "tests/unit/journal"),
        (mutants.UNIT, "tests/unit/engine"),
    ]
    assert asked[-1].who == mutants.SIMULATOR


def test_a_program_without_an_end_runs_out_of_processor_time(tmp_path: Path) -> None:
    ending = mutants.run([sys.executable, "-c", "while True: pass"], tmp_path, {}, 0.5)
    assert ending.code is None


def test_a_program_that_takes_all_memory_is_refused_it(tmp_path: Path) -> None:
    program = f"bytearray({mutants.MEMORY_MAX})"
    ending = mutants.run([sys.executable, "-c", program], tmp_path, {}, None)
    assert ending.code == 1
    assert "MemoryError" in ending.output
