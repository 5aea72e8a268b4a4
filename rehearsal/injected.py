"""The failures and quotas that a rehearsal is asked for. What matches nothing of the stack is refused.

Otherwise a typing mistake would look like a stack that survives the failure.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from components.config import Config
from operations.engine.durations import duration
from operations.failures import bad_input
from operations.project.loading import Project

from .account import Account
from .account.faults import Fault, parse_fault
from .account.quotas import COUNTED, parse_quota
from .engines.deployment import up
from .engines.program import ProgramError
from .existing import prepare

_EXAMPLES = 3


@dataclass
class _Known:
    """What a stack has, with every later change of it: ``examples`` are names of resources that take long."""

    names: set[str] = field(default_factory=set)
    quotas: set[str] = field(default_factory=set)
    creates: int = 0
    examples: list[str] = field(default_factory=list)
    slurm: bool = False


def injected(
    fail: Sequence[str], quota: Sequence[str], *deployments: tuple[Project, Config]
) -> tuple[list[Fault], dict[str, int]]:
    """The faults and quotas for an account in which these are deployed, one after the other.

    Raises Failure for what is badly written, and for what none of them has.
    """
    try:
        faults = [parse_fault(text) for text in fail]
        quotas = dict(parse_quota(text) for text in quota)
    except ValueError as error:
        raise bad_input(str(error)) from None
    if (faults or quotas) and (known := _known(deployments)):
        stack = deployments[0][0].stack
        for fault in faults:
            _check_fault(fault, known, stack)
        for name in quotas:
            _check_quota(name, known, stack)
    return faults, quotas


def _check_fault(fault: Fault, known: _Known, stack: str) -> None:
    if fault.kind == "controller-capacity" and not known.slurm:
        raise bad_input(f"--fail {fault.target}={fault.kind}: stack {stack} has no Slurm controller")
    if fault.nth is not None:
        if fault.nth > known.creates:
            raise bad_input(f"--fail #{fault.nth}: stack {stack} creates {known.creates} resources")
    elif fault.target not in known.names and fault.of_type not in known.quotas:
        raise bad_input(
            f'--fail {fault.target}: stack {stack} has no resource and no type "{fault.target}"',
            _meant(fault.target, known.names, f"it has, for example, {', '.join(known.examples)}"),
        )


def _check_quota(name: str, known: _Known, stack: str) -> None:
    if name not in known.quotas:
        uses = f"it uses {', '.join(sorted(known.quotas))}"
        raise bad_input(f'--quota {name}: stack {stack} uses no quota "{name}"', _meant(name, known.quotas, uses))


def _meant(word: str, known: set[str], otherwise: str) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else otherwise


def _known(deployments: Sequence[tuple[Project, Config]]) -> _Known | None:
    """What previews of these have; None where one fails, which the rehearsal then says better."""
    known = _Known()
    for project, config in deployments:
        with Account(config.region.name) as account:
            prepare(account, config)
            try:
                planned = up(project, account, preview=True)
            except ProgramError:
                return None
        if planned.failure:
            return None
        made = [resource for resource in planned.state.values() if resource.in_account]
        for one in made:
            known.names |= {one.name, one.type, one.type.rsplit(":", 1)[-1], f"{one.type}::{one.name}"}
        known.quotas |= {COUNTED[one.type].name for one in made if one.type in COUNTED}
        known.quotas |= {row.name for group in config.instance_groups for row in group.types}
        known.creates += len(made)
        known.slurm |= config.settings.orchestrator == "slurm"
        slowest = sorted(made, key=lambda one: -duration(one.type, one.inputs))
        known.examples = known.examples or [one.name for one in slowest[:_EXAMPLES]]
    return known
