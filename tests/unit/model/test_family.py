from pathlib import Path

from jobyard.model import family
from jobyard.model.family import FAMILIES_MAX, FAMILY_NAMES, RULES, traits

PAGE = Path(__file__).parents[3] / "docs/one-job-any-door.md"
FAMILIES = tuple(FAMILY_NAMES)


def rows() -> list[str]:
    """The table as the documentation has it."""
    found = ["| rule | beanstalk | bunqueue | glide-mq | topics |", "|---|---|---|---|---|"]
    for rule, text in RULES:
        marks = ["yes" if traits(one) & rule else "-" for one in FAMILIES]
        found.append(f"| {text} | {' | '.join(marks)} |")
    return found


def test_the_documentation_shows_the_rules_of_every_family() -> None:
    assert "\n".join(rows()) in PAGE.read_text()


def test_tables_have_room_for_every_family() -> None:
    assert max(FAMILIES) < FAMILIES_MAX


def test_every_rule_has_one_bit_and_is_documented_once() -> None:
    bits = [rule for rule, _ in RULES]
    named = {
        value
        for name, value in vars(family).items()
        if name.isupper() and isinstance(value, int) and value not in FAMILIES
        if name != "FAMILIES_MAX"
    }
    assert len(set(bits)) == len(bits) == len({text for _, text in RULES})
    assert all(bit & (bit - 1) == 0 for bit in bits)
    assert named - {0} <= set(bits) | {int(traits(one)) for one in FAMILIES}


def test_every_rule_holds_for_some_family_and_not_for_all() -> None:
    for rule, text in RULES:
        holds = [bool(traits(one) & rule) for one in FAMILIES]
        assert any(holds), text
        assert not all(holds), text
