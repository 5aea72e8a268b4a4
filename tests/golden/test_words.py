"""What configurations imply and are refused for is what is written down."""

from __future__ import annotations

from tests.golden import files
from tests.golden.stacks import on_the_day
from tests.golden.words import ESTIMATES, REFUSALS, estimates, refusals


def test_a_configuration_costs_and_needs_what_is_written_down() -> None:
    with on_the_day():
        difference = files.told(files.read(ESTIMATES), estimates())
    assert not difference, f"tests/golden/estimates:\n{difference}"


def test_a_refusal_says_what_is_written_down() -> None:
    with on_the_day():
        difference = files.told(files.read(REFUSALS), refusals())
    assert not difference, f"tests/golden/refusals:\n{difference}"
