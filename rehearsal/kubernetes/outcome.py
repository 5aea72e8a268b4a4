"""What a rehearsal on a Kubernetes API found, in the documented JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..checks import Check


@dataclass
class Outcome:
    """Everything that a run found.

    ``chart``: which HyperPod chart was installed. ``left_out``: checks that this machine cannot do, and why.
    ``failure``: why the run ended early.
    """

    stack: str
    chart: str = ""
    version: str = ""
    objects: int = 0
    cycles: int = 0
    checks: list[Check] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Every check passed, and nothing is left."""
        return not self.failure and not self.leftovers and bool(self.checks) and all(c.passed for c in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        return {
            "stack": self.stack,
            "passed": self.passed,
            "failure": self.failure,
            "kubernetes": self.version,
            "chart": self.chart,
            "objects": self.objects,
            "cycles": self.cycles,
            "checks": [vars(check) for check in self.checks],
            "left_out": self.left_out,
            "leftovers": self.leftovers,
        }
