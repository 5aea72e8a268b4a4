"""Which dashboards there are, and which of them a stack gets."""

from dataclasses import dataclass
from pathlib import Path

from components.catalogue.rows import read
from components.config import Settings

TAG = "hyperpod"


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A dashboard: its name, which is also the end of its fixed uid, its title, and what it is about.

    ``orchestrator`` and ``accelerator`` name the stacks that get it; empty: all.
    """

    name: str
    title: str
    about: str
    orchestrator: str = ""
    accelerator: str = ""

    @property
    def uid(self) -> str:
        """The same in every Grafana, so that links last and another import replaces it. At most 40 characters."""
        return f"{TAG}-{self.name}"

    def fits(self, settings: Settings) -> bool:
        """Whether a stack has what it shows."""
        return self.orchestrator in ("", settings.orchestrator) and self.accelerator in ("", settings.accelerator)


SHIPPED = read(Path(__file__).with_suffix(".csv"), Shipped)
BY_NAME = {one.name: one for one in SHIPPED}


def of_stack(settings: Settings) -> tuple[Shipped, ...]:
    """The dashboards of a stack, in the order of a menu."""
    return tuple(one for one in SHIPPED if one.fits(settings))
