"""What a rehearsal on this machine finds out, check by check."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text


class CheckFailed(Exception):
    """The text says what was found instead."""


@dataclass
class Check:
    """The result of one check."""

    name: str
    passed: bool
    detail: str
    seconds: float = 0.0

    def line(self) -> Text:
        """The check in a terminal."""
        text = Text("  ✓ " if self.passed else "  ✗ ", style="green" if self.passed else "red")
        return text.append(self.name, "bold").append(f"  {self.detail}  ").append(f"{self.seconds:.1f} s", "dim")


def require(condition: object, what: str) -> None:
    """Raise CheckFailed unless the condition holds."""
    if not condition:
        raise CheckFailed(what)
