"""Checks of recovery: a worker is lost during training, and the controller reboots while a job runs."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..checks import require
from .checks import THREADS, TRAINER, all_idle, hostname_everywhere, output
from .cluster import Cluster
from .growth import until
from .hosts import Host

STEPS, SAVE_EVERY = 2000, 20
# Seconds after which slurmctld has saved a change (its src/slurmctld/state_save.c: SAVE_MAX_WAIT is 5), and one more.
SAVED_WITHIN = 6.0
_OUT = "/fsx/checkpoints/recovery"
# The cluster's own service notices within seconds. If it takes longer than this, Slurm's timeout noticed.
_NOTICED_SECONDS = 30.0
# A controller with a single worker and nothing else leaves it to Slurm: its own network may be what is lost.
_NOTICED_BY_SLURM_SECONDS = 150.0
# Seconds for which a node stays cut off after that: slurmctld does not try longer to tell it anything (MessageTimeout).
_OUTAGE = 12.0
# A busy machine may need minutes to load PyTorch again.
_RESUMES_SECONDS = 400.0
_RESUMED = "resumed after iter "
_ITER = re.compile(r"^iter (\d+): loss", re.M)


@dataclass
class Recovery:
    """How a job survived the loss of a node."""

    resumed_after_seconds: float = 0.0
    steps_lost: int = 0
    noticed_seconds: float = 0.0
    node_back_seconds: float = 0.0
    lost_at_step: int = 0
    checkpoint: int = 0
    # Why Slurm's `sinfo -R` has the node down.
    seen: str = ""

    def as_json(self) -> dict[str, float | int]:
        """The documented form, with what explains it."""
        return {
            "resumed_after_seconds": round(self.resumed_after_seconds, 2),
            "steps_lost": self.steps_lost,
            "noticed_seconds": round(self.noticed_seconds, 2),
            "node_back_seconds": round(self.node_back_seconds, 2),
            "lost_at_step": self.lost_at_step,
            "checkpoint": self.checkpoint,
        }


def lose_a_worker(cluster: Cluster, ranks: int = 0) -> Recovery:
    """Kill a worker of a training job on ``ranks`` nodes (all by default). Raises CheckFailed.

    Without a spare node, the job waits until HyperPod has replaced the lost one.
    """
    nodes, found = ranks or len(cluster.workers), Recovery()
    job, log = train(cluster, nodes)
    on = _nodes_of(cluster, job)
    victim = next(host for host in cluster.workers if host.hostname == on[-1])
    cluster.power_off(victim)
    lost, before = time.monotonic(), log.read_text(errors="replace")
    fresh = cluster.fresh_host(victim) if nodes == len(cluster.workers) else None
    # HyperPod takes minutes to replace an instance. Here the replacement waits until the cluster has noticed the loss.
    _notice(cluster, victim, found, lost)
    if fresh is not None:
        cluster.join(victim, fresh)

    def resumed() -> bool:
        if (
            fresh is not None
            and not found.node_back_seconds
            and (script := cluster.scripts[fresh.name]).code is not None
        ):
            require(script.code == 0, f"{fresh.name} did not join: {script.last_line}")
            found.node_back_seconds = script.ended - lost
        return _ITER.search(_after(log, before).partition(_RESUMED)[2]) is not None

    until("the job resumes", resumed, _RESUMES_SECONDS)
    found.resumed_after_seconds = time.monotonic() - lost
    _count_steps(found, before, _after(log, before))
    now_on = _nodes_of(cluster, job)
    output(cluster.controller, f"scancel {job}")
    require(
        found.noticed_seconds <= (_NOTICED_SECONDS if len(cluster.hosts) > 2 else _NOTICED_BY_SLURM_SECONDS),
        f"the loss was noticed after {found.noticed_seconds:.0f} s: hyperpod-requeue did not see it",
    )
    require(victim.hostname not in now_on, f"the job runs on {' '.join(now_on)}, one of which is lost")
    require(found.steps_lost <= SAVE_EVERY, f"{found.steps_lost} steps lost with a checkpoint every {SAVE_EVERY}")
    if fresh is not None:
        cluster.finish()
        until("all workers are idle again", lambda: all_idle(cluster))
        # Login nodes too: they have a copy of slurm.conf.
        hostname_everywhere(cluster)
    return found


def cut_off(cluster: Cluster) -> Recovery:
    """Part the node that has a training job's batch script from the network, and give it back once the loss is noticed.

    The job goes on from its checkpoint, and nothing of its first run stays on that node. Raises CheckFailed.
    """
    job, log = train(cluster, len(cluster.workers), f"{_OUT}-parted")
    victim, found = next(host for host in cluster.workers if host.hostname == _nodes_of(cluster, job)[0]), Recovery()
    processes = _processes(victim)
    cluster.network.cut(victim.address)
    lost, before = time.monotonic(), log.read_text(errors="replace")
    _notice(cluster, victim, found, lost)
    time.sleep(_OUTAGE)
    require(processes & _processes(victim), "the job's processes ended by themselves, so this shows nothing")
    cluster.network.heal(victim.address)
    until("the node is back", lambda: not _state(cluster, victim.hostname).startswith("down"))
    found.node_back_seconds = time.monotonic() - lost
    until(
        "the job resumes",
        lambda: _ITER.search(_after(log, before).partition(_RESUMED)[2]) is not None,
        _RESUMES_SECONDS,
    )
    found.resumed_after_seconds = time.monotonic() - lost
    _count_steps(found, before, _after(log, before))
    still = processes & _processes(victim)
    require(not still, f"still on {victim.name}, of the job's first run: {', '.join(sorted(still))}")
    output(cluster.controller, f"scancel {job}")
    return found


def _processes(host: Host) -> set[str]:
    """The processes of jobs on a host: number, name and start."""
    files = "$(grep -lzs '^SLURM_JOB_ID=' /proc/[0-9]*/environ)"
    return set(host.run(f"for f in {files}; do cut -d' ' -f1,2,22 ${{f%environ}}stat; done").stdout.splitlines())


def _notice(cluster: Cluster, victim: Host, found: Recovery, lost: float) -> None:
    until("Slurm notices the loss", lambda: _state(cluster, victim.hostname).startswith("down"))
    found.noticed_seconds = time.monotonic() - lost
    found.seen = output(cluster.controller, f"sinfo -h -R -n {victim.hostname} -o '%n is down: %E'").strip()


def train(cluster: Cluster, nodes: int, out: str = _OUT) -> tuple[str, Path]:
    """Start a job and wait until it is past its second checkpoint. Returns the job and its log."""
    log = cluster.shared(out.removeprefix("/fsx/") + "/train.log")
    before = _after(log, "")
    options = f"--steps {STEPS} --save-every {SAVE_EVERY} --log-every 1 --out {out} --detach --json {TRAINER}"
    job = json.loads(output(cluster.controller, f"{THREADS} run-nanogpt {nodes} 1 {options}"))["job"]
    until("the job trains", lambda: len(_ITER.findall(_after(log, before))) > 2.5 * SAVE_EVERY)
    return job, log


def _after(log: Path, before: str) -> str:
    return log.read_text(errors="replace")[len(before) :] if log.exists() else ""


def _count_steps(found: Recovery, before: str, after: str) -> None:
    """The last step before the loss, and the first one after it."""
    # The log may have grown a little since it was last read.
    old, _, new = after.partition(_RESUMED)
    found.checkpoint = int(new.split()[0])
    found.lost_at_step = max(int(step) for step in _ITER.findall(before + old))
    found.steps_lost = max(0, found.lost_at_step - int(_ITER.findall(new)[0]) + 1)


def _nodes_of(cluster: Cluster, job: str) -> list[str]:
    return output(cluster.controller, f"scontrol show hostnames $(squeue -h -j {job} -o %N)").split()


def reboot_controller(cluster: Cluster, off: Callable[[Host], None] | None = None) -> str:
    """The controller reboots while one job runs and one waits. Both finish. ``off``: how it goes, else in order."""
    controller, nodes = cluster.controller, len(cluster.workers)
    submit = f"sbatch --parsable -N {nodes} --exclusive -o /fsx/reboot-%j.log --wrap"
    running = output(controller, f"{submit} 'echo started; srun sleep 12; echo finished'").strip()
    waiting = output(controller, f"{submit} 'srun hostname; echo finished'").strip()
    logs = [cluster.shared(f"reboot-{job}.log") for job in (running, waiting)]
    until("the first job runs", lambda: logs[0].exists() and "started" in logs[0].read_text())
    before = output(controller, "squeue -h -o '%i %T' | sort")
    if off:
        # A controller that goes in order saves its state; otherwise the last seconds are lost (SAVE_MAX_WAIT).
        time.sleep(SAVED_WITHIN)
    began = time.monotonic()
    (off or cluster.shut_down)(controller)
    cluster.power_on(controller)
    until("slurmctld answers", lambda: controller.run("scontrol ping", timeout=5).returncode == 0)
    seconds = time.monotonic() - began
    after = output(controller, "squeue -h -o '%i %T' | sort")
    require(after == before, f"jobs before: {before.split()}, after: {after.split()}")
    until("both jobs finish", lambda: all(log.exists() and "finished" in log.read_text() for log in logs))
    until("all workers are idle again", lambda: all_idle(cluster))
    require(
        cluster.controller.run("test -d /fsx/.hyperpod/slurm").returncode == 0, "/fsx is not mounted after the reboot"
    )
    return f"back in {seconds:.1f} s with a running and a waiting job, which both finished"


def _state(cluster: Cluster, node: str) -> str:
    return cluster.controller.run(["sinfo", "-h", "-N", "-n", node, "-o", "%T"]).stdout.strip()
