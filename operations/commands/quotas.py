"""The verb ``quotas``."""

import typer

from .. import target
from ..failures import NO_CREDENTIALS, Exit
from ..spending import plans, quotas
from ..terminal import console


def quotas_command(stack: console.Stack, as_json: console.Json = False) -> None:
    """Compare the needed service quotas with the account's.

    Also says whether training plans are for these nodes.

    "others" is what the rest of the account uses. For each FAIL you get the
    command that requests an increase; AWS answers within hours to days.
    Without AWS credentials you see what the stack needs. Exits with 1 if a
    quota is too small or a training plan is for something else, with 3 if one
    could not be read.

    \b
      hyperpod quotas slurm-gpu
      hyperpod quotas slurm-gpu --json
    """
    chosen = target.load(stack)
    try:
        plan = [plans.check(chosen, arn, groups) for arn, groups in plans.users(chosen).items()]
        checks = [*quotas.check(chosen), *plan]
    except NO_CREDENTIALS:
        _show(stack, quotas.unasked(chosen), as_json)
        note_demand(chosen)
        raise
    _show(stack, checks, as_json)
    note_demand(chosen)
    results = {one.result for one in checks}
    raise typer.Exit(Exit.FAILED if "FAIL" in results else Exit.CANNOT_KNOW if "UNKNOWN" in results else Exit.GOOD)


def note_demand(chosen: target.Target) -> None:
    """Say which groups need less while they are idle, where people and not programs read it."""
    for group in chosen.config.worker_groups:
        if group.follows_demand:
            console.note(f"Needed with all {group.count} nodes of {group.name}; idle it has none.")


def _show(stack: str, checks: list[quotas.Check], as_json: bool) -> None:
    if as_json:
        console.emit(checks)
        return
    console.table(
        f"Quotas of {stack}",
        ["", "quota", "code", ("needed", "right"), ("others", "right"), ("limit", "right")],
        [
            (
                one.result,
                f"{one.service}: {one.name}",
                one.code or "?",
                f"{one.needed:g}",
                _number(one.used),
                _number(one.limit),
            )
            for one in checks
        ],
    )
    for one in checks:
        if one.why and one.result != "PASS":
            console.prose(f"  {one.result} {one.service}: {one.name}: {one.why}", "yellow")
    if requests := list(quotas.requests(checks)):
        console.prose(f"Request {len(requests)} increases with these commands:", "bold")
        for request in requests:
            console.say(f"  {request}")
    elif all(one.result == "PASS" for one in checks):
        console.say("All quotas are large enough.", "bold green")


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
