"""Goals: bounds are kept or missed as written, and each can be measured at all."""

import pytest

from bench.figures import Figures
from bench.goals import GOALS, Goal, judge
from bench.scenarios import (
    SCENARIOS,
    bunqueue,
    exports,
    floor,
    glidemq,
    growth,
    http,
    memory,
    recovery,
    spark,
    stalls,
    throughput,
)
from bench.servers import KINDS

AT_LEAST = Goal("speed", "a", "b", at_least=1.15)
AT_MOST = Goal("bytes", "a", at_most=450, unit="B")


def verdict_of(goal: Goal, **values: float) -> str:
    figures = Figures()
    for name, value in values.items():
        figures.add(name, value)
    return judge(figures, [goal])[0].word


@pytest.mark.parametrize(
    ("above", "below", "word"),
    [(115.0, 100.0, "met"), (200.0, 100.0, "met"), (114.9, 100.0, "short")],
)
def test_a_ratio_must_reach_its_bound(above: float, below: float, word: str) -> None:
    assert verdict_of(AT_LEAST, a=above, b=below) == word


@pytest.mark.parametrize(("value", "word"), [(450.0, "met"), (449.0, "met"), (450.1, "short")])
def test_a_cost_must_not_pass_its_bound(value: float, word: str) -> None:
    assert verdict_of(AT_MOST, a=value) == word


def test_what_was_not_measured_is_neither_met_nor_short() -> None:
    assert verdict_of(AT_LEAST, a=1.0) == "not measured"
    assert verdict_of(AT_MOST, b=1.0) == "not measured"


def test_bounds_are_written_with_their_direction() -> None:
    assert AT_LEAST.bound() == ">= 1.15 x"
    assert AT_MOST.bound() == "<= 450 B"
    assert Goal("n", "a", at_least=1_000_000, unit="records/s").bound() == ">= 1,000,000 records/s"


def test_the_verdict_knows_the_rounds_it_stands_for() -> None:
    figures = Figures()
    for above, below in ((10.0, 10.0), (12.0, 10.0), (15.0, 10.0)):
        figures.add("a", above)
        figures.add("b", below)
    verdict = judge(figures, [AT_LEAST])[0]
    assert (verdict.measured, verdict.span, verdict.word) == (1.2, (1.0, 1.5), "met")


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.title)
def test_every_goal_has_one_bound_and_names_figures_a_scenario_makes(goal: Goal) -> None:
    assert (goal.at_least is None) != (goal.at_most is None)
    servers = {
        "throughput": throughput.SERVERS,
        "bunqueue": bunqueue.SERVERS,
        "glidemq": glidemq.SERVERS,
        "http": http.SERVERS,
        "floor": floor.SERVERS,
        "memory": memory.SERVERS,
        "recovery": recovery.SERVERS,
        "growth": growth.SERVERS,
        "stalls": stalls.SERVERS,
        "spark": spark.SERVERS,
    }
    for figure in (goal.figure, goal.against):
        if figure is not None:
            scenario, server, *_ = figure.split(".")
            assert scenario in SCENARIOS
            assert server in servers[scenario]
            assert server in KINDS


def test_the_goals_of_the_http_door_are_about_loads_it_is_put_under() -> None:
    figures = [goal.figure for goal in GOALS if goal.figure.startswith("http.")]
    assert len(figures) == 10
    for figure in figures:
        _, server, load, measure = figure.split(".")
        assert server in http.YARDS
        assert (load, measure) == ("streams", "p99_us") or (
            load in (*http.LOADS, *exports.EXPORTS) and measure == "records_per_s"
        )


def test_goal_titles_are_distinguished() -> None:
    assert len({goal.title for goal in GOALS}) == len(GOALS)


def test_a_speed_is_also_told_by_processor_time_alone() -> None:
    goal = Goal("speed", "ours.ops_per_s", "theirs.ops_per_s", at_least=1.0)
    figures = Figures()
    figures.add("ours.server_us_per_op", 4.0)
    figures.add("theirs.server_us_per_op", 8.0)
    verdict = judge(figures, [goal])[0]
    assert (verdict.measured, verdict.by_cpu) == (None, 2.0)
    assert judge(figures, [AT_MOST])[0].by_cpu is None
