"""What the nodes' own checks found last, node by node: from the nodes, or on EKS from their conditions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from hyperpod_node.health.model import CONDITION
from hyperpod_node.health.run import RESULTS

from ..failures import Failure
from ..target import Target
from . import every_node, sessions
from . import nodes as cluster_nodes
from .node import Node
from .sessions import Remote

Status = Literal["PASS", "FAIL", "UNKNOWN"]
_SECONDS = 120.0
# The checks run every five minutes; twice as old is too old to say anything.
_OLD_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class NodeHealth:
    """What one node says of itself.

    ``bad`` and ``unknown`` are details by check, ``age_seconds`` is since the checks ran, ``done`` what they did about
    it. ``trouble`` says why nothing is known.
    """

    node: str
    status: Status
    bad: dict[str, str]
    unknown: dict[str, str]
    checks: int = 0
    age_seconds: float | None = None
    done: str = ""
    trouble: str = ""


def ask(target: Target, nodes: Sequence[Node], *, now: bool) -> list[NodeHealth]:
    """The health of every worker among the nodes, in their order. ``now``: run the checks instead of reading.

    On EKS more nodes than Session Manager may open sessions with at once are asked through the Kubernetes API, where
    they have the condition that the stack's node-problem-detector writes.
    """
    workers = [node for node in nodes if node.role == "worker"]
    many = target.on_eks and len(workers) > sessions.AT_ONCE
    known = _by_condition(target) if many and not now else {}
    asked = [node for node in workers if node.instance_id not in known]
    run = "sudo -n /opt/hyperpod/bin/hyperpod-health > /dev/null; " if now else ""
    found = every_node.answers(target, nodes, asked, f"{run}date +%s; cat {RESULTS}", _SECONDS)
    answers = {node.name: _one(node, answer) for node, answer in zip(asked, found, strict=True)}
    return [answers.get(node.name) or _of_condition(node.name, known[node.instance_id]) for node in workers]


def _by_condition(target: Target) -> dict[str, Mapping[str, Any]]:
    """The nodes' conditions by instance ID; empty where the Kubernetes API cannot be reached."""
    try:
        items = cluster_nodes.kubernetes(target).nodes()
    except Failure:
        return {}
    return {
        cluster_nodes.instance_id(item): condition
        for item in items
        for condition in item["status"].get("conditions", [])
        if condition["type"] == CONDITION
    }


def _of_condition(name: str, condition: Mapping[str, Any]) -> NodeHealth:
    message, status = str(condition.get("message", "")), condition["status"]
    # The detector has put the lines of the node's reason into one (components/kubernetes/node_health.py).
    lines = [line.strip().partition(": ") for line in message.split(";") if line.strip()] if status == "True" else []
    said = datetime.fromisoformat(condition["lastHeartbeatTime"])
    return NodeHealth(
        node=name,
        status="FAIL" if status == "True" else "PASS" if status == "False" else "UNKNOWN",
        bad={check: why for check, _, why in lines},
        unknown={},
        age_seconds=(datetime.now(UTC) - said).total_seconds(),
        trouble=message if status == "Unknown" else "",
    )


def _one(node: Node, answer: Remote | Failure) -> NodeHealth:
    if isinstance(answer, Failure):
        trouble = answer.message
    else:
        clock, _, document = answer.output.partition("\n")
        try:
            return read(node.name, json.loads(document), float(clock))
        except (ValueError, KeyError, TypeError):
            last = [line for line in answer.output.splitlines() if line.strip()][-1:]
            trouble = f"no results yet: {last[0] if last else 'no output'}"
    return NodeHealth(node=node.name, status="UNKNOWN", bad={}, unknown={}, trouble=trouble)


def read(name: str, document: dict[str, Any], clock: float) -> NodeHealth:
    """A node's results, by its own clock. Raises KeyError and TypeError for another document."""
    age = max(0.0, clock - float(document["time"]))
    found = {
        status: {check: str(one["detail"]) for check, one in document["checks"].items() if one["status"] == status}
        for status in ("ok", "bad", "unknown")
    }
    old = age > _OLD_SECONDS
    return NodeHealth(
        node=name,
        status="FAIL" if found["bad"] else "UNKNOWN" if old else "PASS",
        bad=found["bad"],
        unknown=found["unknown"],
        checks=sum(map(len, found.values())),
        age_seconds=age,
        done=str(document.get("done", "")),
        trouble=f"the checks last ran {age / 60:.0f} minutes ago" if old else "",
    )


def ago(seconds: float | None) -> str:
    """An age in words, as ``40 s`` or ``3 min``."""
    if seconds is None:
        return "?"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
