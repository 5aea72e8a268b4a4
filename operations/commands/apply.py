"""The verb ``apply``."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from .. import applying, target
from ..applying import Applied, Part
from ..failures import Exit, bad_input
from ..kubernetes import governance
from ..target import Target
from ..terminal import console


def apply_command(
    stack: console.Stack,
    part: Annotated[
        list[Part] | None,
        typer.Option("--part", metavar="PART", help=f"{', '.join(Part)}. Repeatable. Default: all."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes and apply none.")] = False,
    remove_policy: Annotated[
        bool,
        typer.Option("--remove-policy", help="EKS: remove task governance's policy, before a destroy by Pulumi alone."),
    ] = False,
    yes: console.Yes = False,
    as_json: console.Json = False,
) -> None:
    """Apply what a deployment leaves to the cluster.

    People, Slurm's accounts and limits, your lines of slurm.conf, the policy
    of task governance, dashboards: whatever the stack configures. Shows the
    changes and asks before it makes them. Deploy first: nodes read the
    lifecycle bucket. Accounts that people added to Slurm stay. Lines that
    slurmctld refuses are not applied.

    \b
      hyperpod apply slurm-gpu
      hyperpod apply slurm-gpu --dry-run
      hyperpod apply slurm-gpu --part people --yes
    """
    chosen = target.load(stack)
    if remove_policy:
        gone = governance.remove(chosen)
        console.emit(gone) if as_json else console.say(
            f"deleted: {', '.join(gone) or 'nothing, as there is no policy'}"
        )
        return
    parts = part or applying.parts(chosen)
    if not parts:
        raise bad_input(f"{stack} configures nothing for this verb to apply", "hyperpod explain users")
    if not part:
        _ = chosen.cluster  # Where there is none, this says so once, and not every part.
    found = _each(chosen, parts, dry_run=True)
    changed = [one.part for one in found if one.outcome.changes]
    if changed and not dry_run:
        _show(found, console.note)
        console.confirm(_question(found), yes=yes)
        found = [one for one in found if one.part not in changed] + _each(chosen, changed, dry_run=False)
    _finish(found, dry_run=dry_run, as_json=as_json)


def _each(chosen: Target, parts: Sequence[Part], *, dry_run: bool) -> list[Applied]:
    found = []
    for part in parts:
        with console.progress().status(f"{'Comparing' if dry_run else 'Applying'} {part} ..."):
            found.append(applying.apply(chosen, part, dry_run=dry_run))
    return found


def _question(found: Sequence[Applied]) -> str:
    locked = sorted({who for one in found for who in one.outcome.locked})
    return f"Apply, lock the accounts of {', '.join(locked)} and end their jobs and processes?" if locked else "Apply?"


def _show(found: Sequence[Applied], say: Callable[[str, str], None]) -> None:
    for one in found:
        if one.failure is None:
            for change in one.outcome.changes or ["nothing to change"]:
                say(f"{one.part}: {change}", "")
        for line in one.outcome.notes:
            say(f"  {line}", "yellow")


def _finish(found: Sequence[Applied], *, dry_run: bool, as_json: bool) -> None:
    """Print the result. Raises the failure of a part, and names those of others."""
    if as_json:
        console.emit({"dry_run": dry_run, "parts": [one.as_json() for one in found]})
    else:
        _show(found, console.prose)
    failures = sorted((one.failure for one in found if one.failure), key=lambda one: one.code == Exit.FAILED)
    if failures and as_json:
        raise typer.Exit(failures[-1].code)
    for one in failures[:-1]:
        console.complain(one, as_json=False)
    if failures:
        raise failures[-1]
