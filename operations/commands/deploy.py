"""The verbs ``deploy``, ``preview`` and ``destroy``: their options, confirmations and output."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from components.kubernetes.charts import FOLDER, HYPERPOD, KUEUE, faults
from components.names import readable
from operations.deployment.rehearse import rehearsed
from stack.advice import REHEARSE_AGAIN, about, next_step
from stack.clock import clock
from stack.failures import cannot_know

from .. import console, target
from ..deployment import charts, deploy
from ..deployment.engines import Engine, open_stack
from ..deployment.leftovers import Audit
from ..kubernetes import governance
from ..manner import MANNER
from ..target import Target
from . import deployed

if TYPE_CHECKING:
    from rehearsal.account import Account

Rehearse = Annotated[
    bool, typer.Option("--rehearse", help="Use an AWS account embedded in this process: no cloud, no cost.")
]
Fail = Annotated[
    list[str] | None,
    typer.Option(
        "--fail", metavar="TARGET[=KIND]", help="With --rehearse: make a resource fail; see `hyperpod rehearse -h`."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", metavar="KEY=VALUE", help="With --rehearse: override a configuration value. Repeatable."
    ),
]
Lose = Annotated[
    list[str] | None,
    typer.Option(
        "--lose", metavar="RESOURCE", help="Allow this resource to be replaced or deleted with its data. Repeatable."
    ),
]
InstallCli = Annotated[bool, typer.Option("--install-cli", help="Install the Pulumi CLI if it is missing.")]
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


def deploy_command(
    stack: console.Stack,
    yes: console.Yes = False,
    rehearse: Rehearse = False,
    fail: Fail = None,
    config: Set = None,
    lose: Lose = None,
    install_cli: InstallCli = False,
    as_json: console.Json = False,
) -> None:
    """Create a stack, or update it to its configuration.

    Shows the changes first and asks for confirmation. The cluster and whatever
    holds data are not replaced or deleted unless --lose names them. If an
    earlier update failed, the state is refreshed from AWS first. Each resource
    is shown with its elapsed and its usual time. If something fails, you get
    the first cause, the nodes' own log and the next step to take. Ctrl-C stops
    cleanly; run the same command again to continue. A stack with a Grafana
    gets its dashboards at the end.

    \b
      hyperpod deploy dev --rehearse
      hyperpod deploy dev
      hyperpod deploy slurm-gpu --yes --json    in CI
      hyperpod deploy dev --rehearse --fail hyperpod-cluster=capacity
    """
    chosen = _load(stack, rehearse, fail, config)
    with open_engine(chosen, rehearse, fail, create=True, install_cli=install_cli) as (engine, _):
        discarded = settle(chosen, engine, as_json, rehearse=rehearse, lose=lose or ())
        planned = deploy.run(chosen, engine, "preview")
        if not planned.succeeded:
            finish(chosen, planned, as_json, rehearse=rehearse)
        deploy.require_kept(planned, lose or (), discarded)
        if not any(number for operation, number in planned.counts.items() if operation != "same"):
            console.note("No changes.")
        elif not rehearse:
            show_plan(planned)
            console.confirm("Deploy?", yes=yes)
        report = deploy.run(chosen, engine, "up", total=_number(planned))
        if report.succeeded and not rehearse:
            report.warnings += [*deployed.import_all(chosen), *deployed.still_to_come(chosen)]
        finish(chosen, report, as_json, rehearse=rehearse)


def settle(chosen: Target, engine: Engine, as_json: bool, *, rehearse: bool, lose: Collection[str] = ()) -> list[str]:
    """Bring the state, after a failure, to what an update can continue from; ends the verb if that fails.

    Returns what was deleted to be created again.
    """
    report, discarded = deploy.settle(chosen, engine, lose)
    if report is not None and not report.succeeded:
        finish(chosen, report, as_json, rehearse=rehearse)
    return discarded


def preview_command(
    stack: console.Stack,
    diff: Annotated[
        bool, typer.Option("--diff", help="Also which input of which resource changes, from what to what.")
    ] = False,
    rehearse: Rehearse = False,
    config: Set = None,
    install_cli: InstallCli = False,
    as_json: console.Json = False,
) -> None:
    """Show what a deployment would change. Changes nothing.

    What is created is counted by component; what changes, or is replaced or
    deleted, is named. Secrets are not shown.

    \b
      hyperpod preview dev
      hyperpod preview dev --diff
      hyperpod preview slurm-gpu --json    in CI, on a pull request
    """
    chosen = _load(stack, rehearse, None, config)
    with open_engine(chosen, rehearse, None, create=True, install_cli=install_cli) as (engine, _):
        if unsure := engine.unsure():
            console.note(
                f"The last update of {', '.join(unsure)} failed, so this preview may compare with values that AWS "
                "refused. `deploy` refreshes the state first.",
                "yellow",
            )
        planned = deploy.run(chosen, engine, "preview")
        if diff and not as_json:
            _show_inputs(planned)
        finish(chosen, planned, as_json, rehearse=rehearse)


def destroy_command(
    stack: console.Stack,
    yes: console.Yes = False,
    remove_leftovers: Annotated[
        bool,
        typer.Option(
            "--remove-leftovers", help="Also delete what AWS created itself: log groups, orphaned network interfaces."
        ),
    ] = False,
    rehearse: Rehearse = False,
    config: Set = None,
    install_cli: InstallCli = False,
    as_json: console.Json = False,
) -> None:
    """Delete a stack, then search for leftovers.

    AWS itself creates some resources that no stack deletes, such as the nodes'
    log groups. They are listed; --remove-leftovers deletes them. Any other
    leftover is a failure, shown with the command that deletes it.

    \b
      hyperpod destroy dev
      hyperpod destroy dev --yes --remove-leftovers
      hyperpod destroy dev --rehearse    creates it first
    """
    chosen = _load(stack, rehearse, None, config)
    with open_engine(chosen, rehearse, None, create=False, install_cli=install_cli) as (engine, account):
        if rehearse:
            built = deploy.run(chosen, engine, "up")
            if not built.succeeded:
                finish(chosen, built, as_json, rehearse=rehearse)
        else:
            console.confirm(f"Delete all of {stack}, including its file system and all data on it?", yes=yes)
            governance.end(chosen)
        report = deploy.destroy(chosen, engine, remove_leftovers=remove_leftovers)
        if account is not None and report.audit is not None:
            # The embedded account can be searched completely, not only by this stack's names and tags.
            report.audit.add_unnamed(account.leftovers())
        finish(chosen, report, as_json, rehearse=rehearse)


def _load(stack: str, rehearse: bool, fail: Sequence[str] | None, config: Sequence[str] | None) -> Target:
    if not rehearse and (fail or config):
        # A real stack is configured in its file, which the next deployment reads.
        raise typer.BadParameter("--fail and --config need --rehearse; for a real stack: pulumi config set KEY VALUE")
    return target.load(stack, list(config or []))


@contextmanager
def open_engine(
    chosen: Target, rehearse: bool, fail: Sequence[str] | None, *, create: bool, install_cli: bool
) -> Iterator[tuple[Engine, Account | None]]:
    if not rehearse:
        if chosen.on_eks:
            _require_aws_cli()
            if create:
                _bring_charts()
        yield open_stack(chosen, create=create, install_cli=install_cli), None
        return
    console.note(f"Rehearsing {chosen.stack}: {chosen.config.title} in {chosen.config.region.name} ...")
    try:
        with rehearsed(chosen, fail=fail or ()) as (engine, account):
            console.note(f"Rehearsing on {engine.title}.")
            yield engine, account
    except KeyboardInterrupt:
        console.note(f"Cancelled.\nNext: {_again()}", "yellow")
        raise


def _require_aws_cli() -> None:
    """pulumi-eks checks the AWS CLI's version, and the Kubernetes provider gets every token from it."""
    if shutil.which("aws") is None:
        raise cannot_know(
            "an EKS stack needs the AWS CLI on PATH: pulumi-eks and the Kubernetes provider call it",
            "install version 2: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
        )


def _bring_charts() -> None:
    """Download the charts that `pulumi up` installs on EKS, unless the pinned ones are there."""
    for chart in (HYPERPOD, KUEUE):
        if faults(chart, target.ROOT / FOLDER / chart.name):
            console.note(f"Downloading the chart {chart.name} {chart.version} ...")
            charts.bring(chart)


def tally(report: deploy.Report) -> dict[str, int]:
    """How many resources are created, changed and so on; Pulumi's own counts have components and providers as well."""
    changed = Counter(change.rpartition(" (")[2].rstrip(")") for change in report.changes)
    # The embedded engine does not list what it deletes.
    return {**(changed or report.counts), "same": report.counts.get("same", 0)}


def _number(report: deploy.Report) -> int:
    return sum(number for operation, number in tally(report).items() if operation != "same")


def finish(chosen: Target, report: deploy.Report, as_json: bool, *, rehearse: bool) -> NoReturn:
    """Show a report, record it for a real stack, and exit with its code."""
    if rehearse and report.cancelled:
        report.next_step = _again()
    elif rehearse and report.cause and not report.audit:
        report.next_step = next_step(report.cause.text, report.stack, REHEARSE_AGAIN)
    if not rehearse and report.command != "preview":
        deploy.keep(chosen, report)
    if as_json:
        console.emit(document(report))
    else:
        _show(report, rehearse=rehearse)
    raise typer.Exit(report.code)


def _again() -> str:
    """The command that was cancelled."""
    return f"{MANNER.line}    # AWS was not touched, and the embedded account is gone with all that was made in it"


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
            named = f": {', '.join(dict.fromkeys(names))}" if operation in _NAMED or len(names) == 1 else ""
            parts.append(f"{len(names)} {_WORDS.get(operation, operation)}{named}")
        lines.append(f"{component or 'stack':{width}}  {'; '.join(parts)}")
    return lines


def _show_inputs(report: deploy.Report) -> None:
    for resource, inputs in report.inputs.items():
        console.say(f"  {resource}", "bold")
        for path, (before, after) in inputs.items():
            console.say(f"    {path}: {before} -> {after}")


def show_plan(report: deploy.Report) -> None:
    for line in by_component(report):
        console.note(f"  {line}", "")
    for name, what in report.lost.items():
        console.note(f"  {name} is removed: {what}", "bold red")
    console.note(counted(tally(report)), "bold")


def _show(report: deploy.Report, *, rehearse: bool) -> None:
    what = f"{'rehearsed ' if rehearse else ''}{report.command} of {report.stack}"
    took = f"{clock(report.seconds)}{' here' if rehearse else ''}"
    if report.cancelled:
        console.say(f"Cancelled {what} after {took}.", "bold yellow")
    elif not report.succeeded:
        console.say(f"{what[0].upper()}{what[1:]} failed after {took}.", "bold red")
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
    for warning in report.warnings:
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
            console.say(f"  {line}")
        for name, what in report.lost.items():
            console.say(f"  {name} is removed: {what}", "bold red")
        console.say(f"{report.stack}: {counted(tally(report))}.", "bold")
        return
    number = _number(report)
    what = "deleted" if report.command == "destroy" else "changed"
    did = f"{number} resource{'s' if number > 1 else ''} {what}" if number else "no changes were needed"
    if report.predicted_seconds:
        took = f"{took}, in about {clock(report.predicted_seconds)} on AWS"
    ended = f"{'was rehearsed, not' if rehearse else 'is'} {_DONE[report.command]}"
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
        console.say(f"  kept on purpose: {line}")
    if left := audit.of_the_stack:
        console.say(f"{len(left)} of the stack's resources are left and cost money until you delete them:", "bold red")
        for one in left:
            console.say(f"  {one.kind} {one.id}    {one.command}")
    if by_aws := [one for one in audit.leftovers if one.by_aws]:
        console.say("AWS created these itself and does not delete them:", "bold")
        for one in by_aws:
            console.say(f"  {one.kind} {one.id}    {one.command}")
        if not report.next_step:
            console.say(f"  to delete them: hyperpod destroy {report.stack} --remove-leftovers")
    for line in audit.unknown:
        console.say(f"  could not search: {line}", "yellow")
    if report.succeeded and not audit.leftovers and not audit.unknown:
        console.say("Nothing is left in the account.", "green")
