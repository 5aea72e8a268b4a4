"""The node's summary when the steps are done, as a table and as JSON."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Sequence

from ..facts.model import Node
from .runner import Outcome


def status(outcomes: Sequence[Outcome]) -> str:
    """Return ok, degraded (an optional step failed, or one has a warning) or failed."""
    if any(o.required and o.result in ("failed", "not run") for o in outcomes):
        return "failed"
    return "degraded" if any(o.result in ("failed", "not run", "degraded") for o in outcomes) else "ok"


def table(outcomes: Sequence[Outcome]) -> List[str]:
    """Return step, seconds and result for people."""
    width = max([len(o.name) for o in outcomes] + [4])
    lines = [f"{'step':<{width}}  {'seconds':>7}  {'result':<8}  detail"]
    for outcome in outcomes:
        lines.append(
            f"{outcome.name:<{width}}  {outcome.seconds:>7.2f}  {outcome.result:<8}  {outcome.detail}".rstrip()
        )
        lines.extend(f"{'':<{width}}  {'':>7}  {'':<8}  WARNING: {warning}" for warning in outcome.warnings)
    return lines


def document(node: Node, outcomes: Sequence[Outcome], seconds: float) -> Dict[str, Any]:
    """Return the JSON summary."""
    record: Dict[str, Any] = {
        "hostname": node.host.hostname(),
        "status": status(outcomes),
        "boot_seconds": round(seconds, 3),
        "finished": round(node.host.wall(), 3),
        "transport": node.transport,
        "changed": sorted(set(node.host.changes)),
        "steps": [outcome.record() for outcome in outcomes],
    }
    if node.identity_ is not None:
        instance, group = node.identity_.instance, node.identity_.group
        record.update(
            role=group.role,
            group=group.name,
            instance_type=group.instance_type,
            instance_id=instance.instance_id,
            address=instance.address,
        )
    return record


def last_line(outcomes: Sequence[Outcome]) -> str:
    """Return the reason that HyperPod shows: the first required step that failed."""
    for outcome in outcomes:
        if outcome.required and outcome.result == "failed":
            return f"step {outcome.name} failed: {outcome.detail}"
    return ""


def text(record: Dict[str, Any]) -> str:
    """Return the summary for files."""
    return json.dumps(record, indent=2, sort_keys=True) + "\n"
