"""The verbs ``deploy``, ``preview`` and ``destroy``: their options and confirmations."""

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from .. import target
from ..deployment import deploy, preconditions, preflight
from ..deployment.bench import Account, rehearsed
from ..deployment.engines import Engine, open_stack
from ..failures import Exit, Failure
from ..failures.advice import REHEARSE_AGAIN, next_step
from ..kubernetes import governance
from ..target import Target
from ..terminal import console
from ..terminal.output_options import OPTIONS
from . import deployed
from .deploy_report import document, number, show, show_inputs, show_plan

Rehearse = Annotated[
    bool, typer.Option("--rehearse", help="Use an AWS account embedded in this process: no cloud, no cost.")
]
Fail = Annotated[
    list[str] | None,
    typer.Option(
        "--fail",
        metavar="TARGET[=KIND]",
        help="With --rehearse: make a resource fail; see `hyperpod rehearse deployment -h`.",
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
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Go on although the account lacks a quota, a type or part of a network.")
]
InstallCli = Annotated[bool, typer.Option("--install-cli", help="Install the Pulumi CLI if it is missing.")]


def deploy_command(
    stack: console.Stack,
    yes: console.Yes = False,
    rehearse: Rehearse = False,
    fail: Fail = None,
    config: Set = None,
    lose: Lose = None,
    anyway: Anyway = False,
    install_cli: InstallCli = False,
    as_json: console.Json = False,
) -> None:
    """Create a stack, or update it to its configuration.

    Shows the changes first and asks for confirmation. Before the first resource
    it asks the account for quotas, for the types in the zone and for what an
    existing VPC must have, and names all that is missing; --anyway goes on.
    The cluster and whatever holds data are not replaced or deleted unless
    --lose names them. If an earlier update failed, the state is refreshed from
    AWS first. Each resource is shown with its elapsed and its usual time. If
    something fails, you get the first cause, the nodes' own log and the next
    step to take. Ctrl-C stops cleanly; run the same command again to continue.
    At a terminal, without --yes, it offers to stop at the first lifecycle
    script that fails: its node is made again and again, and billed.
    A stack with a Grafana gets its dashboards at the end. `hyperpod watch STACK`
    follows the nodes that come later.

    \b
      hyperpod deploy dev --rehearse
      hyperpod deploy dev
      hyperpod deploy slurm-gpu --yes --json    in CI
      hyperpod deploy dev --rehearse --fail hyperpod-cluster=capacity
    """
    chosen = _load(stack, rehearse, fail, config)
    if not rehearse:
        governance.begin(chosen)
    with open_engine(chosen, rehearse, fail, create=True, install_cli=install_cli, anyway=anyway) as (engine, _):
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
        offer = not yes and not as_json and not rehearse and console.can_ask()
        report = deploy.run(chosen, engine, "up", total=number(planned), offer=offer)
        if report.succeeded and not rehearse:
            report.warnings += deployed.import_all(chosen)
            deployed.name_what_comes(chosen, report)
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
    with open_engine(chosen, rehearse, None, create=True, install_cli=install_cli, anyway=True) as (engine, _):
        if unsure := engine.unsure():
            console.note(
                f"The last update of {', '.join(unsure)} failed, so this preview may compare with values that AWS "
                "refused. `deploy` refreshes the state first.",
                "yellow",
            )
        planned = deploy.run(chosen, engine, "preview")
        if diff and not as_json:
            show_inputs(planned)
        finish(chosen, planned, as_json, rehearse=rehearse)


def destroy_command(
    stack: console.Stack,
    yes: console.Yes = False,
    remove_leftovers: Annotated[
        bool,
        typer.Option(
            "--remove-leftovers",
            help="Also delete what AWS created itself: log groups, orphaned network interfaces, GuardDuty's endpoint.",
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
    leftover is a failure, shown with the command that deletes it. Where
    GuardDuty's endpoint holds the stack's VPC, it asks whether to delete it,
    and then destroys the rest.

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
        asked = not yes and not as_json and not rehearse and console.can_ask()
        report = deploy.destroy(
            chosen,
            engine,
            remove_leftovers=remove_leftovers,
            ask=lambda question: asked and console.answered(question, threading.Event()),
        )
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
    chosen: Target,
    rehearse: bool,
    fail: Sequence[str] | None,
    *,
    create: bool,
    install_cli: bool,
    anyway: bool = False,
) -> Iterator[tuple[Engine, Account | None]]:
    if not rehearse:
        if chosen.on_eks:
            preflight.require_aws_cli()
            if create:
                preflight.bring_charts()
        if create:
            preflight.require_plans(chosen)
        engine: Engine = open_stack(chosen, create=create, install_cli=install_cli)
        if create:
            preconditions.require(chosen, anyway=anyway)
        yield engine, None
        return
    console.note(f"Rehearsing {chosen.stack}: {chosen.config.title} in {chosen.config.region.name} ...")
    try:
        with rehearsed(chosen, fail=fail or ()) as (engine, account):
            console.note(f"Rehearsing on {engine.title}.")
            yield engine, account
    except KeyboardInterrupt as interrupt:
        raise Failure("Cancelled.", _again(), Exit.CANCELLED) from interrupt


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
        show(report, rehearse=rehearse)
    raise typer.Exit(report.code)


def _again() -> str:
    """The command that was cancelled."""
    return f"{OPTIONS.line}    # AWS was not touched, and the embedded account is gone with all that was made in it"
