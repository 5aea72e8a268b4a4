"""Estimates and refusals of configurations match the golden files."""

from __future__ import annotations

from tests.golden import files
from tests.golden.stacks import on_the_day
from tests.golden.words import ESTIMATES, REFUSALS, estimates, refusals


def test_estimates_of_configurations_match_the_golden_files() -> None:
    with on_the_day():
        difference = files.told(files.read(ESTIMATES), estimates())
    assert not difference, f"tests/golden/estimates:\n{difference}"


def test_refusals_of_configurations_match_the_golden_files() -> None:
    with on_the_day():
        difference = files.told(files.read(REFUSALS), refusals())
    assert not difference, f"tests/golden/refusals:\n{difference}"
