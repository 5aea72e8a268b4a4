"""A living cluster: nodes and groups join it by both of HyperPod's orders, all reboot, its controller is replaced."""

from __future__ import annotations

import json

import pytest

from rehearsal.nodes.checks import scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import join_late, reboot_others, replace_controller

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
_GROUPS = [
    {"name": "workers", "instanceType": "ml.g5.16xlarge", "count": 2},
    {"name": "more", "instanceType": "ml.g5.48xlarge", "count": 1},
]


@pytest.mark.timeout(400)
def test_nodes_and_a_group_join_and_all_come_back_from_a_reboot() -> None:
    options = Options(workers=0, absent=frozenset({"more"}))
    with (
        deployed("dev", f"workers={json.dumps(_GROUPS)}", 'login={"instanceType":"ml.m5.large"}') as stack,
        Cluster(stack, options) as cluster,
    ):
        cluster.start_hosts()
        cluster.boot()
        # Without a worker the controller comes up and says nothing about it.
        scripts_succeeded(cluster)
        join_late(cluster, "workers", 2)
        join_late(cluster, "workers", 2, whole=True)
        join_late(cluster, "more", 1)
        reboot_others(cluster)
        replace_controller(cluster)
