"""The node rehearsal's HTML report: every node's boot step by step, the checks, and the loss of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..reports.page import write_page

WIDTH, LABELS, MARGIN = 1180, 200, 70
ROW, HEADER, PADDING = 19, 26, 6
SHORTEST_BAR = 2.0
TICK_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600)
MOST_TICKS = 12


def write_report(found: Mapping[str, Any], path: Path) -> None:
    """Write the page for a result in its documented JSON form."""
    write_page("nodes/report.html.j2", page(found), path, {"seconds": _seconds})


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def page(found: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the template shows."""
    return {**found, "timeline": _timeline(found["nodes"]), "recovery_marks": _recovery(found["recovery"])}


def _timeline(nodes: list[Mapping[str, Any]]) -> dict[str, Any]:
    """A block per node with a row per step, all on one time axis."""
    ends = [_end(step) for node in nodes for step in node["steps"]]
    span = max([node["boot_seconds"] for node in nodes] + ends, default=0.0)
    scale = (WIDTH - LABELS - MARGIN) / (span or 1.0)
    blocks = []
    for node in nodes:
        rows = [
            {
                "name": step["name"],
                "result": step["result"],
                "seconds": step["seconds"],
                "tip": f"{step['name']}: {step['result']}, from {step['began']:.2f} s to {_end(step):.2f} s",
                "x": LABELS + step["began"] * scale,
                "y": HEADER + index * ROW,
                "width": max(SHORTEST_BAR, step["seconds"] * scale),
            }
            for index, step in enumerate(node["steps"])
        ]
        height = HEADER + len(rows) * ROW + PADDING
        blocks.append({"node": node, "rows": rows, "height": height, "width": node["boot_seconds"] * scale})
    step = next((step for step in TICK_STEPS if span / step <= MOST_TICKS), TICK_STEPS[-1])
    ticks = [{"x": LABELS + at * step * scale, "label": f"{at * step:g}"} for at in range(int(span / step) + 1)]
    return {"blocks": blocks, "ticks": ticks, "width": WIDTH, "labels": LABELS, "row": ROW}


def _end(step: Mapping[str, Any]) -> float:
    return float(step["began"]) + float(step["seconds"])


def _recovery(recovery: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The phases after the loss of a worker, in order, each with its share of the total in percent."""
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
            found.append({"what": what, "until": until, "share": 100 * (until - before) / whole})
            before = until
    return found
