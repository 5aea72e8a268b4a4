"""Every fault drill of nodes passes on one cluster, and a node that is not mended fails its drill."""

import pytest

from rehearsal.drills import boots
from rehearsal.drills.model import Drill, Result
from rehearsal.drills.nodes import DRILLS, NodeDrills
from rehearsal.nodes.cluster import Cluster
from tests.support import config, project

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]


def held(*drills: Drill[Cluster]) -> list[Result]:
    results: list[Result] = []
    if not drills:
        return results
    NodeDrills(project(), config(), lambda drill: None, results.append).hold(drills)
    return results


@pytest.mark.timeout(1500)
def test_every_drill_of_nodes_passes() -> None:
    fit = [drill for drill in DRILLS if not drill.unfit(config())]
    # What needs EFA is held on the cluster of test_health.py.
    assert {drill.name for drill in DRILLS} - {drill.name for drill in fit} == {"efa-missing"}
    results = held(*fit)
    assert len(results) == len(fit)
    failed = [result for result in results if not result.passed]
    # Slurm's own retries and time limits decide the partition, so a busy machine may need a second attempt.
    again = held(*(drill for drill in DRILLS if drill.name in {result.name for result in failed}))
    assert [result.as_json() for result in again if not result.passed] == [], failed


def test_a_node_that_is_not_mended_fails_its_drill() -> None:
    broken = boots._Broken(lambda cluster, broken: boots._skew(cluster, True))
    (result,) = held(Drill("clock", "a clock that nobody sets", "nodes", "clock", boots._of(broken)))
    assert result.why.startswith("it did not recover: workers-2, when all is well again: step clock failed")
