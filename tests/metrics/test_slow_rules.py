"""The alerts that take hours: on a small fleet."""

from collections.abc import Mapping

import pytest

from tests.metrics.fleet import Fleet, Node, Timeline
from tests.metrics.promtool import Labels, firing
from tests.metrics.test_rules import needs_promtool, rules
from tests.shared import made_once

MINUTES = 440
pytestmark = [pytest.mark.slow, pytest.mark.prometheus, needs_promtool]


def training(fleet: Fleet, nodes: list[Node], metric: str, begin: int, end: int) -> None:
    """A job's time of the last step or checkpoint stands still for a while."""
    values = f"0+60x{begin - 1} {60 * begin}x{end - begin - 1} {60 * end}+60x{MINUTES - end}"
    for node in nodes:
        fleet.set(f"hyperpod_training_{metric}_time_seconds", values, node)


def slow_fleet() -> Fleet:
    """Job 1 hangs, job 2 writes no checkpoint, two nodes get their first job after hours, and then all is silent."""
    fleet = Fleet("slurm-gpu", Timeline(MINUTES), 10)
    training(fleet, fleet.nodes[:4], "updated", 20, 70)
    training(fleet, fleet.nodes[4:8], "checkpoint", 60, 300)
    for node in fleet.nodes[8:]:
        fleet.set("slurm_node_gpus_alloc", fleet.time.jump(8, at=320), node)
    for metric in ("up", "hyperpod_node_info"):
        for node in fleet.nodes:
            fleet.set(metric, fleet.time.during(1, None, 340, 420), node)
    return fleet


@pytest.fixture(scope="module")
def fired() -> Mapping[str, Mapping[int, set[Labels]]]:
    """Which alerts fire when."""
    return made_once("slow alerts", lambda: dict(firing(rules("slurm-gpu"), slow_fleet())))


@pytest.mark.parametrize(
    ("alert", "where", "first", "last"),
    [
        ("TrainingStuck", {"hpc_job": "1"}, 36, 72),
        ("TrainingCheckpointTooOld", {"hpc_job": "2"}, 184, 300),
        ("NodesIdle", {"group": "more"}, 244, 320),
        ("MetricsMissing", {"cluster": "demo"}, 400, 420),
    ],
)
def test_what_takes_hours_fires_there_and_only_there_and_heals(
    alert: str, where: dict[str, str], first: int, last: int, fired: Mapping[str, Mapping[int, set[Labels]]]
) -> None:
    places = set().union(*fired[alert].values())
    assert len(places) == 1
    assert where.items() <= dict(next(iter(places))).items()
    assert first <= min(fired[alert]) <= first + 12
    assert last - 8 <= max(fired[alert]) <= last + 4
