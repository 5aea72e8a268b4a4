"""Nodes whose image sets Slurm up, with a real Slurm."""

import json
import time

import pytest

from rehearsal.checks import require
from rehearsal.nodes.checks import all_idle, hostname_everywhere, job_environment, output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import healthy, mounts, reboot, until
from rehearsal.nodes.hosts import Host

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
GATE = "/run/slurm/conf/hyperpod-prolog-gate"
_SLURM = {
    "setup": "image",
    "accounting": {"database": "local"},
    "accounts": [{"name": "lab", "users": ["ada"], "maxGpus": 1}],
}
_KEYS = (f"slurm={json.dumps(_SLURM)}", 'users=[{"name":"ada","uid":2001}]')


@pytest.mark.timeout(400)
def test_nodes_come_up_reboot_and_are_replaced() -> None:
    with deployed("dev", *_KEYS) as stack, Cluster(stack, Options(workers=1)) as cluster:
        come_up(cluster)
        job_environment(cluster)
        limits_hold(cluster.controller)
        jobs_run_after_a_controller_has_lost_its_state(cluster)
        before = {host.name: mounts(host) for host in cluster.hosts}
        reboot(cluster, cluster.hosts)
        idle(cluster)
        for host in cluster.hosts:
            until(f"{host.name} has its mounts", lambda host=host: before[host.name] <= mounts(host))  # type: ignore[misc]
            healthy(host)
        a_job_waits_for_a_replaced_node(cluster)


@pytest.mark.timeout(200)
def test_nodes_come_up_while_the_image_is_at_it() -> None:
    with deployed("dev", *_KEYS) as stack, Cluster(stack, Options(workers=1, order="beside")) as cluster:
        come_up(cluster)


def come_up(cluster: Cluster) -> None:
    """Boot, and run a first job."""
    cluster.start_hosts()
    cluster.boot()
    scripts_succeeded(cluster)
    idle(cluster)
    for host in cluster.hosts:
        as_the_image_left_it(host)
    hostname_everywhere(cluster)


def idle(cluster: Cluster) -> None:
    until("all workers are idle", lambda: all_idle(cluster), 90)


def as_the_image_left_it(host: Host) -> None:
    """Nothing of the image's is set up a second time, and nothing of ours is missing."""
    lines = [line for line in host.read("/etc/fstab").splitlines() if " /fsx " in line]
    require(len(lines) == 1, f"{host.name} mounts /fsx by {lines}")
    require("--conf-server" not in host.read("/etc/systemd/system/slurmd.service.d/10-hyperpod.conf"), "slurmd is ours")
    output(host, "test -x /opt/hyperpod/bin/hyperpod-prolog && getent passwd ada")


def jobs_run_after_a_controller_has_lost_its_state(cluster: Cluster) -> None:
    """As a replaced controller has. Slurm 24.11 then sends the nodes their prolog without its mode."""
    head = cluster.controller
    output(head, "systemctl stop slurmctld && rm /var/spool/slurmctld/node_state* && systemctl start slurmctld")
    output(head, "scontrol reconfigure")
    for host in cluster.workers:
        until(f"{host.name} can run its prolog", lambda host=host: output(host, f"test -x {GATE}"), 30)  # type: ignore[misc]
    idle(cluster)
    hostname_everywhere(cluster)


def limits_hold(head: Host) -> None:
    """The image keeps account of jobs, and the stack's shares and limits are in its database."""
    found = output(head, "sacctmgr -nP show assoc user=ada format=account,user; sacctmgr -nP show account lab")
    require("lab|ada" in found, found)
    refused = head.run("sbatch --gpus-per-node=2 -o /dev/null --wrap hostname", user="ada")
    require(refused.returncode != 0 or "AssocGrp" in waiting(head), refused.stdout + refused.stderr)
    output(head, "scancel -u ada")
    job = output(head, "sbatch --parsable --wait -o /dev/null --wrap hostname", user="ada", timeout=90).strip()
    until("its record", lambda: "COMPLETED" in output(head, f"sacct -Xn -j {job} -o state"), 30)


def waiting(head: Host) -> str:
    return output(head, "sleep 3; squeue -h -u ada -o %r")


def a_job_waits_for_a_replaced_node(cluster: Cluster) -> None:
    """The image's slurmd takes jobs before the scripts have begun: they wait for them in its prolog."""
    gone, head = cluster.workers[0], cluster.controller
    fresh = cluster.fresh_host(gone)
    cluster.take_place(gone, fresh)
    cluster.set_up(fresh)
    idle(cluster)
    where = "/fsx/checkpoints/early-%j"  # where anybody may write
    job = output(head, f"sbatch --parsable -o {where} --wrap 'hostname; id -un ada'", user="ubuntu").strip()
    until("the job is in the prolog", lambda: "hyperpod-prolog-gate" in output(fresh, "ps -eo args"), 30)
    time.sleep(15)  # longer than slurmctld waits by default until it takes a job for lost
    require(output(head, f"squeue -h -j {job} -o %T").strip() in ("RUNNING", "CONFIGURING"), "the job does not wait")
    require(not cluster.shared(f"checkpoints/early-{job}").exists(), "the job has begun without the scripts")
    cluster.script(fresh)
    cluster.finish()
    scripts_succeeded(cluster)
    until("the job has ended", lambda: not output(head, f"squeue -h -j {job} -t pd,cf,r,cg -o %T").strip(), 60)
    require(
        cluster.shared(f"checkpoints/early-{job}").read_text().split() == [fresh.hostname, "ada"], "it ran elsewhere"
    )
    idle(cluster)


@pytest.mark.timeout(200)
def test_a_node_without_its_file_system_says_which_is_missing() -> None:
    with (
        deployed("dev", 'slurm={"setup":"image"}') as stack,
        Cluster(stack, Options(workers=0, environment={"HYPERPOD_TIMEOUT_IMAGE": "3"})) as cluster,
    ):
        cluster.start_hosts()
        assert cluster.image is not None
        cluster.image.leave_out("/fsx")
        cluster.boot()
        said = cluster.scripts["controller-1"]
        assert said.code == 1
        assert "step fsx failed: HyperPod has not mounted /fsx, which InstanceStorageConfigs names" in said.last_line
