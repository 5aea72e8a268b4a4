"""The result of a node rehearsal, in the documented JSON form."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from ..checks import Findings
from .agent import Lifecycle
from .cluster import Cluster
from .hosts import Host
from .recovery import Recovery

# ``step fsx ... ok 0.43s  fs-0b62 mounted at /fsx``
STEP = re.compile(r"^step (\S+) \.\.\. (ok|degraded|skipped|failed|not run) ([\d.]+)s")


@dataclass
class Node:
    """One node's boot."""

    name: str
    role: str
    instance_type: str
    transport: str
    boot_seconds: float
    steps: list[dict[str, Any]]


@dataclass
class Outcome(Findings):
    """The whole result of a run."""

    nodes: list[Node] = field(default_factory=list)
    all_idle_seconds: float = 0.0
    recovery: Recovery | None = None

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        return {
            **super().as_json(),
            "nodes": [vars(node) for node in self.nodes],
            "all_idle_seconds": round(self.all_idle_seconds, 3),
            "recovery": self.recovery.as_json() if self.recovery else None,
        }


def _steps(host: Host, run: Lifecycle) -> list[dict[str, Any]]:
    """All steps with their start times from the node's summary, or as the script printed them if there is none."""
    began = {step["name"]: step["began"] for step in _said(host).get("steps", [])}
    return [{**step, "began": began.get(step["name"], 0.0)} for step in steps_of(run)]


def steps_of(run: Lifecycle) -> list[dict[str, Any]]:
    """The steps that a lifecycle script has reported so far."""
    matches = [match for line in list(run.lines) if (match := STEP.match(line))]
    return [{"name": m.group(1), "seconds": float(m.group(3)), "result": m.group(2)} for m in matches]


def _said(host: Host) -> dict[str, Any]:
    """The node's own summary, empty if its script wrote none."""
    try:
        return dict(json.loads(host.read("/var/log/hyperpod/summary.json")))
    except ValueError:
        return {}


def nodes_of(cluster: Cluster) -> list[Node]:
    """Every host's boot."""
    return [
        Node(
            name=host.name,
            role=host.role,
            instance_type=host.machine.kind.name,
            transport=_said(host).get("transport", ""),
            boot_seconds=round(cluster.scripts[host.name].seconds, 3),
            steps=_steps(host, cluster.scripts[host.name]),
        )
        for host in cluster.hosts
        if host.name in cluster.scripts
    ]
