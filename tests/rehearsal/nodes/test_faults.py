"""Every fault during a boot has the right outcome and message."""

import pytest

from rehearsal.nodes.stack import Stack
from tests.rehearsal.nodes import faults

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]

SCENARIOS = (
    "workers", "fsx-foreign", "fsx-twin", "fsx-mount-hangs", "fsx-read-only", "imds-slow", "imds-v1-only",
    "imds-down", "module-missing", "parameters-missing", "state-full", "no-munge-key",
)  # fmt: skip


def test_every_scenario_is_played(stack: Stack) -> None:
    assert set(SCENARIOS) == set(faults.scenarios(stack))


@pytest.mark.parametrize("name", SCENARIOS)
def test_fault(stack: Stack, name: str) -> None:
    faults.play(stack, faults.scenarios(stack)[name])


def test_two_controllers(stack: Stack) -> None:
    faults.two_controllers(stack)
