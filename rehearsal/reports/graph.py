"""The graph of components: which waits for which. fast-sugiyama lays it out in layers; the page draws it as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fast_sugiyama import from_edges

from .resources import Group, Node, reduced
from .words import clock

WIDTH = 1180
BOX_HEIGHT = 62
NARROWEST_BOX = 112
# Longer names are set in two lines.
_ONE_LINE = 13
# Names are set at 13 px; their widest letters are about this wide, in bold.
LETTER = 7.6
GAP = 8
LAYER = 108
MARGIN = 4
# The library's own unit: what lies between the middles of two boxes.
_UNIT = 100.0
# What an edge takes that passes a layer, of a box.
_PASSING = 0.1


@dataclass(frozen=True)
class Box:
    """A component: ``x`` and ``y`` of its upper left corner, and what is said of it in words."""

    lines: tuple[str, ...]
    note: str
    about: str
    kind: str
    x: float
    y: float


@dataclass(frozen=True)
class Graph:
    """What the page draws. ``curves`` are SVG paths; the second part is whether the critical path goes along it."""

    boxes: tuple[Box, ...]
    curves: tuple[tuple[str, bool], ...]
    width: float
    height: float
    box_width: float
    box_height: float = BOX_HEIGHT


Point = tuple[float, float]


def graph(nodes: Sequence[Node], groups: Sequence[Group], critical: Sequence[Node]) -> Graph:
    """The components as boxes, each above those that wait for it. Those that nothing waits for and that wait for
    nothing come last.
    """
    number = {group.nodes[0].group: index for index, group in enumerate(groups)}
    edges = {(number[nodes[a].group], number[nodes[b].group]) for a, b in reduced(nodes, critical)}
    on_path = {(number[a.group], number[b.group]) for a, b in pairwise(critical)}
    edges = _needed({(a, b) for a, b in edges if a != b}, on_path)
    width = max([NARROWEST_BOX, *(LETTER * len(line) + 20 for group in groups for line in _lines(group.label))])
    places, ways = _layout(edges, width)
    bottom = max((y for _, y in places.values()), default=-LAYER)
    fits = max(1, int(WIDTH // (width + GAP)))
    for index, alone in enumerate(one for one in range(len(groups)) if one not in places):
        places[alone] = (width / 2 + index % fits * (width + GAP), bottom + LAYER + index // fits * (BOX_HEIGHT + GAP))
    boxes = []
    for index, group in enumerate(groups):
        x, y = places[index]
        needs = [groups[a].label for a, b in sorted(edges) if b == index]
        boxes.append(_box(group, needs, x - width / 2 + MARGIN, y + MARGIN))
    curves = [(_curve(ways[edge]), edge in on_path) for edge in sorted(edges, key=lambda one: (one in on_path, one))]
    right = max((x for x, _ in [*places.values(), *(point for way in ways.values() for point in way)]), default=0.0)
    height = max((y for _, y in places.values()), default=-float(BOX_HEIGHT)) + BOX_HEIGHT + 2 * MARGIN
    return Graph(tuple(boxes), tuple(curves), right + width / 2 + 2 * MARGIN, height, width)


def _box(group: Group, needs: Sequence[str], x: float, y: float) -> Box:
    critical, failed = any(node.critical for node in group.nodes), any(node.failed for node in group.nodes)
    count = "1 resource" if len(group.nodes) == 1 else f"{len(group.nodes)} resources"
    about = f"{group.label}: {count}, from {clock(group.start)} to {clock(group.finish)}"
    about += f"; waits for {', '.join(needs)}" if needs else "; waits for nothing"
    about += "; on the critical path" * critical + "; failed" * failed
    mark = "✗ failed, " if failed else "◆ " if critical else ""
    kind = "failed" if failed else "critical" if critical else "task"
    return Box(_lines(group.label), f"{mark}done {clock(group.finish)}", about, kind, round(x, 1), round(y, 1))


def _needed(edges: set[tuple[int, int]], kept: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The edges that no way over others implies, and those to keep. Components may wait for each other's parts."""
    left = set(edges)
    for edge in sorted(edges - kept):
        others = left - {edge}
        reached, before = {edge[0]}, 0
        while len(reached) > before:
            before = len(reached)
            reached |= {b for a, b in others if a in reached}
        if edge[1] in reached:
            left = others
    return left


def _lines(name: str) -> tuple[str, ...]:
    """A name in one line, or a long one in two, broken after the hyphen that is nearest to its middle."""
    breaks = [at + 1 for at, letter in enumerate(name) if letter == "-"]
    if len(name) <= _ONE_LINE or not breaks:
        return (name,)
    at = min(breaks, key=lambda each: abs(2 * each - len(name)))
    return name[:at], name[at:]


def _layout(
    edges: set[tuple[int, int]], width: float
) -> tuple[dict[int, Point], Mapping[tuple[int, int], Sequence[Point]]]:
    """The middle of every box's upper edge, and the points that every edge goes through."""
    # The library numbers the places where edges pass layers after the boxes: those need numbers without gaps.
    numbers = sorted({end for edge in edges for end in edge})
    short = {number: index for index, number in enumerate(numbers)}
    found = (
        from_edges(
            sorted((short[a], short[b]) for a, b in edges),
            vertex_spacing=_UNIT,
            dummy_vertices=True,
            dummy_size=_UNIT * _PASSING,
        )
        if edges
        else []
    )
    points: dict[int, Point] = {}
    after: dict[int, list[int]] = {}
    left = 0.0
    for part, (placed, _, _, steps) in enumerate(found):
        at = {int(one): position for one, position in placed}
        # Every part numbers the places where edges pass on its own.
        own = {one: one if one < len(numbers) else (part + 1) * 1_000_000 + one for one in at}
        top, first = max(y for _, y in at.values()), min(x for x, _ in at.values())
        for one, (x, y) in at.items():
            points[own[one]] = (left + (x - first) / _UNIT * (width + GAP), (top - y) / _UNIT * LAYER)
        for a, b in steps or []:
            after.setdefault(own[int(a)], []).append(own[int(b)])
        left = max(points[own[one]][0] for one in at) + width + GAP
    ways: dict[tuple[int, int], Sequence[Point]] = {}
    for start in range(len(numbers)):
        for step in after.get(start, []):
            way = [start, step]
            while way[-1] >= len(numbers):
                way.append(after[way[-1]][0])
            ways[numbers[start], numbers[way[-1]]] = [points[one] for one in way]
    shift = width / 2 - min((x for x, _ in points.values()), default=0.0)
    places = {numbers[one]: (x + shift, y) for one, (x, y) in points.items() if one < len(numbers)}
    return places, {edge: [(x + shift, y) for x, y in way] for edge, way in ways.items()}


def _curve(way: Sequence[Point]) -> str:
    """A path from the lower edge of the first box to the upper edge of the last, in bends from layer to layer."""
    down = way[-1][1] > way[0][1]
    points = list(way)
    points[0] = (way[0][0], way[0][1] + (BOX_HEIGHT if down else 0))
    points[-1] = (way[-1][0], way[-1][1] + (0 if down else BOX_HEIGHT))
    moved = [(x + MARGIN, y + MARGIN) for x, y in points]
    path = f"M{moved[0][0]:.0f},{moved[0][1]:.0f}"
    for (x1, y1), (x2, y2) in pairwise(moved):
        middle = (y1 + y2) / 2
        path += f"C{x1:.0f},{middle:.0f} {x2:.0f},{middle:.0f} {x2:.0f},{y2:.0f}"
    return path
