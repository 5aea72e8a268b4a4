"""The benchmark of many Slurm nodes, in small."""

from pathlib import Path

import pytest

from benchmarks import boot
from benchmarks.slurm_nodes import show
from benchmarks.slurm_nodes.measures import UNRECORDED, measure
from rehearsal.nodes import slurm_packages

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]


def test_a_cluster_in_small_is_measured_and_loses_nothing(tmp_path: Path) -> None:
    found = measure(3, 20, slurm_packages.DEFAULT)
    assert found.nodes == found.names == 3
    assert found.idle_seconds < 60
    assert found.recorded_jobs == 2 * UNRECORDED
    # An array of 20, and the job that holds every node.
    assert found.queued_jobs == found.kept_jobs == 21
    # Two looks a second, of a few calls each.
    assert 120 <= found.requeue.calls <= 1200
    assert found.requeue.cpu_seconds > 0
    assert found.metrics.calls > 0
    # One call of each node every five minutes.
    assert 0 < found.health.calls <= 3
    show.picture([found], slurm_packages.DEFAULT, tmp_path / "growth.svg")
    assert "requeue service" in (tmp_path / "growth.svg").read_text()


def test_a_boot_is_compared_with_slurm_alone_and_its_calls_are_counted() -> None:
    found = boot.measure(2)
    assert 0 < found.alone_seconds < 60
    assert 0 < found.scripts_seconds < 60
    assert found.asked.objects > 100
    # Each worker looks for its file system once, and asks its own metadata service only.
    assert found.asked.aws == {"fsx describe-file-systems": 1}
    assert 0 < found.asked.metadata <= 10
    assert 0 < found.asked.controller <= 100
