"""A timeline as rows of a table, each with bars in percent of one axis: components, and what is in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .resources import Group, Node
from .words import clock

# From so many on, resources of one type in one component are one row: the nodes' files, above all.
ONE_ROW = 6
# As many labels as fit beside each other on a phone, at 12 px.
MOST_TICKS = 6
STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
# A label in percent of the axis: those nearer to the end would run into its label.
_LABEL = 14


@dataclass(frozen=True)
class Bar:
    """A bar, in percent of the axis. ``kind``: whole, task, critical, failed."""

    left: float
    width: float
    kind: str


@dataclass
class Row:
    """A row: ``level`` 1 is a component, 2 is in the one above. ``said``: what is wrong, or was done, in words."""

    level: int
    name: str
    note: str
    starts: str
    takes: str
    bars: list[Bar]
    kind: str = "task"
    said: str = ""
    rows: list[Row] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether what is in it is shown at first: where it failed."""
        return self.kind == "failed"


@dataclass(frozen=True)
class Axis:
    """The time axis: its labels by their places in percent."""

    span: float
    ticks: tuple[tuple[float, str], ...]

    def bar(self, start: float, finish: float, kind: str) -> Bar:
        """A bar between two times."""
        left = 100 * start / self.span
        return Bar(round(left, 2), round(100 * finish / self.span - left, 2), kind)


def axis(span: float) -> Axis:
    """An axis from 0 to so many seconds, whose end has a label."""
    span = span or 1.0
    step = next((step for step in STEPS if span / step <= MOST_TICKS), STEPS[-1])
    at = [number * step for number in range(int(span / step) + 1)]
    ticks = [(round(100 * each / span, 2), clock(each)) for each in at]
    return Axis(span, (*(tick for tick in ticks if tick[0] <= 100 - _LABEL), (100.0, clock(span))))


def timeline(groups: Iterable[Group], on: Axis) -> list[Row]:
    """The components with their resources, by start."""
    found = []
    for group in groups:
        failed = [node for node in group.nodes if node.failed]
        bars = [on.bar(group.start, group.finish, "whole" if len(group.nodes) > 1 else "task")]
        bars += [on.bar(one.start, one.finish, "critical") for one in group.nodes if one.critical and not one.failed]
        bars += [on.bar(one.start, one.finish, "failed") for one in failed]
        rows = sorted(_rows(group.nodes, on), key=lambda pair: pair[0])
        found.append(
            Row(
                1,
                group.label,
                _count(len(group.nodes)),
                clock(group.start),
                clock(group.finish - group.start),
                bars,
                _kind(group.nodes),
                _said(failed[0]) if failed else "",
                [row for _, row in rows],
            )
        )
    return found


def _rows(nodes: Sequence[Node], on: Axis) -> Iterable[tuple[float, Row]]:
    """The resources of a component with their starts: many of a type and an operation are one row."""
    alike: dict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in nodes:
        if node.critical or node.failed:
            yield node.start, _row([node], on)
        else:
            alike[node.type, node.operation].append(node)
    for each in alike.values():
        for some in [each] if len(each) >= ONE_ROW else [[node] for node in each]:
            yield min(node.start for node in some), _row(some, on)


def _row(nodes: Sequence[Node], on: Axis) -> Row:
    start, finish = min(node.start for node in nodes), max(node.finish for node in nodes)
    first, kind = nodes[0], _kind(nodes)
    name = first.name if len(nodes) == 1 else f"{len(nodes)} x {short_type(first.type)}"
    note = short_type(first.type) if len(nodes) == 1 else f"{first.name} and others"
    return Row(2, name, note, clock(start), clock(finish - start), [on.bar(start, finish, kind)], kind, _said(first))


def _kind(nodes: Sequence[Node]) -> str:
    if any(node.failed for node in nodes):
        return "failed"
    return "critical" if any(node.critical for node in nodes) else "task"


def _said(node: Node) -> str:
    return f"{node.failed} failed" if node.failed else node.operation


def _count(number: int) -> str:
    return "1 resource" if number == 1 else f"{number} resources"


def short_type(token: str) -> str:
    """A type without what its provider repeats: ``aws:ec2/vpc:Vpc`` is ``ec2 Vpc``."""
    module, name = (["", *token.split(":")])[-2:]
    return f"{module.split('/')[0]} {name}"
