"""A lifecycle script that is killed at any of its steps succeeds when it is run again, on every kind of node."""

from collections.abc import Iterator
from itertools import cycle

import pytest
from hyperpod_node.boot.steps import SLURM

from rehearsal.nodes.checks import all_idle, hostname_everywhere
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import until
from rehearsal.nodes.stack import Stack
from tests.rehearsal.nodes import faults

from .conftest import deployed, skip_where_unable

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]

Usual = dict[str, dict[str, float]]
# Every step is killed at its start on one kind of node, and halfway on another.
MOMENTS = [(step, share) for step, share in zip((step.name for step in SLURM), cycle((0.0, 0.25)), strict=False)]
OTHERS = [(step, 0.25 - share) for step, share in MOMENTS]
# What a controller does as no other node does: it makes folders and keys for all, has its own exporters, and slurmctld.
OF_CONTROLLERS = ("fsx", "munge", "ssh", "metrics", "slurm")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """The dev stack with a login node."""
    with deployed("dev", 'login={"instanceType":"ml.m5.large"}') as found:
        yield found


@pytest.fixture(scope="module")
def usual(stack: Stack) -> Usual:
    """How long each step takes on a host that is not killed."""
    skip_where_unable()
    with Cluster(stack, Options(workers=1)) as cluster:
        cluster.start_hosts()
        return faults.usual_seconds(cluster)


@pytest.mark.timeout(600)
def test_a_worker_and_a_login_node_killed_at_each_step(stack: Stack, usual: Usual) -> None:
    with Cluster(stack, Options(workers=1)) as cluster:
        cluster.start_hosts()
        cluster.boot()
        for moments in zip(MOMENTS, OTHERS, strict=True):
            for role, (step, share) in zip(("worker", "login"), moments, strict=True):
                (gone,) = cluster.of_role(role)
                fresh = cluster.fresh_host(gone)
                cluster.take_place(gone, fresh)
                faults.killed_at(cluster, fresh, step, share, usual[fresh.name])
            # HyperPod's agent has written slurm.conf anew, with the login node, which our service takes out again.
            until("Slurm shows the worker alone, and idle", lambda: all_idle(cluster), 30)
            hostname_everywhere(cluster)


@pytest.mark.parametrize(("step", "share"), [moment for moment in OTHERS if moment[0] in OF_CONTROLLERS])
def test_a_controller_killed_at_each_step_of_its_own(stack: Stack, step: str, share: float, usual: Usual) -> None:
    with Cluster(stack, Options(workers=1)) as cluster:
        cluster.start_hosts()
        faults.killed_at(cluster, cluster.controller, step, share, usual[cluster.controller.name])
        assert cluster.script(cluster.workers[0]).wait(60) == 0
        all_idle(cluster)
