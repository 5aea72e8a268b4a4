"""The parts of the configuration that no deployment applies: a call or a node of the running cluster must."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from botocore.exceptions import BotoCoreError, ClientError

from .cluster import people, slurm_accounts, slurm_config
from .dashboards import importing
from .failures import Failure, described
from .kubernetes import governance
from .outcome import Outcome
from .target import Target


class Part(StrEnum):
    """The parts, in the order in which they are applied: an account of Slurm's needs its people."""

    PEOPLE = "people"
    ACCOUNTS = "accounts"
    SLURM_CONFIG = "slurm-config"
    GOVERNANCE = "governance"
    DASHBOARDS = "dashboards"


_APPLY: Mapping[Part, Callable[[Target, bool], Outcome]] = {
    Part.PEOPLE: people.apply,
    Part.ACCOUNTS: slurm_accounts.apply,
    Part.SLURM_CONFIG: slurm_config.apply,
    Part.GOVERNANCE: governance.apply,
    Part.DASHBOARDS: importing.apply,
}


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A part with its changes, or the failure that hides or prevented them."""

    part: Part
    outcome: Outcome
    failure: Failure | None = None

    def as_json(self) -> dict[str, object]:
        """The documented form of --json."""
        said = self.failure.as_json() if self.failure else None
        return {"part": self.part, "changes": self.outcome.changes, "notes": self.outcome.notes, "failure": said}


def parts(target: Target) -> list[Part]:
    """The parts that the stack's configuration has."""
    settings = target.config.settings
    there = {
        # A list that was emptied must lock the people that it had, and lines that were removed must go.
        Part.PEOPLE: not target.on_eks,
        Part.ACCOUNTS: not target.on_eks and settings.slurm.accounting is not None,
        Part.SLURM_CONFIG: not target.on_eks,
        Part.GOVERNANCE: governance.governs(target),
        Part.DASHBOARDS: settings.observability.grafana != "none",
    }
    return [part for part in Part if there[part]]


def apply(target: Target, part: Part, *, dry_run: bool) -> Applied:
    """Apply one part, or only find out what that would change."""
    try:
        return Applied(part=part, outcome=_APPLY[part](target, dry_run))
    except (Failure, ClientError, BotoCoreError) as error:
        return Applied(part=part, outcome=Outcome(), failure=described(error, target.stack))
