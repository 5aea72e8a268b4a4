"""The rehearsal's result as one HTML page: timeline, dependencies, cost and quotas.

This module computes the layout, and ``report.html.j2`` draws it. The page needs no network and little JavaScript, so it
can be attached to a change request, archived or printed.

The graph is a grid with a lane per component and a column per depth. That takes fewer lines than a layout library:
Graphviz needs a separate program, and igraph and grandalf have layers but no lanes.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from components.names import readable

from .page import write_page
from .resources import TOP_LEVEL, Group, Node, critical_nodes, read, reduced

__all__ = ["write_report"]

ACCELERATED = re.compile(r"\b(?:gr?|p|trn|inf|dl)\d+[a-z]*(?:-\w+)?\.(?:\d*x?large|metal)")
# How the engine marks an encrypted output in JSON.
SECRET_SIGNATURE = "4dabf18193072939515e22adb298388d"

PAGE_WIDTH = 1180
# Names are set in a monospaced font of 0.6 em per character, so text widths can be computed here.
CHAR_AT_11PX = 6.62
CHAR_AT_10PX = 6.02
CHAR_AT_9PX = 5.42

GANTT_LABELS = 340
GANTT_MARGIN = 56
GANTT_ROW = 19
GANTT_HEADER = 26
GANTT_PADDING = 4
SHORTEST_BAR = 3.0
TICK_ROOM = 40
TICK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)

NODE_HEIGHT = 32
NODE_SPACING = 8
COLUMN_GAP = 32
NARROWEST_COLUMN = 128
WIDEST_COLUMN = 210
LANE_PADDING = 12
LANE_TITLE = 26
LANE_SPACING = 8


def write_report(result: Mapping[str, Any], path: Path) -> None:
    """Writes the rehearsal's result to `path` as one self-contained HTML page."""
    write_page("reports/report.html.j2", _page(result), path, {"clock": _clock, "money": _money, "monthly": _monthly})


def _page(result: Mapping[str, Any]) -> dict[str, Any]:
    """The template's variables."""
    # What failed may be in the account or not; its own entry says which operation it was.
    resources = {one["urn"]: one for one in [*(result.get("resources") or []), *(result.get("failed") or [])]}
    nodes, groups = read(list(resources.values()))
    critical = critical_nodes(nodes, result.get("critical_path") or [])
    total = float(result.get("total_seconds") or max((node.finish for node in nodes), default=0.0))
    cluster = float((result.get("cluster") or {}).get("seconds") or total)
    tips = _tips(nodes, groups)
    cost = _cost(result.get("cost") or {})
    return {
        "title": result.get("title") or "",
        "stack": result.get("stack") or "",
        "region": result.get("region") or "",
        "verdict": _verdict(result, nodes),
        "resource_count": sum(node.failed != "create" for node in nodes),
        "component_count": sum(1 for group in groups if group.label != TOP_LEVEL),
        "total_seconds": total,
        "cluster_seconds": cluster,
        "critical": [
            {"name": node.name, "seconds": node.finish - node.start, "id": node.id, "later": node.finish > cluster}
            for node in critical
        ],
        "timeline": _timeline(groups, total, tips),
        "any_failed": any(node.failed for node in nodes),
        "graph": _graph(nodes, groups, critical, tips),
        "cost": cost,
        "quotas": list(result.get("quotas") or []),
        "outputs": [(name, _plain(value)) for name, value in readable(result.get("outputs") or {}).items()],
        "warnings": [_plain(warning) for warning in result.get("warnings") or []],
        "destroyed": result.get("destroyed"),
        "leftovers": [_plain(leftover) for leftover in result.get("leftovers") or []],
    }


def _verdict(result: Mapping[str, Any], nodes: Sequence[Node]) -> dict[str, Any]:
    """How the rehearsal ended: what went wrong first, what to do about it, what else failed, and when."""
    failures = [_plain(failure) for failure in result.get("failures") or []]
    cause = _plain(result.get("cause") or "")
    refused = any(change.get("refused") is not None for change in result.get("changes") or [])
    at = [node.finish for node in nodes if node.failed and node.failed != "delete"]
    return {
        "passed": not (failures or refused or result.get("leftovers")),
        "cause": cause,
        "next_step": _plain(result.get("next_step") or ""),
        "others": [failure for failure in failures if failure != cause],
        "failed_at": min(at, default=None),
    }


def _tips(nodes: Sequence[Node], groups: Iterable[Group]) -> dict[int, str]:
    """The tooltips of the resources."""
    tips = {}
    for group in groups:
        for node in group.nodes:
            needs = [nodes[dep].name for dep in sorted(node.deps)]
            more = f" and {len(needs) - 8} more" if len(needs) > 8 else ""
            lines = [
                node.name,
                node.type,
                f"component: {group.label}",
                f"takes {_clock(node.finish - node.start)}, from {_clock(node.start)} to {_clock(node.finish)}",
                f"needs: {', '.join(needs[:8])}{more}" if needs else "needs nothing",
            ]
            lines += ["on the critical path"] * node.critical + [f"{node.failed} failed"] * bool(node.failed)
            tips[node.id] = "\n".join(lines)
    return tips


# -- timeline ----------------------------------------------------------------------------------------------------------


def _timeline(groups: Sequence[Group], total: float, tips: Mapping[int, str]) -> dict[str, Any]:
    """The Gantt chart: one block per component, so that pages break between them, all on the same time axis."""
    span = max([total, 1.0, *(node.finish for group in groups for node in group.nodes)])
    scale = (PAGE_WIDTH - GANTT_MARGIN - GANTT_LABELS) / span
    letters = int((GANTT_LABELS - 28) / CHAR_AT_11PX)

    def bar(start: float, finish: float) -> dict[str, float]:
        return {"x": GANTT_LABELS + start * scale, "width": max(SHORTEST_BAR, (finish - start) * scale)}

    blocks = []
    for group in groups:
        rows = [
            {"node": node, "y": GANTT_HEADER + index * GANTT_ROW, "label": _fit(node.name, letters)}
            | {"tip": tips[node.id]}
            | bar(node.start, node.finish)
            for index, node in enumerate(group.nodes)
        ]
        whole = bar(min(node.start for node in group.nodes), max(node.finish for node in group.nodes))
        height = GANTT_HEADER + len(rows) * GANTT_ROW + GANTT_PADDING
        blocks.append(
            whole | {"label": _fit(group.label, letters), "full": group.label, "rows": rows, "height": height}
        )
    step = next((step for step in TICK_STEPS if span / step <= 10), TICK_STEPS[-1])
    finish = GANTT_LABELS + total * scale
    times = [(GANTT_LABELS + at * scale, _clock(at)) for at in range(0, int(span) + 1, step)]
    return {
        "blocks": blocks,
        "ticks": [{"x": x, "label": label} for x, label in times if abs(x - finish) > TICK_ROOM],
        "width": PAGE_WIDTH,
        "row_height": GANTT_ROW,
        "finish": finish,
    }


# -- resource graph ----------------------------------------------------------------------------------------------------


def _graph(
    nodes: Sequence[Node], groups: Iterable[Group], critical: Sequence[Node], tips: Mapping[int, str]
) -> dict[str, Any]:
    """The resource graph: a lane per component, a column per dependency depth, a curve per needed dependency."""
    edges = reduced(nodes, critical)
    columns = 1 + max((node.depth for node in nodes), default=0)
    room = (PAGE_WIDTH - 2 * LANE_PADDING + COLUMN_GAP) / columns
    column = max(NARROWEST_COLUMN, min(WIDEST_COLUMN, room))
    node_width = column - COLUMN_GAP
    letters = int((node_width - 14) / CHAR_AT_10PX)

    lanes: list[dict[str, Any]] = []
    cells: dict[int, list[tuple[float, Group, list[Node]]]] = defaultdict(list)
    y = 0.0
    for group in groups:
        by_depth: dict[int, list[Node]] = defaultdict(list)
        for node in group.nodes:
            by_depth[node.depth].append(node)
        tallest = max(len(cell) for cell in by_depth.values())
        height = LANE_TITLE + tallest * (NODE_HEIGHT + NODE_SPACING) - NODE_SPACING + LANE_PADDING
        lanes.append({"y": y, "height": height, "label": _fit(group.label, 150)})
        for depth, cell in by_depth.items():
            cells[depth].append((y + LANE_TITLE, group, cell))
        y += height + LANE_SPACING

    middles: dict[int, float] = {}
    boxes: list[dict[str, Any]] = []
    for depth in sorted(cells):
        for top, group, cell in cells[depth]:
            # Placing a node level with the middle of its dependencies keeps curves flat and crossings few.
            cell.sort(key=lambda node: (_mean(middles[dep] for dep in node.deps), node.name))
            for index, node in enumerate(cell):
                at = top + index * (NODE_HEIGHT + NODE_SPACING)
                middles[node.id] = at + NODE_HEIGHT / 2
                lines = _two_lines(group.short(node), letters)
                kind = _kind(node.type, int((node_width - 14) / CHAR_AT_9PX)) if len(lines) == 1 else ""
                box = {"id": node.id, "x": LANE_PADDING + depth * column, "y": at, "lines": lines, "kind": kind}
                boxes.append(box | {"critical": node.critical, "failed": node.failed, "tip": tips[node.id]})

    on_path = {(before.id, after.id) for before, after in pairwise(critical)}
    curves = []
    for before, after in sorted(edges, key=on_path.__contains__):
        x1 = LANE_PADDING + nodes[before].depth * column + node_width
        x2 = LANE_PADDING + nodes[after].depth * column
        y1, y2 = middles[before], middles[after]
        bend = COLUMN_GAP if x2 - x1 <= COLUMN_GAP else (x2 - x1) / 2
        path = f"M{x1:.1f},{y1:.1f}C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
        curves.append({"path": path, "from": before, "to": after, "critical": (before, after) in on_path})
    width = max(PAGE_WIDTH, columns * column - COLUMN_GAP + 2 * LANE_PADDING)
    size = {"width": width, "height": max(y - LANE_SPACING, 0), "node_width": node_width, "node_height": NODE_HEIGHT}
    return {"lanes": lanes, "boxes": boxes, "curves": curves, "edges": edges} | size


# -- cost --------------------------------------------------------------------------------------------------------------


def _cost(cost: Mapping[str, Any]) -> dict[str, Any]:
    """The hourly price split into parts, accelerators first and then by size."""
    hourly = float(cost.get("hourly_usd") or 0.0)
    monthly = float(cost.get("monthly_usd") or 0.0)
    accelerator = float(cost.get("accelerator_hourly_usd") or 0.0)
    whole = hourly or sum(float(value) for value in (cost.get("parts") or {}).values()) or 1.0
    parts = []
    for name, value in (cost.get("parts") or {}).items():
        accelerated = accelerator > 0 and bool(ACCELERATED.search(name))
        share = float(value) / whole
        parts.append({"name": name, "hourly": float(value), "share": share, "accelerated": accelerated})
    parts.sort(key=lambda part: (not part["accelerated"], -part["hourly"]))
    shades = {True: 0, False: 0}
    for part in parts:
        part["shade"] = min(shades[part["accelerated"]], 5)
        shades[part["accelerated"]] += 1
    return {
        "hourly": hourly,
        "monthly": monthly,
        "accelerator": accelerator,
        "accelerator_share": accelerator / whole,
        "parts": parts,
    }


# -- text --------------------------------------------------------------------------------------------------------------


def _clock(seconds: float) -> str:
    """Seconds as minutes and seconds."""
    if 0 < seconds < 0.5:
        return "<0:01"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _money(usd: float) -> str:
    """A price per hour. Fractions of a cent are shown only for prices below a cent."""
    return f"${usd:,.4f}" if 0 < usd < 0.01 else f"${usd:,.2f}"


def _monthly(usd: float) -> str:
    """A price per month, in whole dollars from 100 USD."""
    return f"${usd:,.0f}" if usd >= 100 else _money(usd)


def _plain(value: Any) -> str:
    """A value as text: strings as they are, nested values as JSON, and nothing of a value that holds a secret."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, default=str, ensure_ascii=False)
    return "[secret]" if SECRET_SIGNATURE in text else text


def _kind(type_: str, letters: int) -> str:
    """A short resource type: ``aws:ec2/vpc:Vpc`` becomes ``ec2.Vpc``, or ``Vpc`` if that is too long."""
    module, name = (["", *type_.split(":")])[-2:]
    full = f"{module.split('/')[0]}.{name}"
    return full if len(full) <= letters else _fit(name, letters)


def _fit(text: str, letters: int) -> str:
    """Text shortened in the middle to a number of characters, since resource names differ at their ends."""
    if len(text) <= letters:
        return text
    tail = max(letters // 2 - 1, 1)
    return f"{text[: letters - tail - 1]}…{text[-tail:]}"


def _two_lines(name: str, letters: int) -> list[str]:
    """A name on one or two lines, broken at a hyphen if it has one."""
    if len(name) <= letters:
        return [name]
    hyphen = name.rfind("-", 1, letters) + 1
    at = hyphen or letters
    return [name[:at], _fit(name[at:], letters)]


def _mean(values: Iterable[float]) -> float:
    """The mean, or zero without values."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
