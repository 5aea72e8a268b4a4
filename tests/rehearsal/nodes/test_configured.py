"""Settings of the configuration take effect on the nodes."""

import json

import pytest

from rehearsal.nodes import agent
from rehearsal.nodes.checks import job_environment, output, scripts_succeeded, ssh_between_all, ssh_from_a_worker
from rehearsal.nodes.cluster import Cluster, Metadata, Options
from rehearsal.nodes.hosts import Host

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


def test_efa_reaches_the_file_system_and_does_again_after_a_reboot_which_brings_scratch_back_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name_models(monkeypatch)
    efa = 'fsx={"efa":true,"throughput":1000,"storageGiB":4800}'
    with deployed("slurm-gpu", efa) as stack, Cluster(stack, Options(workers=1)) as cluster:
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        steps = {(name, line) for name, run in cluster.scripts.items() for line in run.lines if "step lnet" in line}
        (worker,) = cluster.workers
        job_environment(cluster)
        for asked in ("gpu:2", "gpu:h100:2"):
            told = output(cluster.controller, f"srun --gres={asked} bash -c 'echo $CUDA_VISIBLE_DEVICES'")
            assert told.strip() == "0,1", f"a job with {asked}"
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


def name_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """HyperPod's own lines of nodes may name the accelerators with their model (awsome-distributed-ai,
    hyperpod-mental-model.md), where the stack asks for no types."""
    plain = agent._node_line

    def named(host: Host) -> str:
        gpus = host.machine.kind.accelerators
        return plain(host) + (f" Gres=gpu:h100:{gpus}" if gpus else "")

    monkeypatch.setattr(agent, "_node_line", named)


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
