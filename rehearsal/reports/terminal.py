"""The rehearsal in a terminal: a line per component while it runs, tables when it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from components.common.names import readable
from components.estimates.amounts import Cost
from components.estimates.cost import estimate
from operations.engine.durations import clock, delete_duration
from operations.engine.events import Event
from operations.engine.state import ResourceState
from operations.terminal.bars import Span, progress, spans
from operations.terminal.command_line import wrapped
from operations.terminal.tables import Column, Rows

from ..changes import Change
from ..outcome import Outcome
from .resources import critical_nodes, read

_MARKS = {"start": ("…", "yellow"), "done": ("✓", "green"), "failed": ("✗", "red")}
_LONG_LIST = 12


class Progress:
    """A line per component while resources are created and destroyed. Elsewhere than in a terminal, what fails."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.act = "up"
        self._acts = 0
        self._rows: dict[str, tuple[str, ResourceState, str]] = {}
        self._began = time.monotonic()
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def begin(self, act: str, outcome: Outcome) -> None:
        """Begin a new phase, such as up, destroy or audit."""
        self.act = act
        if self._rows:
            if self._acts == 1:
                self.console.print(
                    f"[green]✓[/] up: {outcome.created} resources" if not outcome.failures else "[red]✗[/] up failed"
                )
            self._rows.clear()
        self._acts += 1

    def event(self, event: Event) -> None:
        """Show an event of a resource."""
        resource = event.resource
        self._rows[resource.urn] = (event.phase, resource, event.error)
        if not self.console.is_terminal and event.phase == "failed":
            # It takes seconds: all else is in the summary.
            line = f"✗ {event.operation} {resource.name} [{resource.type}]  {event.error}"
            self.console.print(line, markup=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        groups: dict[str, list[tuple[str, ResourceState, str]]] = {}
        for row in list(self._rows.values()):
            parent = row[1].parent.rsplit("::", 1)[-1] if "::" in row[1].parent else ""
            groups.setdefault(parent, []).append(row)
        lines = [
            (parent or "stack", sum(phase == "done" for phase, *_ in rows), len(rows), self._last(rows))
            for parent, rows in groups.items()
        ]
        return Group(Text(f"{self.act}  {time.monotonic() - self._began:.1f} s here", style="bold"), progress(lines))

    def _last(self, rows: list[tuple[str, ResourceState, str]]) -> Text:
        """What failed in a component, or else went on last, with its time on AWS."""
        phase, resource, error = next((row for row in rows if row[0] == "failed"), rows[-1])
        mark, colour = _MARKS[phase]
        # A deletion has no time of its own in the state, which says when the resource was made.
        deleting = self.act == "destroy"
        at = f"takes {clock(delete_duration(resource.type))}" if deleting else f"at {clock(resource.finish)}"
        return Text(f"{mark} {at}, {resource.name} {error}".rstrip(), style=f"not bold {colour}")


def summary(outcome: Outcome) -> RenderableType:
    """The rehearsal's result for people to read."""
    found = outcome.as_json()
    parts: list[RenderableType] = []
    if outcome.failures:
        parts.append(_block("Failed", outcome.failures, "red"))
    else:
        parts += [
            _time(outcome),
            _components(outcome),
            _cost(estimate(outcome.config)),
            _quotas(found),
            _outputs(found),
        ]
    parts += [changed(number, change) for number, change in enumerate(outcome.changes, start=1)]
    if outcome.next_step:
        parts.append(_Prose((f"  Next: {outcome.next_step}", "bold")))
    if outcome.known:
        parts.append(_Prose((f"  {outcome.known.more}", "dim")))
    if outcome.skipped:
        parts.append(_Prose((f"\n{outcome.skipped} further changes not rehearsed.", "yellow")))
    if outcome.warnings:
        parts.append(_block("Warnings", outcome.warnings, "yellow"))
    parts.append(_ending(outcome))
    return Group(*parts)


def changed(number: int, change: Change) -> RenderableType:
    """What one change did or would have done. Replacements are red, and lost data is named."""
    settings = " ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in change.set.items()
    )
    lines = [(f"\nChange {number}: {settings or 'no setting differs'}", "bold")]
    if change.refused is not None:
        when = "before anything happens" if change.early else f"after {clock(change.seconds)}"
        lines.append((f"  refused {when}: {change.refused}", "red"))
    else:
        lines.append((f"  takes {clock(change.seconds)}, {_more(change.hourly_usd)}", "default"))
    for what, names, colour in (
        ("created", change.created, "default"),
        ("updated", change.updated, "default"),
        ("replaced", change.replaced, "red"),
        ("deleted", change.deleted, "yellow"),
    ):
        if names:
            lines.append((f"  {what:8} {', '.join(names)}", colour))
    lines += [(f"  {name}: {meaning}", "bold red") for name, meaning in change.lost.items()]
    if not (change.created or change.updated or change.replaced or change.deleted or change.refused):
        lines.append(("  nothing changes", "default"))
    return _Prose(*lines)


def _more(hourly: float | None) -> str:
    if hourly is None:
        return "what it costs more or less is unknown"
    return f"{'-' if hourly < 0 else '+'}${abs(hourly):,.2f} an hour"


class _Prose:
    """Words to read, with their styles: a terminal breaks them between words, and indents what follows."""

    def __init__(self, *lines: tuple[str, str]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        for line, style in self._lines:
            yield Text("\n".join(wrapped(line, console)), style=style)


def _block(title: str, lines: list[str], colour: str) -> RenderableType:
    return _Prose((f"\n{title}", f"bold {colour}"), *((f"  {line}", "default") for line in lines))


def _table(title: str, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], *spare: str) -> RenderableType:
    heading = [_Prose((f"\n{title}", "bold"))] if title else []
    return Group(*heading, Rows(columns, rows, spare, indented=True))


def _time(outcome: Outcome) -> RenderableType:
    after = outcome.total_seconds - outcome.cluster_seconds
    until = "the cluster is up" + (
        f", and {clock(after)} more for what needs its nodes" if after else "; workers follow"
    )
    rows: list[Sequence[str | Text]] = [
        (one.name, clock(one.start), clock(one.finish - one.start), clock(one.finish)) for one in outcome.critical_path
    ]
    if (number := len(outcome.cluster_path)) < len(rows):
        rows.insert(number, (Text("after the cluster:", "dim"), "", "", ""))
    return _table(
        f"Critical path: {clock(outcome.cluster_seconds)} until {until}",
        ["resource", ("starts", "right"), ("takes", "right"), ("done", "right")],
        rows,
    )


def _components(outcome: Outcome) -> RenderableType:
    nodes, groups = read(outcome.resources)
    critical_nodes(nodes, [one.name for one in outcome.critical_path])
    rows = []
    for group in groups:
        parts = [Span(group.start, group.finish)]
        parts += [Span(node.start, node.finish, critical=True) for node in group.nodes if node.critical]
        took = clock(group.finish - group.start)
        bar = spans(parts, outcome.total_seconds)
        rows.append((group.label, str(len(group.nodes)), clock(group.start), took, bar))
    return _table(
        "Components by start, in AWS's time (█ on the critical path)",
        ["component", ("made", "right"), ("starts", "right"), ("takes", "right"), ("", "whole")],
        rows,
        "",
    )


def _cost(cost: Cost) -> RenderableType:
    heading = _Prose((f"\nCost: {cost.headline}", "bold"))
    table = _table("", ["part", ("$/hour", "right"), ("$/month", "right")], cost.rows, "$/month")
    return Group(heading, table, _Prose(*((f"  {note}", "dim") for note in cost.notes)))


def _quotas(found: dict[str, Any]) -> RenderableType:
    rows = []
    for quota in found["quotas"]:
        unit = "" if quota["unit"] == "count" else f" {quota['unit']}"
        unit = unit.removesuffix("s") if quota["needed"] == 1 else unit
        rows.append((quota["service"], quota["name"], quota["code"], f"{quota['needed']:g}{unit}"))
    return _table("Quotas needed", ["service", "quota", "code", ("needed", "right")], rows)


def _outputs(found: dict[str, Any]) -> RenderableType:
    """One line each, never wrapped, since people copy them."""
    text = Text("\nOutputs\n", style="bold", no_wrap=True, overflow="ignore")
    outputs = readable(found["outputs"])
    width = max((len(key) for key in outputs), default=0)
    text.append("\n".join(f"  {key:{width}}  {value}" for key, value in outputs.items()), style="default")
    return text


_KEPT_UP = (
    "Not destroyed, as requested, and not searched for leftovers. The embedded account ends with this command; "
    "--serve keeps one."
)


def _ending(outcome: Outcome) -> RenderableType:
    if outcome.kept_up:
        return _Prose((f"\n{_KEPT_UP}", "bold"))
    if outcome.leftovers:
        lines = outcome.leftovers[:_LONG_LIST] + (["…"] if len(outcome.leftovers) > _LONG_LIST else [])
        return _block(f"{len(outcome.leftovers)} left behind after destroy", lines, "red")
    kept = f" Kept on purpose: {', '.join(outcome.retained)}." if outcome.retained else ""
    return _Prose((f"\nDestroyed {outcome.destroyed} resources; nothing is left in the account.{kept}", "bold green"))
