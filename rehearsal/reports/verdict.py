"""The last words of a rehearsal: what the stack takes on AWS, and what to do next."""

import math

from components.estimates import cost, quotas
from operations.terminal.command_line import called

from ..outcome import Outcome


def verdict(outcome: Outcome) -> tuple[str, str]:
    """What a stack that came up takes, and the command for what to do first, as one can type it here."""
    minutes = max(1, math.ceil(outcome.cluster_seconds / 60))
    # The other quotas are wide enough in a new account as a rule; those of instance types begin at 0 or little more.
    wanted = [f"{quota.needed:g} x {quota.name}" for quota in quotas.needed(outcome.config) if quota.of_type]
    said = (
        f"{outcome.project.stack} is good: up in {minutes} {'minute' if minutes == 1 else 'minutes'} on AWS, "
        f"{cost.estimate(outcome.config).words}; quotas to have: {', '.join(wanted)}"
    )
    return said, f"{called()} quotas {outcome.project.stack}"
