"""Health checks on a living cluster: a fault takes its own node out within an interval, and no other."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from operations.cluster import sessions
from operations.cluster.health import ask
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.target import Target
from rehearsal.checks import require
from rehearsal.drills.nodes import HEALTH
from rehearsal.nodes import health
from rehearsal.nodes.checks import all_idle, output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import until
from rehearsal.nodes.hosts import Host

from .conftest import deployed
from .test_run_scripts import described

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
_GROUP = [{"name": "workers", "instanceType": "ml.p5.48xlarge", "count": 3}]


@pytest.mark.timeout(400)
def test_a_fault_takes_its_node_out_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with deployed("slurm-gpu", f"workers={json.dumps(_GROUP)}") as stack, Cluster(stack, Options()) as cluster:
        cluster.start_hosts()
        health.often(cluster)
        cluster.boot()
        scripts_succeeded(cluster)
        first, second, third = cluster.workers
        one_session_asks_all_workers(cluster, monkeypatch)
        drained_and_back(cluster, first, "gpu-missing")
        drained_and_back(cluster, second, "fsx-unmounted")
        drilled(cluster)
        no_job_is_held(cluster, third)
        jobs_go_elsewhere(cluster)
        others_drain_is_theirs(cluster, third)
        only_one_at_a_time(cluster, first, second)
        handed_over(cluster, second, "gpu-xid", "reboot")
        handed_over(cluster, third, "efa-missing", "replace")


def one_session_asks_all_workers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hyperpod node health` of more workers than sessions at once. Slurm has a job on each of them."""
    opened = []

    def run_remote(_: object, node: Node, command: str, timeout: float) -> Remote:
        opened.append(node.name)
        found = cluster.host(node.name).run(command.replace("sudo -n ", ""), timeout=timeout)
        return Remote(code=found.returncode, output=found.stdout + found.stderr)

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    monkeypatch.setattr(sessions, "AT_ONCE", 1)
    nodes = [described(host) for host in cluster.hosts]
    job = output(cluster.controller, "sbatch --parsable -N 3 --exclusive -o /dev/null --wrap 'sleep 300'").strip()
    until("the job runs", lambda: output(cluster.controller, f"squeue -h -j {job} -o %T") == "RUNNING\n")
    found = ask(cast(Target, SimpleNamespace(stack="slurm-gpu", on_eks=False)), nodes, now=True)
    output(cluster.controller, f"scancel {job}")
    assert opened == [cluster.controller.name]
    assert [(one.node, one.status) for one in found] == [(host.name, "PASS") for host in cluster.workers], found
    until("all workers are idle", lambda: all_idle(cluster))


def drained_and_back(cluster: Cluster, host: Host, fault: str) -> None:
    begun(cluster, host, fault)
    for other in cluster.workers:
        require(other is host or health.state(cluster, other).startswith("idle"), health.state(cluster, other))
    ended(cluster, host, fault)


def drilled(cluster: Cluster) -> None:
    """The drill that the stack of the other drills cannot hold."""
    (drill,) = (one for one in HEALTH if one.name == "efa-missing")
    result = drill.run(cluster, "slurm-gpu")
    assert result.passed, result.as_json()
    until("all workers are idle", lambda: all_idle(cluster))


def begun(cluster: Cluster, host: Host, fault: str) -> None:
    output(host, health.FAULTS[fault].begin)
    health.becomes(cluster, host, "drained")
    wanted = health.FAULTS[fault].reason
    found = health.state(cluster, host)
    require(re.search(wanted, found), f"{host.name} is {found!r}, not {wanted!r}")


def ended(cluster: Cluster, host: Host, fault: str) -> None:
    output(host, health.FAULTS[fault].end)
    health.becomes(cluster, host, "idle")


def no_job_is_held(cluster: Cluster, host: Host) -> None:
    """A job whose prolog fails waits for another node, and not for somebody to release it, as by Slurm's default."""
    output(host, "sed -i.kept 's/^devices=.*/devices=9/' /etc/hyperpod/prolog.env")
    submit = f"sbatch --parsable --requeue --nodelist={host.hostname} -o /dev/null --wrap true"
    job = output(cluster.controller, submit).strip()

    def shown() -> str:
        return output(cluster.controller, f"scontrol show job {job} -o")

    until(f"job {job} is back in the queue", lambda: "Restarts=0" not in shown())
    found = shown()
    require("held" not in found.lower() and "Priority=0 " not in found, found)
    output(host, "mv /etc/hyperpod/prolog.env.kept /etc/hyperpod/prolog.env")
    output(cluster.controller, f"scancel {job}")
    until("all workers are idle", lambda: all_idle(cluster))


def jobs_go_elsewhere(cluster: Cluster) -> None:
    """A job is requeued from a node that drains, and a job waits: neither starts there while others are free."""
    controller, log, other = cluster.controller, cluster.shared("health.log"), cluster.shared("waiting.log")
    submit = "sbatch --parsable --exclusive --open-mode=append --requeue"
    job = output(controller, f"{submit} -o /fsx/health.log --wrap 'hostname; sleep 300'").strip()
    until("the job runs", lambda: bool(_hosts(log)))
    host = next(one for one in cluster.workers if [one.hostname] == _hosts(log))
    output(host, health.FAULTS["gpu-missing"].begin)
    health.becomes(cluster, host, "draining")
    waiting = output(controller, f"{submit} -o /fsx/waiting.log --wrap hostname").strip()
    output(controller, f"scontrol requeue {job}; scontrol update job={job} starttime=now")
    until("both jobs run", lambda: len(_hosts(log)) == 2 and bool(_hosts(other)))
    on = {*_hosts(log)[1:], *_hosts(other)}
    require(host.hostname not in on, f"jobs {job} and {waiting} are on {on}, and {host.hostname} is bad")
    output(controller, f"scancel {job} {waiting}")
    health.becomes(cluster, host, "drained")
    ended(cluster, host, "gpu-missing")
    until("all workers are idle", lambda: all_idle(cluster))


def _hosts(log: Path) -> list[str]:
    """The hosts that a job's runs have named; Slurm adds a line for a run that it ends."""
    return re.findall(r"^ip-\S+$", log.read_text(), re.M) if log.exists() else []


def others_drain_is_theirs(cluster: Cluster, host: Host) -> None:
    for reason in ("maintenance", "Action:Replace"):
        output(cluster.controller, f"scontrol update nodename={host.hostname} state=drain reason='{reason}'")
        health.unmoved(cluster, host, lambda: health.state(cluster, host))
        output(host, health.FAULTS["gpu-missing"].begin)
        health.unmoved(cluster, host, lambda: health.state(cluster, host))
        output(host, health.FAULTS["gpu-missing"].end)
        output(cluster.controller, f"scontrol update nodename={host.hostname} state=resume")


def only_one_at_a_time(cluster: Cluster, first: Host, second: Host) -> None:
    begun(cluster, first, "gpu-missing")
    output(second, health.FAULTS["fsx-unmounted"].begin)
    health.unmoved(cluster, second, lambda: health.state(cluster, second))
    require("only reported: 1 of 3" in second.read("/run/hyperpod-health/results.json"), "it says nothing")
    output(second, health.FAULTS["fsx-unmounted"].end)
    ended(cluster, first, "gpu-missing")


def handed_over(cluster: Cluster, host: Host, fault: str, policy: str) -> None:
    health.set_policy(host, policy)
    output(host, health.FAULTS[fault].begin)
    health.obey(cluster, host)
    until("all workers are idle", lambda: all_idle(cluster))
