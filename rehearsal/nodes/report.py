"""The node rehearsal's HTML report: every node's boot step by step, the checks, and the loss of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..reports.page import write_page
from ..reports.timeline import STEPS, Axis, Row, axis

# What may lie between two labels: boots take seconds.
_STEPS = (0.1, 0.2, 0.5, *STEPS)
_KINDS = {"ok": "task", "degraded": "degraded", "failed": "failed"}


def write_report(found: Mapping[str, Any], path: Path) -> None:
    """Write the page for a result in its documented JSON form."""
    write_page("nodes/report.html.j2", page(found), path, {"seconds": _seconds})


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def page(found: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the template shows."""
    ends = [_end(step) for node in found["nodes"] for step in node["steps"]]
    span = max([node["boot_seconds"] for node in found["nodes"]] + ends, default=0.0)
    on = axis(span, lambda at: f"{at:.3g}", _STEPS)
    return {
        **found,
        "axis": on,
        "timeline": [_node(node, on) for node in found["nodes"]],
        "recovery_marks": _recovery(found["recovery"]),
    }


def _node(node: Mapping[str, Any], on: Axis) -> Row:
    """A node with its steps below it, all on one time axis."""
    steps = [_step(step, on) for step in node["steps"]]
    worst = next((kind for kind in ("failed", "degraded") if any(step.kind == kind for step in steps)), "task")
    bars = [on.bar(0.0, node["boot_seconds"], "whole"), *(bar for step in steps for bar in step.bars)]
    note = " · ".join(filter(None, (node["instance_type"], node["transport"])))
    return Row(1, node["name"], note, _seconds(0.0), _seconds(node["boot_seconds"]), bars, worst, rows=steps)


def _step(step: Mapping[str, Any], on: Axis) -> Row:
    result = step["result"]
    kind = _KINDS.get(result, "skipped")
    bar = on.bar(step["began"], _end(step), kind)
    said = "" if result == "ok" else result
    return Row(2, step["name"], "", _seconds(step["began"]), _seconds(step["seconds"]), [bar], kind, said)


def _end(step: Mapping[str, Any]) -> float:
    return float(step["began"]) + float(step["seconds"])


def _recovery(recovery: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The phases after the loss of a worker, in order, each from one time to another and in percent of the whole."""
    if not recovery or not recovery["resumed_after_seconds"]:
        return []
    whole = recovery["resumed_after_seconds"]
    marks = [
        ("unnoticed", recovery["noticed_seconds"]),
        ("a fresh node joins", recovery["node_back_seconds"] or recovery["noticed_seconds"]),
        ("the job starts again", whole),
    ]
    found, before = [], 0.0
    for what, until in marks:
        if until > before:
            bar = {"left": 100 * before / whole, "share": 100 * (until - before) / whole}
            found.append({"what": what, "until": until} | bar)
            before = until
    return found
