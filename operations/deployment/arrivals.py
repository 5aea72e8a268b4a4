"""Follows the nodes of a cluster that is up without all of them, until they are there or a script of theirs fails.

With continuous provisioning HyperPod requests missing instances again and again (SageMaker Developer Guide, "Continuous
provisioning for enhanced cluster operations").
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from stack.advice import next_step
from stack.failures import Exit, Failure

from ..cluster import nodes
from ..target import Target
from . import boots

# Seconds between two looks, and between two updates of the line that says how long it has been.
_LOOK, _TICK = 15.0, 1.0
# A script that failed this long before the watch began still is why nodes are missing.
BEFORE = timedelta(hours=1)


@dataclass(frozen=True)
class Arrivals:
    """The cluster's status, how many nodes run, how many of each group are missing, which are there but do not run, and
    for how many seconds the watch went on."""

    status: str
    running: int
    missing: dict[str, int]
    starting: list[str]
    seconds: int

    @property
    def complete(self) -> bool:
        """Whether the cluster is in service, and every node of every group runs."""
        return self.status == "InService" and not self.missing and not self.starting

    def __str__(self) -> str:
        lacking = [f"{number} of {group} without an instance" for group, number in self.missing.items()]
        starting = [f"starting: {len(self.starting)}"] if self.starting else []
        return ", ".join([f"cluster {self.status}", f"running nodes: {self.running}", *lacking, *starting])


def follow(target: Target, say: Callable[[str], None], tick: Callable[[Arrivals], None], timeout: float) -> Arrivals:
    """Wait until every node runs. ``say`` gets a line for each node that changes, ``tick`` the state, each second.

    Raises Failure at the first lifecycle script that fails, and after ``timeout`` seconds.
    """
    began, since = time.monotonic(), datetime.now(UTC) - BEFORE
    shown: dict[str, str] = {}
    while True:
        target.changed()
        found = nodes.list_nodes(target)
        for node in found:
            if shown.get(node.instance_id) != node.status:
                shown[node.instance_id] = node.status
                say(" ".join(filter(None, [f"{node.name} ({node.instance_id}): {node.status}", node.message])))
        running = sum(node.status == "Running" for node in found)
        starting = [node.name for node in found if node.status != "Running"]
        status = str(target.cluster["ClusterStatus"])
        state = Arrivals(status, running, nodes.awaited(target, found), starting, int(time.monotonic() - began))
        if state.complete:
            return state
        if failed := boots.first(target, since):
            raise Failure(str(failed.text), next_step(failed.text, target.stack))
        if status == "Failed":
            why = str(target.cluster.get("FailureMessage", "")) or "the cluster has failed"
            raise Failure(why, next_step(why, target.stack))
        if state.seconds >= timeout:
            raise Failure(
                f"not every node came within {timeout:g} s: {state}",
                f"hyperpod errors {target.stack} says what keeps them",
                Exit.FAILED,
            )
        until = time.monotonic() + _LOOK
        while time.monotonic() < until:
            tick(replace(state, seconds=int(time.monotonic() - began)))
            time.sleep(_TICK)
