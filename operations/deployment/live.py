"""A deployment's live progress: a tree of components in a terminal, a line per resource elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from stack.clock import clock, duration
from stack.events import Event, name_of

_MARKS = {"start": ("…", "yellow"), "done": ("✓", "green"), "failed": ("✗", "red")}
# Without a terminal, resources that take longer than this are announced when they start.
_LONG_SECONDS = 60
_ROWS_OF_A_COMPONENT = 4


@dataclass
class _Row:
    name: str
    component: str
    operation: str
    began: float
    predicted: float
    phase: str = "start"
    ended: float = 0.0

    def times(self, now: float) -> str:
        """The elapsed time, and the resource's usual time (stack/durations.csv)."""
        took = (self.ended or now) - self.began
        about = f", usually {clock(self.predicted)}" if self.predicted and self.operation == "create" else ""
        return f"{clock(took)}{about}"


class Progress:
    """Shows the engine's events. Use as a context manager, with ``event`` as the engine's callback.

    A preview takes no step, so of it only failures are shown: its report lists the changes.
    """

    def __init__(self, title: str, console: Console, total: int = 0, *, preview: bool = False) -> None:
        self._preview = preview
        self._title, self._console, self._total = title, console, total
        self._rows: dict[str, _Row] = {}
        self._began = time.monotonic()
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._say(self._title)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def event(self, event: Event) -> None:
        """Show that something happened to a resource."""
        if self._preview and event.phase != "failed":
            return
        now, resource = time.monotonic(), event.resource
        # A replacement has two parts, create and delete.
        key = f"{resource.urn} {event.operation}"
        row = self._rows.get(key)
        if row is None:
            component = name_of(resource.parent) if resource.parent.count("::") >= 3 else ""
            predicted = duration(resource.type, resource.inputs)
            row = self._rows[key] = _Row(resource.name, component, event.operation, now, predicted)
        if event.phase != "start":
            row.phase, row.ended = event.phase, now
        if not self._console.is_terminal:
            self._line(row, event)

    def _line(self, row: _Row, event: Event) -> None:
        mark = _MARKS[event.phase][0]
        if event.phase != "start":
            error = f"  {event.error}" if event.error else ""
            self._say(f"  {mark} {row.operation:<8} {row.name:<40} {row.times(row.ended)}{error}")
        elif row.operation == "create" and row.predicted >= _LONG_SECONDS:
            self._say(f"  {mark} {row.operation:<8} {row.name:<40} usually takes {clock(row.predicted)}")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        now, rows = time.monotonic(), list(self._rows.values())
        done = sum(row.phase == "done" for row in rows)
        of = f" of {self._total}" if self._total else ""
        so_far = "" if self._preview else f", {done}{of} done"
        tree = Tree(Text(f"{self._title}  {clock(now - self._began)}{so_far}", style="bold"))
        components: dict[str, list[_Row]] = {}
        for row in rows:
            components.setdefault(row.component, []).append(row)
        for component, members in components.items():
            done = sum(row.phase == "done" for row in members)
            branch = tree.add(Text(f"{component or 'stack'}  {done}/{len(members)}", style="bold"))
            busy = [row for row in members if row.phase != "done"]
            for row in busy[:_ROWS_OF_A_COMPONENT]:
                mark, colour = _MARKS[row.phase]
                branch.add(Text(f"{mark} {row.operation} {row.name}  {row.times(now)}", style=colour))
            if len(busy) > _ROWS_OF_A_COMPONENT:
                branch.add(Text(f"and {len(busy) - _ROWS_OF_A_COMPONENT} more in progress", style="dim"))
        return tree
