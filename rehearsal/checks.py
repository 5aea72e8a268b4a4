"""A rehearsal's checks and their results."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from operations.terminal.interrupts import Interrupted


class CheckFailed(Exception):
    """A check failed. The text says what was found instead."""


@dataclass
class Check:
    """The result of one check."""

    name: str
    passed: bool
    detail: str
    seconds: float = 0.0

    def line(self) -> Text:
        """The check as a line for the terminal."""
        text = Text("  ✓ " if self.passed else "  ✗ ", style="green" if self.passed else "red")
        return text.append(self.name, "bold").append(f"  {self.detail}  ").append(f"{self.seconds:.1f} s", "dim")


@dataclass
class Findings:
    """The results of a run. ``failure``: why it ended early; ``cancelled``: somebody has ended it."""

    stack: str
    checks: list[Check] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    failure: str = ""
    cancelled: bool = False

    @property
    def passed(self) -> bool:
        """Whether every check passed and nothing was left behind."""
        return not self.failure and not self.leftovers and bool(self.checks) and all(c.passed for c in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The part of the documented form that all rehearsals share."""
        return {
            "stack": self.stack,
            "passed": self.passed,
            "failure": self.failure,
            "checks": [vars(check) for check in self.checks],
            "leftovers": self.leftovers,
        }

    def cancel(self, signalled: Interrupted) -> None:
        """Note that a signal has ended the run."""
        self.failure, self.cancelled = f"ended by {signalled}", True

    def perform(
        self, name: str, act: Callable[[], str], show: Callable[[Check], None], took: float | None = None
    ) -> bool:
        """Run a check and show its result. ``act`` returns its finding or raises CheckFailed.

        ``took``: the seconds of what is checked, if that ran before the check.
        """
        began = time.monotonic()
        try:
            passed, detail = True, act()
        except CheckFailed as failed:
            passed, detail = False, str(failed)
        check = Check(name, passed, detail, round(time.monotonic() - began if took is None else took, 3))
        self.checks.append(check)
        show(check)
        return passed

    def last_words(self, passed: str) -> Iterator[Text]:
        """How the run ended, for the terminal; ``passed`` if all is well."""
        if self.failure:
            yield Text(f"\n{self.failure}", style="bold red")
        if failed := [check.name for check in self.checks if not check.passed]:
            yield Text(f"\nFailed: {', '.join(failed)}", style="bold red")
        if self.leftovers:
            yield Text("\nLeft over:\n" + "\n".join(f"  {one}" for one in self.leftovers), style="bold red")
        elif self.passed:
            yield Text(f"\n{passed}", "bold green")


def require(condition: object, what: str) -> None:
    """Raise CheckFailed unless the condition holds."""
    if not condition:
        raise CheckFailed(what)
