"""Figures: medians over rounds, ratios of medians, and nothing where nothing was measured."""

import pytest

from bench.figures import Figures


def figures_of(**rounds: list[float]) -> Figures:
    figures = Figures()
    for name, values in rounds.items():
        for value in values:
            figures.add(name, value)
    return figures


def test_one_disturbed_round_does_not_move_the_median() -> None:
    assert figures_of(a=[100.0, 12.0, 101.0]).median("a") == 100.0


def test_a_ratio_is_the_ratio_of_medians() -> None:
    figures = figures_of(a=[10.0, 30.0, 20.0], b=[5.0, 4.0, 100.0])
    assert figures.ratio("a", "b") == 4.0


def test_the_span_pairs_values_of_the_same_round() -> None:
    figures = figures_of(a=[10.0, 30.0, 20.0], b=[5.0, 10.0, 20.0])
    assert figures.ratio_span("a", "b") == (1.0, 3.0)


@pytest.mark.parametrize(("above", "below"), [("a", "none"), ("none", "a"), ("a", "zero")])
def test_without_both_figures_there_is_no_ratio(above: str, below: str) -> None:
    figures = figures_of(a=[1.0], zero=[0.0])
    assert figures.ratio(above, below) is None
    assert figures.ratio_span(above, below) is None


def test_what_was_never_measured_has_no_median() -> None:
    assert Figures().median("a") is None
    assert Figures().rounds("a") == []


def test_names_keep_the_order_of_measuring() -> None:
    assert list(figures_of(b=[1.0, 2.0], a=[1.0]).names()) == ["b", "a"]
