"""Settings of the configuration take effect on the nodes."""

from __future__ import annotations

import json

import pytest

from rehearsal.nodes.checks import job_environment, output, scripts_succeeded, ssh_between_all, ssh_from_a_worker
from rehearsal.nodes.cluster import Cluster, Metadata, Options

from .conftest import deployed

OWN = {
    "vpcId": "vpc-0123456789abcdef0",
    "privateSubnetId": "subnet-0123456789abcdef0",
    "securityGroupIds": ["sg-0123456789abcdef0"],
}
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]


def test_metadata_without_tokens_is_read_where_the_configuration_allows_it() -> None:
    options = Options(workers=1, metadata=Metadata("v1-only"))
    with deployed("dev", "imdsV1=true") as stack, Cluster(stack, options) as cluster:
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        said = "\n".join(line for run in cluster.scripts.values() for line in run.lines)
        assert "no session token" not in said


def test_efa_reaches_the_file_system_and_does_again_after_a_reboot_which_brings_scratch_back_too() -> None:
    efa = 'fsx={"efa":true,"throughput":1000,"storageGiB":4800}'
    with deployed("slurm-gpu", efa) as stack, Cluster(stack, Options(workers=1)) as cluster:
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        steps = {(name, line) for name, run in cluster.scripts.items() for line in run.lines if "step lnet" in line}
        (worker,) = cluster.workers
        job_environment(cluster)
        assert any(name == worker.name and "8 EFA interfaces besides TCP" in line for name, line in steps)
        assert not any("WARNING" in line for _, line in steps)
        asked = "lnetctl net show; lnetctl global show; lnetctl udsp show"
        before = output(worker, asked)
        assert before.count("0@efa") == 8
        assert "discovery: 1" in before
        cluster.reboot(worker)
        assert output(worker, asked) == before
        # HyperPod runs no script after a reboot; units from the first boot mount the instance's disks.
        assert output(worker, "mountpoint /scratch") == "/scratch is a mountpoint\n"


def test_home_folders_are_on_the_file_system_that_the_configuration_names() -> None:
    with (
        deployed("dev", 'fsx={"homeFileSystemId":"fs-0123456789abcdef0"}', f"network={json.dumps(OWN)}") as stack,
        Cluster(stack, Options(workers=2)) as cluster,
    ):
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        output(cluster.workers[0], "touch ~/notes", user="ubuntu")
        output(cluster.workers[1], "test -O ~/notes", user="ubuntu")
        ssh_between_all(cluster)
        ssh_from_a_worker(cluster)
