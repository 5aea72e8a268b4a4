"""NVIDIA's own test of a node's GPUs: ``dcgmi diag``, which needs them idle. Judged as the nodes' own check is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hyperpod_node.health import dcgm, model

from ..failures import Exit, Failure, bad_input
from ..target import Target
from . import device_pods, sessions
from . import nodes as cluster_nodes
from .node import Node

# Seconds at most: a level takes a few seconds, 2 to 3 minutes, 30 minutes, and up to 2 hours on 8 GPUs (NVIDIA DCGM
# User Guide, "Active health checks (diagnostics)").
LEVELS = {1: 120, 2: 900, 3: 3600, 4: 9000}
# What the nodes' health calls it, what people read, and the verb's exit code.
_RESULTS = {model.OK: "PASS", model.BAD: "FAIL", model.UNKNOWN: "UNKNOWN"}
_CODES = {"PASS": Exit.GOOD, "FAIL": Exit.FAILED, "UNKNOWN": Exit.CANNOT_KNOW}
# For a node that Slurm does not know both end with 1 and words (their opts.c and sinfo.c).
_STATE = "sinfo -h -n {host} -o %T && squeue -h -w {host} -o %A"
_AWAY = re.compile(r"drain|down|fail")


@dataclass(frozen=True, kw_only=True)
class DeviceTest:
    """The test of one node: PASS (which may be with a warning), FAIL or UNKNOWN, why, and what dcgmi printed."""

    node: str
    level: int
    result: str
    detail: str
    output: str

    @property
    def code(self) -> Exit:
        """What the verb's exit code says of it."""
        return _CODES[self.result]


def run(target: Target, nodes: Sequence[Node], node: Node, level: int) -> DeviceTest:
    """Test the GPUs of a worker, one of the cluster's nodes. Raises Failure where the node has none, or jobs.

    A node that takes jobs is tested by a job of its own, on EKS by a pod, so that no other starts meanwhile.
    """
    if level not in LEVELS:
        raise bad_input(f"--level {level}", f"one of {', '.join(map(str, LEVELS))}")
    group = next((one for one in target.config.worker_groups if one.name == node.group), None)
    if group is None or group.type.accelerator != "gpu":
        raise bad_input(f"{node.name} has no GPUs", "--level is for workers with GPUs")
    test = f"dcgmi diag -r {level} -j"
    if target.on_eks:
        output = device_pods.run(target, node, group, test, LEVELS[level])
    else:
        output = _by_slurm(target, nodes, node, test, LEVELS[level])
    found = dcgm.judge(level, output)
    return DeviceTest(node=node.name, level=level, result=_RESULTS[found.status], detail=found.detail, output=output)


def _by_slurm(target: Target, nodes: Sequence[Node], node: Node, test: str, seconds: int) -> str:
    """What the test printed, as a job of its own, or directly on a node that gets no jobs."""
    controller = cluster_nodes.controller(nodes)
    said = sessions.run_remote(target, controller, _STATE.format(host=node.hostname), 60)
    if said.code or not said.output.split():
        raise Failure(
            f"Slurm does not report the state of {node.name}: {said.output.strip() or 'no such node'}",
            f"hyperpod node list {target.stack}",
        )
    state, *jobs = said.output.split()
    if jobs:
        raise Failure(
            f"{node.name} runs job {', '.join(jobs)}, and the test needs idle GPUs", "run this again when it has ended"
        )
    if _AWAY.search(state):
        return sessions.run_remote(target, node, f"sudo -n timeout {seconds} {test}", seconds + 60).output
    place = f"--nodelist={node.hostname} --nodes=1 --ntasks=1 --exclusive --immediate=60 --time={seconds // 60}"
    # By its whole path, which sudo's own PATH may not have.
    srun = f"sudo -n /opt/slurm/bin/srun --job-name=diagnose {place} {test}"
    return sessions.run_remote(target, controller, srun, seconds + 120).output
