"""Every fault while nodes boot has the right outcome and message."""

from __future__ import annotations

import pytest

from rehearsal.nodes import faults
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.stack import Stack

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]

SCENARIOS = (
    "fsx-after-a-minute", "fsx-never", "fsx-foreign", "fsx-twin", "fsx-mount-hangs", "fsx-read-only", "imds-slow",
    "imds-v1-only", "imds-down", "clock-skewed", "entry-point-missing", "module-missing", "parameters-missing",
    "config-half-written", "config-malformed", "config-without-us", "spool-full", "state-full", "slurm-missing",
    "no-munge-key",
)  # fmt: skip


def test_every_scenario_is_played(stack: Stack) -> None:
    assert set(SCENARIOS) == set(faults.scenarios(stack))


@pytest.mark.parametrize("name", SCENARIOS)
def test_fault(stack: Stack, name: str) -> None:
    faults.play(stack, faults.scenarios(stack)[name])


def test_two_controllers(stack: Stack) -> None:
    faults.two_controllers(stack)


def test_run_twice(stack: Stack) -> None:
    with Cluster(stack, Options(workers=2)) as cluster:
        cluster.start_hosts()
        cluster.boot()
        faults.run_twice(cluster)
