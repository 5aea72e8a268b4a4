"""Drills of simulated nodes that run a real Slurm: one cluster boots, breaks and recovers, again and again."""

import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from components.config import Config
from operations.project.loading import Project

from ..account import Account
from ..checks import CheckFailed, require
from ..nodes import audit
from ..nodes.checks import all_idle, hostname_everywhere, output, scripts_succeeded
from ..nodes.cluster import Cluster, Options
from ..nodes.faults import fill, relieve
from ..nodes.growth import healthy, until
from ..nodes.health import FAULTS, Fault, becomes, state
from ..nodes.recovery import SAVE_EVERY, Recovery, cut_off, lose_a_worker, reboot_controller, train
from ..nodes.stack import bring_up
from .boots import BOOTS
from .model import Drill, Finding, Result, drills

# Slurm's HealthCheckProgram, which slurmd runs every 300 s.
_CHECK = "/opt/hyperpod/bin/hyperpod-health-check || true"


def _checked(cluster: Cluster) -> None:
    for host in cluster.workers:
        output(host, _CHECK)


def _fail_and_recover(cluster: Cluster, fault: Fault) -> Finding:
    *others, host = cluster.workers
    _checked(cluster)
    began = time.monotonic()
    output(host, fault.begin)
    _checked(cluster)
    becomes(cluster, host, "drained")
    said = state(cluster, host)
    for other in others:
        require(state(cluster, other).startswith("idle"), f"{other.name} too is {state(cluster, other)}")
    output(host, fault.end)
    _checked(cluster)
    if fault.resumed:
        require(state(cluster, host).startswith("drained"), f"{host.name} was resumed before its owner did so")
        output(cluster.controller, f"scontrol update nodename={host.hostname} state=resume")
        _checked(cluster)
    becomes(cluster, host, "idle")
    return Finding(said, seconds=time.monotonic() - began)


HEALTH: tuple[Drill[Cluster], ...] = tuple(
    Drill(fault.name, fault.breaks, "nodes", fault.reason, partial(_fail_and_recover, fault=fault), fault.unfit)
    for fault in FAULTS.values()
)


_STATE = "/var/spool/slurmctld"
_JOB = "sbatch --parsable -o /fsx/drill-%j.log --wrap"
_UNREACHABLE = "timeout 40 scontrol ping"


def _power(cluster: Cluster) -> Finding:
    seen: list[str] = []

    def off(host: Any) -> None:
        cluster.power_off(host)
        seen.append(cluster.workers[0].run(_UNREACHABLE, timeout=60).stdout.strip())

    began = time.monotonic()
    reboot_controller(cluster, off)
    return Finding(seen[0].partition("\n")[0], seconds=time.monotonic() - began)


def _survived(lose: Callable[[Cluster], Recovery]) -> Callable[[Cluster], Finding]:
    def act(cluster: Cluster) -> Finding:
        found = lose(cluster)
        return Finding(found.seen, _beyond_checkpoint(found.steps_lost), seconds=found.resumed_after_seconds)

    return act


def _beyond_checkpoint(steps_lost: int) -> list[str]:
    """What is lost of a training job, beside the steps since its last checkpoint."""
    beyond = steps_lost - SAVE_EVERY
    return [f"{beyond} steps before the last checkpoint"] if beyond > 0 else []


def _state_full(cluster: Cluster) -> Finding:
    """The controller cannot save: it takes no new job, and the running and the waiting one survive its restart."""
    controller, nodes = cluster.controller, len(cluster.workers)
    running = output(controller, f"{_JOB} 'srun sleep 6; echo finished' -N {nodes}").strip()
    waiting = output(controller, f"{_JOB} 'echo finished' -N {nodes} --exclusive").strip()
    until("the first job runs", lambda: running in output(controller, "squeue -h -t RUNNING -o %i"))
    fill(controller, _STATE)
    began = time.monotonic()
    said = controller.run(f"{_JOB} true").stderr.strip()
    relieve(controller, _STATE, "slurmctld")
    until("slurmctld answers", lambda: controller.run("scontrol ping", timeout=5).returncode == 0)
    again = output(controller, f"{_JOB} 'echo finished'").strip()
    seconds = time.monotonic() - began
    return Finding(said, _unfinished(cluster, running, waiting, again), seconds=seconds)


def _unfinished(cluster: Cluster, *jobs: str) -> list[str]:
    """Jobs that do not finish, which each says in its log."""
    logs = {job: cluster.shared(f"drill-{job}.log") for job in jobs}
    until("the jobs end", lambda: not output(cluster.controller, "squeue -h -t RUNNING,PENDING,COMPLETING").strip())
    return [f"job {job}" for job, log in logs.items() if not log.exists() or "finished" not in log.read_text()]


def _shared_full(cluster: Cluster) -> Finding:
    """Training cannot save: it ends with the reason, its last checkpoint is whole, and the same job resumes there."""
    out = "/fsx/checkpoints/full"
    job, log = train(cluster, len(cluster.workers), out)
    cluster.sandbox.resize(cluster.stack.file_system, 64)
    began, before = time.monotonic(), len(log.read_text())
    try:
        until("training notices", lambda: "rror" in log.read_text()[before:])
        running = f"squeue -h -j {job} -t RUNNING"
        until("the job ends", lambda: not output(cluster.controller, running), 60.0)
    finally:
        cluster.sandbox.resize(cluster.stack.file_system)
    text = log.read_text()
    said = next((line for line in text[before:].splitlines() if "space" in line), text[before:][-200:])
    left = [f"{out}/{path.name}" for path in log.parent.glob(".*")]
    reached = max(int(step) for step in re.findall(r"^iter (\d+):", text, re.M))
    job, log = train(cluster, len(cluster.workers), out)
    resumed = int(re.findall(r"^resumed after iter (\d+)", log.read_text(), re.M)[-1])
    seconds = time.monotonic() - began
    output(cluster.controller, f"scancel {job}")
    return Finding(said, _beyond_checkpoint(reached - resumed), left, seconds)


DRILLS: tuple[Drill[Cluster], ...] = (
    *drills(
        "nodes",
        {
            "controller-power": _power,
            "worker-lost": _survived(lose_a_worker),
            "partition": _survived(cut_off),
            "state-disk-full": _state_full,
            "fsx-full": _shared_full,
        },
    ),
    *HEALTH,
    *BOOTS,
)


class NodeDrills:
    """One cluster for all drills; a drill that does not recover costs it, and the next one gets a new cluster."""

    def __init__(
        self,
        project: Project,
        config: Config,
        on_start: Callable[[Drill[Any]], None],
        on_end: Callable[[Result], None],
    ) -> None:
        self._project, self._config = project, config
        self._on_start, self._on_end = on_start, on_end

    def hold(self, drills: Sequence[Drill[Cluster]]) -> None:
        """Hold these drills."""
        before, made, rest = audit.look(), audit.Namespaces(), list(drills)
        results: list[Result] = []
        with made, Account(self._config.region.name) as account:
            stack = bring_up(self._project, self._config, account)
            while rest:
                with Cluster(stack, Options(workers=2)) as cluster:
                    made.note([cluster.sandbox.pid])
                    run_id = cluster.sandbox.run_id
                    cluster.start_hosts()
                    cluster.boot()
                    scripts_succeeded(cluster)
                    while rest:
                        drill = rest.pop(0)
                        self._on_start(drill)
                        results.append(_held(drill, cluster, self._project.stack))
                        made.note([host.pid for host in cluster.hosts])
                        self._on_end(results[-1])
                        if not results[-1].passed:
                            break
                results[-1].left += audit.leftovers(before, run_id, made)


def _held(drill: Drill[Cluster], cluster: Cluster, stack: str) -> Result:
    result = drill.run(cluster, stack)
    if result.passed:
        try:
            result.left = _left(cluster)
        except CheckFailed as unhealthy:
            result.why = f"afterwards: {unhealthy}"
    return result


def _left(cluster: Cluster) -> list[str]:
    """What a drill has left on the cluster. Raises CheckFailed if the cluster is not whole again."""
    until("all workers are idle", lambda: all_idle(cluster))
    hostname_everywhere(cluster)
    for host in cluster.hosts:
        healthy(host)
    jobs = output(cluster.controller, "squeue -h -o '%i %T %r'").splitlines()
    return [f"job {job}" for job in jobs]
