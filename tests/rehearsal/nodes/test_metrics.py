"""Real nodes send real figures: Slurm's, node_exporter's, and a Prometheus reads the shipped scrape file."""

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rehearsal.checks import require
from rehearsal.nodes.checks import output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.hosts import Host

from .conftest import deployed
from .workspace import RIGHT, WRONG, Workspace, complaint, receiving

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
_SECONDS = 300.0
_UNITS = ("hyperpod-node-exporter", "hyperpod-dcgm-exporter", "hyperpod-collector")
# Not half a minute after the boot.
_SOON = "[Timer]\nOnActiveSec=\nOnActiveSec=1\nRandomizedDelaySec=0\n"
# A rank tells of itself, and tries to tell of others.
_JOB = r"""sbatch --parsable -w {node} --gres=gpu:1 -o /dev/null --wrap 'srun bash -c "
  cd \$HYPERPOD_TRAINING_REPORTS && echo {{\\\"step\\\": 5, \\\"loss\\\": 2.5}} >rank-0.json &&
  ln -s /etc/passwd rank-1.json && echo forged 1 >x.prom; sleep 100"'"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def until(true: Callable[[], bool], seconds: float, why: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        require(time.monotonic() < deadline, why())
        time.sleep(0.2)


@pytest.mark.timeout(900)
def test_series_arrive_signed_and_with_their_labels(tmp_path: Path) -> None:
    with (
        deployed("dev", 'observability={"prometheus":"create"}', 'login={"instanceType":"ml.m5.large"}') as stack,
        Cluster(stack, Options(workers=2)) as cluster,
    ):
        url = json.loads(stack.lifecycle_files()["hyperpod_parameters.json"])["remote_write_url"]
        with receiving(cluster, free_port(), tmp_path, url) as workspace:
            cluster.start_hosts()
            lacking = cluster.workers[1]
            lacking.write("/etc/rehearsal/no-images", "")
            for host in cluster.hosts:
                host.write("/etc/systemd/system/hyperpod-metrics.timer.d/soon.conf", _SOON)
            cluster.boot()
            scripts_succeeded(cluster)
            job = output(cluster.controller, _JOB.format(node=cluster.workers[0].hostname)).strip()
            every_node_sends(cluster, workspace, lacking)
            slurm_says_what_jobs_have(cluster, workspace)
            a_job_is_known_by_its_gpus_and_ranks(cluster, workspace, job)
            a_failed_pull_is_made_up_for(workspace, lacking)
            a_wrong_key_is_refused(workspace)
            what_ended_is_told_no_more(cluster, workspace, job)
            cost(cluster)
            all_of_it_comes_back_after_a_reboot(cluster)


def write_now(host: Host) -> None:
    """Not in half a minute."""
    output(host, "systemctl start hyperpod-metrics@node")


def arrives(workspace: Workspace, expression: str, labels: dict[str, str], value: float | None = None) -> None:
    """A series with these labels comes, in time."""

    def there() -> bool:
        return any(
            labels.items() <= found.items() and value in (None, number) for found, number in workspace.query(expression)
        )

    until(there, _SECONDS, lambda: f"{expression} {labels}: {workspace.query(expression)}, {workspace.refused[-3:]}")


def every_node_sends(cluster: Cluster, workspace: Workspace, lacking: Host) -> None:
    for host in cluster.hosts:
        # Its own step does not fail, nor does the boot.
        record = json.loads(host.read("/var/log/hyperpod/summary.json"))
        assert record["status"] == "ok", record
        if host is lacking:
            assert "active" not in output(host, "systemctl is-active hyperpod-node-exporter || true").split()
            continue
        labels = {"cluster": cluster.stack.cluster_name, "node": host.hostname, "group": host.group}
        arrives(workspace, "node_load1", labels)
        write_now(host)
        arrives(workspace, "hyperpod_exporter_up", {**labels, "exporter": "collector"}, 1)
        arrives(workspace, "hyperpod_node_info", {**labels, "instance_id": host.instance_id})


def slurm_says_what_jobs_have(cluster: Cluster, workspace: Workspace) -> None:
    busy, idle = cluster.workers
    until(lambda: output(cluster.controller, "squeue -h -t R -o %i").strip() != "", 30, lambda: "no job runs")
    write_now(cluster.controller)
    common = {"cluster": cluster.stack.cluster_name, "group": "workers"}
    arrives(workspace, "slurm_node_gpus_alloc", {**common, "node": busy.hostname}, 1)
    arrives(workspace, "slurm_node_gpus_alloc", {**common, "node": idle.hostname}, 0)
    arrives(workspace, "slurm_jobs_running", {"node": cluster.controller.hostname}, 1)
    arrives(workspace, "slurm_partition_jobs_running", {"partition": "dev"}, 1)
    arrives(workspace, "slurm_nodes", {}, 2)


def a_job_is_known_by_its_gpus_and_ranks(cluster: Cluster, workspace: Workspace, job: str) -> None:
    busy = cluster.workers[0]
    labels = {"node": busy.hostname, "group": "workers", "hpc_job": job}
    arrives(workspace, "DCGM_FI_DEV_GPU_UTIL", {**labels, "gpu": "0"})
    until(lambda: f"training/{job}" in output(busy, "ls -d /var/spool/hyperpod/training/*/rank-1.json || true"), 30,
          lambda: "the rank tells nothing")  # fmt: skip
    write_now(busy)
    arrives(workspace, "hyperpod_training_step", {**labels, "rank": "0"}, 5)
    assert workspace.query('{__name__="forged"}') == workspace.query('hyperpod_training_step{rank="1"}') == []


def a_failed_pull_is_made_up_for(workspace: Workspace, lacking: Host) -> None:
    lacking.path("/etc/rehearsal/no-images").unlink()
    # Sooner than systemd does by itself.
    output(lacking, "systemctl restart --no-block hyperpod-node-exporter hyperpod-dcgm-exporter")
    arrives(workspace, "node_load1", {"node": lacking.hostname})


def a_wrong_key_is_refused(workspace: Workspace) -> None:
    assert workspace.refused == []
    workspace.secret = WRONG
    until(lambda: len(workspace.refused) > 1, _SECONDS, lambda: "nobody writes")
    assert set(workspace.refused) == {(403, "the signature differs")}
    before = workspace.query("count(node_load1)")
    workspace.secret, workspace.refused = RIGHT, []
    require(bool(before), "what was there is there")
    assert complaint({}, "/", b"", workspace.region) == "not signed"


def what_ended_is_told_no_more(cluster: Cluster, workspace: Workspace, job: str) -> None:
    output(cluster.controller, f"scancel {job}")
    busy = cluster.workers[0]
    folders = "/run/hyperpod/gpu-jobs /var/spool/hyperpod/training"
    until(lambda: output(busy, f"find {folders} -mindepth 1") == "", 30, lambda: "the epilog left something")
    write_now(busy)
    until(lambda: not workspace.query("hyperpod_training_step"), _SECONDS, lambda: "the series goes on")
    # Of the GPU, and of no job.
    until(lambda: not workspace.query('DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}'), _SECONDS, lambda: "the job goes on")


def cost(cluster: Cluster) -> None:
    """The writer's part of a core, every 30 s. On a machine that does other things besides, twice what is promised."""
    for host in (cluster.controller, cluster.workers[0]):
        spent = 0.0
        for part in ("node", "lustre"):
            said = output(host, f"{{ time -p /opt/hyperpod/bin/hyperpod-metrics {part}; }} 2>&1 || true")
            spent += sum(float(line.split()[1]) for line in said.splitlines() if line[:4] in ("user", "sys "))
        require(spent / 30 < 0.02, f"the writer takes {spent:.2f} s of CPU every 30 s on {host.name}")


def all_of_it_comes_back_after_a_reboot(cluster: Cluster) -> None:
    host = cluster.workers[0]
    cluster.reboot(host)
    until(lambda: output(host, f"systemctl is-active {' '.join(_UNITS)} || true").split() == ["active"] * 3,
          _SECONDS, lambda: output(host, f"systemctl status {' '.join(_UNITS)} || true"))  # fmt: skip
    until(lambda: host.read("/var/lib/hyperpod/metrics/node.prom") != "", _SECONDS, lambda: "the timer does not run")
