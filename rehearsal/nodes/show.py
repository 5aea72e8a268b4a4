"""The node rehearsal in a terminal: nodes and their steps during boot, checks as they finish, the result."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from operations.terminal.tables import Rows

from ..checks import Check
from .cluster import Cluster
from .outcome import Node, Outcome, steps_of

_COLOURS = {"ok": "green", "degraded": "yellow", "skipped": "dim", "failed": "red", "not run": "dim"}


class Progress:
    """A table of nodes that fills in while their scripts run, and a line per check."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._cluster: Cluster | None = None

    def booting(self, cluster: Cluster) -> None:
        """Show the scripts' progress. Called often."""
        self._cluster = cluster
        if self.console.is_terminal and self._live is None:
            self._live = Live(get_renderable=self._render, console=self.console, refresh_per_second=8, transient=True)
            self._live.start()

    def booted(self, nodes: list[Node], seconds: float) -> None:
        """Show how all nodes have booted."""
        self.close()
        self.console.print(booted(nodes))
        self.console.print(f"{len(nodes)} nodes: all workers idle after [bold]{seconds:.2f} s[/]\n")

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Name in a terminal what takes its time, while nothing else is drawn there."""
        if not self.console.is_terminal or self._live is not None:
            yield
            return
        with self.console.status(what):
            yield

    def check(self, check: Check) -> None:
        """Show the result of a check."""
        self.console.print(check.line(), soft_wrap=not self.console.is_terminal)

    def close(self) -> None:
        """Stop drawing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        rows = []
        assert self._cluster is not None
        for host in self._cluster.hosts:
            run = self._cluster.scripts.get(host.name)
            steps = steps_of(run) if run else []
            last = f"{steps[-1]['name']} {steps[-1]['result']}" if steps else ""
            style = "" if run is None or run.code is None else "green" if run.code == 0 else "red"
            seconds = f"{run.seconds:.1f}" if run else ""
            cells = (host.name, host.role, host.machine.kind.name, str(len(steps)), last, seconds)
            rows.append([Text(cell, style) for cell in cells])
        return Rows(["node", "role", "type", "steps", "last", "seconds"], rows)


def booted(nodes: list[Node]) -> RenderableType:
    """How long every node's boot took, and its longest step, or the failed ones."""
    rows = []
    for node in nodes:
        bad = [step for step in node.steps if step["result"] in ("failed", "degraded")]
        slow = sorted(node.steps, key=lambda step: -float(step["seconds"]))[:1]
        text = Text()
        for step in bad or slow:
            text.append(f"{step['name']} {step['seconds']:.2f}  ", style=_COLOURS[step["result"]])
        kind = node.instance_type.removeprefix("ml.")
        rows.append((node.name, kind, node.transport, f"{node.boot_seconds:.2f}", text))
    return Rows(["node", "type", "transport", ("seconds", "right"), "longest step"], rows)


def ending(outcome: Outcome, seconds: float) -> RenderableType:
    """How the run ended."""
    parts: list[RenderableType] = []
    if outcome.recovery:
        found = outcome.recovery
        parts.append(
            Text(
                f"\nA worker lost in step {found.lost_at_step}: noticed after {found.noticed_seconds:.1f} s, "
                f"replaced by a fresh node after {found.node_back_seconds:.1f} s, "
                f"training again after {found.resumed_after_seconds:.1f} s, {found.steps_lost} steps lost."
            )
        )
    passed = f"All {len(outcome.checks)} checks passed in {seconds:.0f} s; nothing is left."
    return Group(*parts, *outcome.last_words(passed))
