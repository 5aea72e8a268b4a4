"""GPU and Trainium nodes of every transport boot twice, and their jobs have the right environment."""

import json

import pytest

from rehearsal.nodes.checks import all_idle, expected_transport, job_environment, job_limits, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.outcome import nodes_of
from tests.rehearsal.nodes import faults

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]


def _groups(*types: str) -> str:
    groups = [{"name": kind.split(".", 1)[1].replace(".", "-"), "instanceType": kind, "count": 1} for kind in types]
    return "workers=" + json.dumps(groups)


@pytest.mark.parametrize(
    ("stack", "types", "efa", "transports"),
    [
        # Most other tests here have workers of one type.
        ("dev", ("ml.g5.16xlarge",), True, {"efa-sendrecv"}),
        (
            "dev",
            ("ml.p5.48xlarge", "ml.p4d.24xlarge", "ml.g5.48xlarge", "ml.g5.16xlarge"),
            None,
            {"efa-rdma", "efa-sendrecv", "tcp"},
        ),
        ("slurm-trainium", ("ml.trn1.32xlarge", "ml.trn2.48xlarge"), None, {"efa-rdma"}),
    ],
)
def test_transport_and_a_second_run_that_changes_nothing(
    stack: str, types: tuple[str, ...], efa: bool | None, transports: set[str]
) -> None:
    with deployed(stack, _groups(*types)) as found, Cluster(found, Options(efa=efa)) as cluster:
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        all_idle(cluster)
        assert {expected_transport(host.machine) for host in cluster.workers} == transports
        job_environment(cluster)
        job_limits(cluster)
        # An m5 has neither accelerator nor EFA, and no job runs there.
        heads = {(n.instance_type, n.transport) for n in nodes_of(cluster) if n.role == "controller"}
        assert heads == {("ml.m5.2xlarge", "tcp")}
        faults.run_twice(cluster)
