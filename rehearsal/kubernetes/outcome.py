"""The result of a Kubernetes rehearsal, in the documented JSON form."""

from dataclasses import dataclass, field
from typing import Any

from ..checks import Findings


@dataclass
class Outcome(Findings):
    """The whole result of a run.

    ``chart``: which HyperPod chart was installed. ``left_out``: checks that this machine cannot run, and why.
    """

    chart: str = ""
    version: str = ""
    objects: int = 0
    cycles: int = 0
    left_out: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        return {
            **super().as_json(),
            "kubernetes": self.version,
            "chart": self.chart,
            "objects": self.objects,
            "cycles": self.cycles,
            "left_out": self.left_out,
        }
