"""Reports a bad node to Slurm: the node drains itself, because HealthCheckProgram has to.

* A node whose reason begins with ``Action:`` is HyperPod's, and one that somebody else has drained is theirs.
* A node that Slurm has drained because a killed job did not end is resumed when the job has, and all is well.
* A node drained here has a reason that begins with ``hyperpod-health:``, and is resumed here when it is well again.
* At most one node, or 5 % of them, is out at a time, those that HyperPod repairs included; any other is only reported.
  A fault of all nodes has another cause.
* With policy reboot or replace, a node that is drained and has no job left gets HyperPod's own word for it (SageMaker
  Developer Guide, "Manually replace or reboot a node using Slurm"). From then on it is HyperPod's.

Nodes do not talk to each other. Each drains itself first and then counts; whoever finds too many undoes it. slurmctld
takes one change after the other, so the last of several counts all of them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..host.errors import StepError
from ..host.host import Host
from . import xid

PREFIX = "hyperpod-health:"
ACTION = "Action:"
# slurmctld's own reason for a node whose prolog failed, and the file that our prolog leaves if it failed itself.
PROLOG_ERROR, PROLOG_FAILED = "Prolog error", "/run/hyperpod-health/prolog-failed"
# slurmctld's reason for a node on which a killed job did not end in time (slurm.conf(5), UnkillableStepTimeout).
STUCK = "Kill task failed"
# While this file exists, the prolog starts no job: the node is bad, and slurmctld does not know it yet.
NO_JOBS = "/run/hyperpod-health/no-jobs"
ORDERS = {"reboot": "Action:Reboot", "replace": "Action:Replace"}
SHARE = 0.05
OUT = {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING"}
BUSY = {"ALLOCATED", "MIXED", "COMPLETING", "DRAINING", "FAILING"}
# slurmctld keeps the text of a reason, and lists show it: enough for several checks.
LONGEST_REASON = 300
SECONDS = 10.0


@dataclass(frozen=True)
class Standing:
    """slurmctld's record of this node: its name there, its states and its reason."""

    name: str
    states: Sequence[str]
    reason: str

    @property
    def out(self) -> bool:
        """Whether it gets no jobs."""
        return bool(OUT & set(self.states))

    @property
    def busy(self) -> bool:
        """Whether a job is still on it."""
        return bool(BUSY & set(self.states))


def standing(host: Host, names: Sequence[str]) -> Standing:
    """Find this node by the first of these names that slurmctld knows. Raises StepError if it does not answer."""
    why = ""
    for name in filter(None, (os.environ.get("SLURMD_NODENAME"), *names)):
        shown = host.run("scontrol", "show", "node", name, "-o", check=False, timeout=SECONDS)
        state = re.search(r"\bState=(\S+)", shown.out)
        if shown.code == 0 and state:
            reason = re.search(r"\bReason=(.*?)(?: \[[^\]]*\]|$)", shown.out.strip())
            states = [one.rstrip("*~#!%$@^-") for one in state.group(1).split("+")]
            return Standing(name, states, reason.group(1).strip() if reason else "")
        why = shown.reason
    raise StepError(f"the controller does not say how this node is: {why}")


def apply(host: Host, node: Standing, wrong: Mapping[str, str], well: bool, policy: str, memory: Dict[str, Any]) -> str:
    """Apply the policy, and return its result in a few words. ``wrong``: reasons by check. ``well``: nothing is wrong,
    and everything that was has been found well. Raises StepError if slurmctld does not answer.
    """
    host.remove(NO_JOBS)
    if node.reason.startswith(ACTION):
        memory["ours"] = False
        return f"left to HyperPod: {node.reason}"
    stuck = node.reason.startswith(STUCK)
    if stuck and node.busy:
        return f"left until the job has ended: {node.reason}"
    ours = (
        node.reason.startswith(PREFIX)
        or stuck
        or (node.reason.startswith(PROLOG_ERROR) and host.read(PROLOG_FAILED) is not None)
    )
    if node.out and not ours:
        memory["ours"] = False
        return f"left to whoever has taken it out: {node.reason or 'no reason'}"
    if not node.out and memory.get("ours"):
        # Somebody has resumed a node that was drained here.
        memory["ours"] = False
        xid.accept(memory)
        wrong = {check: why for check, why in wrong.items() if check != "xid"}
        host.remove(PROLOG_FAILED)
    if not wrong:
        return _resume(host, node, memory) if node.out and well else "nothing to do"
    if policy == "report":
        return "only reported, by policy"
    reason = f"{PREFIX} " + "; ".join(f"{check}: {why}" for check, why in wrong.items())
    return _take_out(host, node, reason[:LONGEST_REASON], policy, memory)


def _resume(host: Host, node: Standing, memory: Dict[str, Any]) -> str:
    host.run("scontrol", "update", f"NodeName={node.name}", "State=RESUME", timeout=SECONDS)
    host.remove(PROLOG_FAILED)
    memory["ours"] = False
    return "resumed: all is well again"


def _take_out(host: Host, node: Standing, reason: str, policy: str, memory: Dict[str, Any]) -> str:
    if not node.out:
        refused = _too_many(host, node.name)
        if refused:
            return refused
        host.write(NO_JOBS, reason + "\n")
    if not node.out or node.reason != reason:
        _drain(host, node.name, reason)
    if not node.out:
        host.remove(NO_JOBS)
        refused = _too_many(host, node.name)
        if refused:
            host.run("scontrol", "update", f"NodeName={node.name}", "State=RESUME", timeout=SECONDS)
            return refused
    memory["ours"] = True
    order = ORDERS.get(policy)
    if order and node.out and not node.busy:
        refused = _too_many(host, node.name)
        if refused:
            return refused
        words = ("scontrol", "update", f"NodeName={node.name}", "State=FAIL", f"Reason={order}")
        host.run(*words, timeout=SECONDS)
        return f"drained and idle: {order}"
    return "drained"


def _drain(host: Host, name: str, reason: str) -> None:
    host.run("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}", timeout=SECONDS)


def _too_many(host: Host, name: str) -> Optional[str]:
    """Return why this node may not be taken out now, too; None if it may."""
    shown = host.run("sinfo", "-h", "-N", "-O", "NodeList:128,StateLong:32,Reason:64", timeout=SECONDS)
    nodes: Dict[str, List[str]] = {}
    for line in shown.out.splitlines():
        nodes[line[:128].strip()] = [line[128:160].strip(), line[160:].strip()]
    out = [
        other
        for other, (state, reason) in nodes.items()
        if other != name
        and reason.startswith((PREFIX, ACTION))
        and any(word in state.upper() for word in ("DRAIN", "DOWN", "FAIL"))
    ]
    limit = max(1, int(len(nodes) * SHARE))
    if len(out) < limit:
        return None
    return f"only reported: {len(out)} of {len(nodes)} nodes are out already ({', '.join(sorted(out)[:3])})"
