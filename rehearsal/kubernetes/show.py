"""The Kubernetes rehearsal in a terminal: current step, checks as they finish, a table, the result."""

from rich.console import Console, Group, RenderableType
from rich.status import Status
from rich.text import Text

from operations.terminal.tables import Rows

from ..checks import Check
from .outcome import Outcome

_CHARTS = {
    "hyperpod": "the HyperPod chart, from charts/",
    "stand-in": "a stand-in for the HyperPod chart, which is not in charts/ (`hyperpod download charts` brings it)",
}


class Progress:
    """A line for the current step, and one for every finished check."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._status: Status | None = None

    def say(self, text: str) -> None:
        """Show that a step has begun."""
        if self.console.is_terminal and self._status is None:
            self._status = self.console.status("")
            self._status.start()
        if self._status:
            self._status.update(text)

    def check(self, check: Check) -> None:
        """Show the result of a check."""
        self.console.print(check.line(), soft_wrap=not self.console.is_terminal)

    def close(self) -> None:
        """Stop drawing."""
        if self._status:
            self._status.stop()
            self._status = None


def ending(outcome: Outcome, seconds: float) -> RenderableType:
    """The table of checks, and how the run ended."""
    # An interrupted run may not know the version.
    of = f"{f'Kubernetes {outcome.version}'.strip()}, {outcome.stack}"
    rows = []
    for check in outcome.checks:
        cells = (check.name, "yes" if check.passed else "no", f"{check.seconds:.1f}")
        rows.append([Text(cell, "" if check.passed else "bold red") for cell in cells])
    title = Text(f"\n{of}: {len(rows)} checks", "bold")
    parts: list[RenderableType] = [title, Rows(["check", "passed", ("seconds", "right")], rows)]
    if outcome.chart:
        parts.append(Text(f"Installed: {_CHARTS[outcome.chart]}; {outcome.objects} objects in all."))
    if outcome.left_out:
        parts.append(Text(f"Left out: {'; '.join(outcome.left_out)}", style="yellow"))
    times = f", {outcome.cycles} times" if outcome.cycles > 1 else ""
    passed = f"All checks passed, up and down{times} in {seconds:.0f} s; nothing is left."
    return Group(*parts, *outcome.last_words(passed))
