"""The benchmark of many Slurm nodes, in small."""

from __future__ import annotations

import pytest

from benchmarks.slurm_nodes import measure
from rehearsal.nodes import slurm_packages

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]


def test_many_daemons_on_one_host_are_nodes_of_the_controller_that_keeps_their_queue() -> None:
    found = measure(3, 20, slurm_packages.DEFAULT)
    assert found.nodes == 3
    # An array of 20, and the job that holds every node.
    assert found.queued_jobs == 21
    assert found.idle_seconds < 60
