"""EKS nodes: their scripts run, and a reboot, after which no script runs, leaves them as they were, or late."""

import pytest

from rehearsal.nodes.checks import scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from tests.rehearsal.nodes.eks_nodes import reboot_eks, volume_too_late

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]


def test_pods_folders_survive_a_reboot_of_an_image_that_mounts_its_disks_late_or_far_too_late() -> None:
    with deployed("eks-gpu") as stack, Cluster(stack, Options(workers=1)) as cluster:
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        reboot_eks(cluster)
        volume_too_late(cluster, cluster.hosts[0])
