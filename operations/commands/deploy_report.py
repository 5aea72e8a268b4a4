"""What ``deploy``, ``preview``, ``destroy`` and ``scale`` show of a deployment."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from components.common.names import readable

from ..deployment import deploy
from ..deployment.leftovers import Audit
from ..engine.durations import clock
from ..failures.advice import about
from ..terminal import console

_DONE = {"up": "deployed", "preview": "previewed", "destroy": "destroyed", "refresh": "refreshed"}
_WORDS = {
    "create": "to create",
    "update": "to change",
    "replace": "to replace",
    "delete": "to delete",
    "same": "unchanged",
}
# What a person wants to see named before agreeing.
_NAMED = ("update", "replace", "delete")


def tally(report: deploy.Report) -> dict[str, int]:
    """How many resources are created, changed and so on; Pulumi's own counts have components and providers as well."""
    changed = Counter(change.rpartition(" (")[2].rstrip(")") for change in report.changes)
    # The embedded engine does not list what it deletes.
    return {**(changed or report.counts), "same": report.counts.get("same", 0)}


def number(report: deploy.Report) -> int:
    """How many resources change."""
    return sum(number for operation, number in tally(report).items() if operation != "same")


def document(report: deploy.Report) -> dict[str, Any]:
    """The documented form of --json."""
    found = about(report.cause.text).code if report.cause else ""
    return {**asdict(report), "code": found, "exit_code": int(report.code)}


def counted(counts: dict[str, int]) -> str:
    """For example ``92 to create, 3 unchanged``."""
    known = [f"{counts[operation]} {words}" for operation, words in _WORDS.items() if counts.get(operation)]
    rest = [f"{number} {operation}" for operation, number in counts.items() if operation not in _WORDS and number]
    return ", ".join(known + rest) or "nothing to do"


def by_component(report: deploy.Report) -> list[str]:
    """A line for each component: how many resources it creates, and the names of what else happens to some."""
    width = max((len(name or "stack") for name in report.components), default=0)
    lines = []
    for component, operations in report.components.items():
        parts = []
        for operation, names in operations.items():
            # Names that AWS's parts of one thing share are said once.
            told = list(dict.fromkeys(names))
            named = f": {', '.join(told)}" if operation in _NAMED or len(names) == 1 else ""
            parts.append(f"{len(names)} {_WORDS.get(operation, operation)}{named}")
        lines.append(f"{component or 'stack':{width}}  {'; '.join(parts)}")
    return lines


def unknown_groups(report: deploy.Report) -> list[str]:
    """What Slurm lacks of groups that are added, in a line, or none."""
    names = ", ".join(report.unknown_groups)
    said = "Slurm's controller makes no partition of that name, and may expect other accelerators of its nodes"
    return [f"{names}: {said}, until `hyperpod node run-scripts {report.stack} controller`"] if names else []


def show_inputs(report: deploy.Report) -> None:
    """Which input of which resource changes, from what to what."""
    for resource, inputs in report.inputs.items():
        console.say(f"  {resource}", "bold")
        for path, (before, after) in inputs.items():
            console.say(f"    {path}: {before} -> {after}")


def show_plan(report: deploy.Report) -> None:
    """What a preview has found, on standard error, where the confirmation follows."""
    for line in by_component(report):
        console.note(f"  {line}", "")
    for name, what in report.lost.items():
        console.note(f"  {name} is removed: {what}", "bold red")
    for line in unknown_groups(report):
        console.note(f"  {line}", "yellow")
    console.note(counted(tally(report)), "bold")


def show(report: deploy.Report, *, rehearse: bool) -> None:
    """A command's result, for people."""
    what = f"{'rehearsed ' if rehearse else ''}{report.command} of {report.stack}"
    took = f"{clock(report.seconds)}{' here' if rehearse else ''}"
    if report.cancelled:
        console.prose(f"Cancelled {what} after {took}.", "bold yellow")
    elif not report.succeeded:
        console.prose(f"{what[0].upper()}{what[1:]} failed after {took}.", "bold red")
    if report.cause:
        console.say("What failed first:", "bold")
        console.prose(f"  {report.cause}")
    if report.others:
        names = ", ".join(dict.fromkeys(cause.resource or cause.text.splitlines()[0] for cause in report.others))
        console.prose(f"  Failed later, mostly as a consequence: {names}", "dim")
    for log in report.node_logs:
        console.say(f"The end of {log.stream}:", "bold")
        for line in log.lines:
            console.say(f"  {line}")
    for warning in [*report.warnings, *unknown_groups(report)]:
        console.prose(f"Warning: {warning}", "yellow")
    if report.succeeded:
        _show_success(report, took, rehearse=rehearse)
    if report.audit:
        _show_audit(report)
    if report.next_step:
        console.prose(f"Next: {report.next_step}")
    if report.cause:
        console.prose(about(report.cause.text).more, "dim")


def _show_success(report: deploy.Report, took: str, *, rehearse: bool) -> None:
    if report.command == "preview":
        for line in by_component(report):
            console.prose(f"  {line}")
        for name, what in report.lost.items():
            console.prose(f"  {name} is removed: {what}", "bold red")
        console.prose(f"{report.stack}: {counted(tally(report))}.", "bold")
        return
    changed = number(report)
    what = "deleted" if report.command == "destroy" else "changed"
    did = f"{changed} resource{'s' if changed > 1 else ''} {what}" if changed else "no changes were needed"
    if report.predicted_seconds:
        took = f"{took}, in about {clock(report.predicted_seconds)} on AWS"
    done = _DONE[report.command]
    ended = f"was rehearsed, not {done}" if rehearse else f"is {done}"
    console.prose(f"{report.stack} {ended}: {did} in {took}.", "bold green")
    outputs = readable(report.outputs)
    width = max(map(len, outputs), default=0)
    for key, value in outputs.items():
        console.say(f"  {key:{width}}  {value}")


def _show_audit(report: deploy.Report) -> None:
    audit = report.audit or Audit()
    for line in audit.removed:
        console.say(f"  removed {line}")
    for line in audit.kept:
        console.prose(f"  kept on purpose: {line}")
    if left := audit.of_the_stack:
        console.prose(
            f"{len(left)} of the stack's resources are left and cost money until you delete them:", "bold red"
        )
        for one in left:
            console.say(f"  {one.kind} {one.id}    {one.command}")
    if by_aws := [one for one in audit.leftovers if one.by_aws]:
        console.prose("AWS created these itself and does not delete them:", "bold")
        for one in by_aws:
            console.say(f"  {one.kind} {one.id}    {one.command}")
        if not report.next_step:
            console.say(f"  to delete them: hyperpod destroy {report.stack} --remove-leftovers")
    for line in audit.unknown:
        console.prose(f"  could not search: {line}", "yellow")
    if report.succeeded and not audit.leftovers and not audit.unknown:
        console.say("Nothing is left in the account.", "green")
