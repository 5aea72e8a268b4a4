"""A living cluster: nodes and groups join in both of HyperPod's orders, all reboot, the controller is replaced.

On a first create the agent writes slurm.conf's node lines before the lifecycle scripts run. When a group is added or
grown, and with continuous provisioning, it writes them minutes after the scripts have ended (AWS's Physical AI
Scaffolding Kit waits for it in register_slurm_features.sh). Here minutes are moments.
"""

import json
import re
import time
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

import pytest

from operations.cluster import draining, sessions
from operations.cluster.node import Node
from operations.cluster.remove import REASON
from operations.target import Target
from rehearsal.checks import CheckFailed, require
from rehearsal.nodes.checks import THREADS, all_idle, hostname_everywhere, output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import reboot_others, until
from rehearsal.nodes.hosts import Host
from tests.golden.stacks import VPC

from .conftest import deployed

# A worker's slurmd retries every two seconds, and the controller takes a moment to read its configuration.
_JOIN_SECONDS = 60.0
# The longest time for which the controller may not answer while it adds nodes (slurm.conf(5): TCPTimeout is 2 s).
_DEAF_SECONDS = 6.0
_JOB = "sbatch --parsable -N {nodes} -o /fsx/growth-%j.log --wrap 'echo started; srun sleep 6; echo finished'"
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
_GROUPS = [
    {"name": "workers", "instanceType": "ml.g5.16xlarge", "count": 2},
    {"name": "more", "instanceType": "ml.g5.48xlarge", "count": 1},
]
# Every node mounts both, whenever it joins and after each reboot: a home of the stack's, and somebody else's /fsx.
_SYSTEM = "fs-0123456789abcdef0"
_FSX = f'fsx={{"homeStorageGiB":64,"fileSystemId":"{_SYSTEM}"}}'
_NETWORK = f"network={json.dumps(VPC)}"
_OWN_LINES = 'slurm={"extraConf":"docs/slurm.conf.d"}'


@pytest.mark.timeout(400)
def test_nodes_and_a_group_join_and_all_come_back_from_a_reboot() -> None:
    options = Options(workers=0, absent=frozenset({"more"}))
    with (
        deployed(
            "dev", f"workers={json.dumps(_GROUPS)}", 'login={"instanceType":"ml.m5.large"}', _OWN_LINES, _FSX, _NETWORK
        ) as stack,
        Cluster(stack, options) as cluster,
    ):
        cluster.start_hosts()
        cluster.boot()
        # Without a worker the controller comes up without complaint.
        scripts_succeeded(cluster)
        assert f"{_SYSTEM}.fsx." in output(cluster.controller, "grep ' /fsx lustre ' /etc/fstab")
        join_late(cluster, "workers", 2)
        join_late(cluster, "workers", 2, whole=True)
        own_lines_stay(cluster)
        own_lines_are_tried(cluster)
        join_late(cluster, "more", 1)
        name_the_slow(cluster)
        remove_named(cluster)
        homes_are_shared(cluster)
        reboot_others(cluster)
        replace_controller(cluster)
        homes_are_shared(cluster)


def homes_are_shared(cluster: Cluster) -> None:
    """/home is the same on all nodes, by NFS from the file system that the stack has made, and not /fsx."""
    for host in cluster.hosts:
        output(host, "touch ~/from-$(hostname)", user="ubuntu")
        source, kind = output(host, "awk '$2 == \"/home\" {print $1, $3}' /etc/fstab").split()
        assert (source.split(":")[1], kind) == ("/fsx", "nfs")
    for host in cluster.hosts:
        assert {f"from-{one.hostname}" for one in cluster.hosts} <= set(output(host, "ls /home/ubuntu").split())
    assert not cluster.shared("ubuntu").exists()


def join_late(cluster: Cluster, group: str, count: int, *, whole: bool = False) -> str:
    """Add nodes to a group, while a job runs if there are workers: scripts first, then the slurm.conf lines.

    ``whole``: the agent does not append lines but writes slurm.conf anew, without others' changes.
    """
    before = list(cluster.workers)
    job, log = "", cluster.shared("growth.log")
    if before:
        job = output(cluster.controller, _JOB.format(nodes=len(before))).strip()
        log = cluster.shared(f"growth-{job}.log")
        until("the job runs", lambda: log.exists() and "started" in log.read_text())
    fresh = cluster.add_hosts(group, count)
    for host in fresh:
        run = cluster.script(host)
        require(run.wait(90) == 0, f"{host.name}, which slurm.conf does not name yet: {run.last_line or 'no end'}")
        said = next((line for line in run.lines if line.startswith("step slurm ")), "")
        require("does not know" in said, f"{host.name} does not say that it waits for its line: {said!r}")
    began = time.monotonic()
    cluster.agent.announce(cluster.hosts, whole=whole)
    deaf = _silence(cluster)
    until("new workers come up by themselves", lambda: _all_known(cluster), _JOIN_SECONDS)
    seconds = time.monotonic() - began
    require(deaf <= _DEAF_SECONDS, f"the controller did not answer for {deaf:.1f} s when it took {count} nodes")
    if job:
        until(f"job {job} ends", lambda: "finished" in log.read_text())
        states = output(cluster.controller, f"scontrol show job {job} -o")
        require("Restarts=0" in states, f"the job was started again when {count} nodes joined")
    until("all workers are idle", lambda: all_idle(cluster))
    until("Slurm has every worker's accelerators", lambda: _devices_everywhere(cluster))
    hostname_everywhere(cluster)
    return f"{count} nodes after {seconds:.1f} s, controller silent for {deaf:.1f} s"


def own_lines_stay(cluster: Cluster) -> None:
    """The lines of docs/slurm.conf.d are in force after the agent has written slurm.conf anew, and on login nodes."""
    for host in (cluster.controller, *cluster.of_role("login")):
        shown = output(host, "scontrol show config")
        assert re.search(r"^MaxArraySize += 5001$", shown, re.M)
        assert re.search(r"^KillOnBadExit += 1$", shown, re.M)
        assert output(host, "sinfo -h -p short -o '%l %D'").split() == ["1:00:00", str(len(cluster.workers))]


def own_lines_are_tried(cluster: Cluster) -> None:
    """A line with which slurmctld would end is named, and the running one does not notice; a good one is taken."""
    stack, head, name = cluster.stack, cluster.controller, "hyperpod_slurm_conf.json"
    key = f"{stack.prefix}/{name}"
    command = f"/opt/hyperpod/bin/hyperpod-slurm-config s3://{stack.bucket}/{key} --region {stack.config.region.name}"
    document, daemon = json.loads(cluster.files[name]), output(head, "pidof slurmctld")
    for lines, said in (
        (
            "KillWait=11\nSchedulerType=sched/nosuch\n",
            "b.conf, line 2: fatal: Failed to initialize the various schedulers",
        ),
        ("NoSuchKey=1\n", "b.conf, line 1: error: _parse_next_key: Parsing error at unrecognized key: NoSuchKey"),
        ("\nPartitionName=dev Nodes=ALL\n", "duplicate entry for partition dev"),
    ):
        document["files"][1:] = [{"name": "b.conf", "text": lines}]
        stack.account.client("s3").put_object(Bucket=stack.bucket, Key=key, Body=json.dumps(document).encode())
        with pytest.raises(CheckFailed, match=re.escape(said)):
            output(head, command, timeout=120)
    assert output(head, "pidof slurmctld") == daemon
    assert "hyperpod-own-b.conf" not in output(head, "ls /opt/slurm/etc /run")
    document["files"][1:] = [{"name": "b.conf", "text": "KillWait=11\n"}]
    stack.account.client("s3").put_object(Bucket=stack.bucket, Key=key, Body=json.dumps(document).encode())
    assert json.loads(output(head, command, timeout=120))["changed"]
    assert re.search(r"^KillWait += 11 sec$", output(cluster.workers[0], "scontrol show config"), re.M)
    own_lines_stay(cluster)


def name_the_slow(cluster: Cluster) -> str:
    """Of three workers one has a slow network: it is named, with nothing else."""
    until("the last job's epilog ends", lambda: all_idle(cluster))
    slow, *others = cluster.workers
    names = ",".join(host.hostname for host in others[2:])
    device = "$(ip route show default | grep -oP 'dev \\K\\S+')"
    output(cluster.controller, f"scontrol update nodename={names} state=drain reason=aside")
    output(slow, f"tc qdisc add dev {device} root tbf rate 200mbit burst 256kbit latency 50ms")
    done = cluster.controller.run(f"{THREADS} hyperpod-find-slow-node --threshold 0 --json", timeout=120)
    output(slow, f"tc qdisc del dev {device} root")
    output(cluster.controller, f"scontrol update nodename={names} state=resume")
    require(done.returncode == 1, f"code {done.returncode}: {done.stderr.strip()[-200:]}")
    found = json.loads(done.stdout)
    require(
        found["nodes"] == [slow.hostname] and not found["links"],
        f"{found['nodes']}, {found['links']}: {found['pairs']}",
    )
    return f"{slow.name}, below {found['limit']:.2f} GB/s"


def remove_named(cluster: Cluster) -> None:
    """`hyperpod node remove` drains the node that it is given: its job ends, it goes, and Slurm drops it."""
    gone, head = cluster.workers[1], cluster.controller
    command = f"sbatch --parsable -w {gone.hostname} -o /fsx/remove.log --wrap 'echo started; sleep 3; echo finished'"
    job, log = output(head, command).strip(), cluster.shared("remove.log")
    until("the job runs", lambda: log.exists() and "started" in log.read_text())
    said = drain_as_the_verb_does(cluster, gone)
    assert said[0] == f"Waiting on {gone.name} for 1 jobs to end: {job} ..."
    assert "finished" in log.read_text()
    assert output(head, f"sinfo -h -n {gone.hostname} -o '%T %E' | sort -u").strip() == f"drained {REASON}"
    cluster.remove(gone)
    until("Slurm does not know it", lambda: gone.hostname not in output(head, "sinfo -h -N -o %n"))
    assert gone.hostname not in output(head, "scontrol show partition -o")
    until("the others work on", lambda: all_idle(cluster))
    hostname_everywhere(cluster)


def drain_as_the_verb_does(cluster: Cluster, gone: Host) -> list[str]:
    """The verb's own drain, with Session Manager replaced by the host's shell. Returns what it tells its user."""

    def at_once(_: Target, node: Node, line: str, timeout: float) -> sessions.Remote:
        # The hosts' shell is root's, and they have no sudo.
        host = next(host for host in cluster.hosts if host.hostname == node.hostname)
        done = host.run(line.removeprefix("sudo -n "), timeout=timeout)
        return sessions.Remote(code=done.returncode, output=done.stdout)

    def known(host: Host, role: str) -> Node:
        return Node(
            name=host.name,
            group=role,
            role=role,
            instance_id="i-1",
            instance_type="",
            status="Running",
            hostname=host.hostname,
        )

    said: list[str] = []
    head, node = known(cluster.controller, "controller"), known(gone, "worker")
    target = cast(Target, SimpleNamespace(on_eks=False))
    with patch.object(sessions, "run_remote", at_once), patch.object(draining, "_AGAIN_SECONDS", 0.5):
        taken = draining.drain_slurm(target, [head, node], [node], said.append, reason=REASON, patience=60, hint="")
    assert taken == [node]
    return said


def replace_controller(cluster: Cluster) -> str:
    """The controller is lost, and its replacement has a new address. Workers follow it without a script."""
    gone, began = cluster.controller, time.monotonic()
    fresh = cluster.fresh_host(gone)
    cluster.take_place(gone, fresh)
    require(cluster.script(fresh).wait(90) == 0, f"{fresh.name}: {cluster.scripts[fresh.name].last_line}")
    until(f"workers find {fresh.address}", lambda: all_idle(cluster))
    hostname_everywhere(cluster)
    return f"{gone.address} is {fresh.address}, all idle after {time.monotonic() - began:.1f} s"


def _silence(cluster: Cluster) -> float:
    """Seconds for which the controller does not answer while it adds nodes."""
    began, last = time.monotonic(), 0.0
    while time.monotonic() - began < 2 + last:
        if cluster.controller.run(["scontrol", "ping"], timeout=5).returncode:
            last = time.monotonic() - began
            require(last < _JOIN_SECONDS, "the controller does not answer any more")
        time.sleep(0.1)
    return last


def _all_known(cluster: Cluster) -> str:
    states = dict(line.split() for line in output(cluster.controller, "sinfo -h -N -o '%n %t' | sort -u").splitlines())
    missing = {host.hostname for host in cluster.workers} - {
        name for name, state in states.items() if state in ("idle", "mix", "alloc")
    }
    require(not missing, f"not there: {missing}")
    return ""


def _devices_everywhere(cluster: Cluster) -> str:
    """Slurm knows every worker's accelerators, even after somebody else wrote its configuration."""
    found = dict(line.split() for line in output(cluster.controller, "sinfo -h -N -o '%n %G' | sort -u").splitlines())
    for host in cluster.workers:
        count = host.machine.kind.accelerators if host.machine.kind.accelerator == "gpu" else 0
        wanted = f"gpu:{count}" if count else "(null)"
        shown = found.get(host.hostname, "")
        require(shown.startswith(wanted) or f":{count}" in shown, f"{host.name} has {shown or 'nothing'}, not {wanted}")
    return ""
