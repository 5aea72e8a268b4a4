"""A deployment's live progress: a line per component in a terminal, one per resource that takes long elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..engine.durations import clock, duration
from ..engine.events import Event, name_of
from ..terminal.bars import progress

_MARKS = {"start": ("…", "yellow"), "done": ("✓", "green"), "failed": ("✗", "red")}
# Without a terminal, resources that take longer than this are announced when they start.
_LONG_SECONDS = 60
# ... and those that take less than this are only counted, by component.
_SHORT_SECONDS = 10


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
        """The elapsed time, and the resource's usual time (operations/engine/durations.csv)."""
        took = (self.ended or now) - self.began
        if not self.predicted or self.operation != "create":
            return clock(took)
        words = "of about" if self.phase == "start" else "taken, usually"
        return f"{clock(took)} {words} {clock(self.predicted)}"

    @property
    def short(self) -> bool:
        """Whether a log need not tell of it."""
        return self.predicted < _SHORT_SECONDS and self.phase == "done"


class Progress:
    """Shows the engine's events. Use as a context manager, with ``event`` as the engine's callback.

    A preview takes no step, so of it only failures are shown: its report lists the changes.
    """

    def __init__(self, title: str, console: Console, total: int = 0, *, preview: bool = False) -> None:
        self._preview = preview
        self._title, self._console, self._total = title, console, total
        self._rows: dict[str, _Row] = {}
        self._began = time.monotonic()
        self._over = False
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._say(self._title)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over = True
        if self._console.is_terminal:
            self._live.stop()
        else:
            self._count()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to a question meanwhile; what happens is shown afterwards."""
        self._live.stop()
        yield
        if self._console.is_terminal and not self._over:
            self._live.start()

    def _count(self) -> None:
        """A line per component and operation for what was too short for a line of its own."""
        counts = Counter((row.component, row.operation) for row in self._rows.values() if row.short)
        for (component, operation), number in counts.items():
            self._say(f"  ✓ {operation:<8} {number} in {component or 'the stack'} that took seconds")

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
        if row.short:
            return
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
        components: dict[str, list[_Row]] = {}
        for row in rows:
            components.setdefault(row.component, []).append(row)
        lines = [
            (name or "stack", sum(row.phase == "done" for row in members), len(members), _slowest(members, now))
            for name, members in components.items()
        ]
        return Group(Text(f"{self._title}  {clock(now - self._began)}{so_far}", style="bold"), progress(lines))


def _slowest(members: Sequence[_Row], now: float) -> Text:
    """What failed in a component, or else will take longest, with the elapsed and the usual time."""
    busy = [row for row in members if row.phase != "done"]
    if not busy:
        return Text("")
    row = max(busy, key=lambda one: (one.phase == "failed", one.predicted))
    mark, colour = _MARKS[row.phase]
    more = f", and {len(busy) - 1} more" if len(busy) > 1 else ""
    return Text(f"{mark} {row.times(now)}, {row.name}{more}", style=f"not bold {colour}")
