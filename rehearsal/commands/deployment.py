"""The command ``deployment``: a stack in an account that is embedded in this process."""

from __future__ import annotations

import re
import subprocess
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from components.config import Config
from operations.failures import Exit, Failure, bad_input
from operations.project.loading import Project
from operations.project.stack_file import ProjectError
from operations.terminal.command_line import wrapped
from operations.terminal.interrupts import Interrupted, interruptible
from operations.terminal.output_options import OPTIONS

from ..files import STANDARD_OUTPUT, check_files, console_beside, progress_beside, write
from . import ROOT, Engine, Json, Report, Set, Stack, Write, announce, load, note, result_file

if TYPE_CHECKING:
    from ..account import Account
    from ..changes import Step
    from ..outcome import Outcome

EPILOG = (
    "Exit code: 0 all good, 1 the deployment, a change or destroy failed or left something, "
    "2 invalid input, or a change that is refused before anything happens, 3 a program is missing, 130 Ctrl-C."
)
# Between two keys of one update; JSON has spaces too.
_PAIRS = re.compile(r"\s+(?=[\w:.\[\]-]+=)")


def deployment_command(
    stack: Stack = "dev",
    config: Set = None,
    then: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Change the deployed stack: one further update with this key set, on the stack as it then is. Says "
            "what is created, updated, replaced and deleted, and what is refused. Repeatable, one update each; "
            "for one update of two keys: 'KEY=VALUE KEY=VALUE'.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="Change the deployed stack to what Pulumi.OTHER.yaml says, as a pull request would; says the same.",
        ),
    ] = None,
    engine: Annotated[Engine, typer.Option(help="What runs the program.")] = "embedded",
    fail: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TARGET[=KIND]",
            help="Make a resource fail: TARGET is a type, a resource's name, or #N for the Nth create; KIND is error "
            "(default) or throttling, which create nothing, or controller-capacity, lifecycle or unavailable, which "
            "leave a failed resource behind, or capacity: the cluster comes without its accelerators. Repeatable.",
        ),
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="Set a quota of the account: an instance type, or vpcs, elastic-ips, nat-gateways, ... Repeatable.",
        ),
    ] = None,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Keep the embedded account alive for `pulumi` and the verbs, until Ctrl-C; says what to source.",
        ),
    ] = False,
    keep_up: Annotated[
        bool, typer.Option("--keep-up", help="Stop after the deployment: no destroy, no search for leftovers.")
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Then also its nodes or its Kubernetes objects, where this machine can run them."),
    ] = False,
    report: Report = None,
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser, when it is written.")] = False,
    as_json: Json = False,
    result: Write = None,
) -> None:
    """Rehearse a stack's deployment in an embedded AWS account.

    Nothing reaches AWS. The Pulumi program runs unchanged: every resource is
    created, timed and priced, then destroyed, and the account is searched for
    leftovers.

    \b
      hyperpod rehearse dev
      hyperpod rehearse dev --fail hyperpod-cluster=capacity
      hyperpod rehearse slurm-gpu --then hyperpod:size=large --report out.html
    """
    result = result_file(as_json, result)
    project, chosen = load(stack, config)
    if to and (then or config):
        raise bad_input("--to takes the other file as it is: leave out --then and --config")
    if show and not report:
        raise bad_input("--open has no report to open", "add --report report.html")
    steps = _steps(stack, config, then, to)
    check_files(report, result)
    if serve and (keep_up or report or result):
        raise bad_input("--serve ends with Ctrl-C and has no result: leave out --keep-up, --report, --write and --json")
    if engine == "pulumi" and (keep_up or report):
        raise bad_input(
            "--keep-up and --report are for the embedded engine, which knows AWS's times",
            "--serve keeps the account for `pulumi` and the verbs, --json has the result",
        )
    if steps and serve:
        raise ProjectError("--then and --to exclude --serve: with --serve, change the configuration and `pulumi up`")
    if steps and engine == "pulumi":
        raise ProjectError(
            "--then and --to are for the embedded engine, which knows AWS's times; for changes on the Pulumi engine "
            "use --serve"
        )
    console, meanwhile = console_beside(result), progress_beside(result)
    announce(meanwhile, "", stack, chosen, ", in an embedded AWS account")
    # Imported only once the configuration is valid.
    from ..account import Account
    from ..engines.program import ProgramError
    from ..existing import prepare
    from ..injected import injected
    from ..outcome import rehearse
    from ..reports.html import write_report
    from ..reports.terminal import Progress, summary
    from ..reports.verdict import verdict

    planned = [(project, chosen), *((step.project, step.config) for step in steps)]
    with _ended_early(serve), interruptible():
        faults, quotas = injected(fail or (), quota or (), *planned)
    with _ended_early(serve), interruptible(), Account(chosen.region.name, faults=faults, quotas=quotas) as account:
        if serve:
            from ..served.serving import keep_serving

            prepare(account, chosen)
            keep_serving(project, chosen, account, console)
        if engine == "pulumi":
            prepare(account, chosen)
            _on_real_engine(project, account, console, meanwhile, result)
            if everything:
                raise typer.Exit(the_rest(stack, chosen, config, result))
            return
        try:
            with Progress(meanwhile) as progress:
                outcome = rehearse(
                    project,
                    chosen,
                    account,
                    then=steps,
                    keep_up=keep_up,
                    on_event=progress.event,
                    on_act=progress.begin,
                )
        except ProgramError as refused:
            raise bad_input(str(refused)) from None
    # Wrap lines only in a terminal, not in files and pipes; and cut none.
    console.print(summary(outcome), soft_wrap=not console.is_terminal, crop=False)
    found = outcome.as_json()
    write(found, result)
    if report:
        write_report(found, report)
        console.print(f"Report: {report}", soft_wrap=True)
        if show and not webbrowser.open(report.resolve().as_uri()):
            note(f"There is no browser here: open {report} where there is one.")
    code: int = _exit_code(outcome)
    if everything and code == Exit.GOOD:
        code = the_rest(stack, chosen, config, result)
    if code == Exit.GOOD:
        said, following = verdict(outcome)
        for line in ("", *wrapped(said, console)):
            console.print(line, style="bold green", highlight=False, soft_wrap=True)
        console.print(f"Next: {following}", highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def the_rest(stack: str, chosen: Config, config: Sequence[str] | None, result: Path | None) -> int:
    """Rehearse the stack's nodes or Kubernetes objects, in a process of their own. Returns its exit code."""
    which = "nodes" if chosen.settings.orchestrator == "slurm" else "eks"
    keys = [word for key in config or () for word in ("--config", key)]
    quiet = ["-q"] if OPTIONS.quiet else []
    command = [sys.executable, str(ROOT / "hyperpod.py"), "rehearse"]
    words = [*command, which, stack, "--if-possible", *keys, *quiet]
    console_beside(result).print()
    return subprocess.run(
        words, cwd=ROOT, stdout=sys.stderr if result == STANDARD_OUTPUT else None, check=False
    ).returncode


@contextmanager
def _ended_early(serve: bool) -> Iterator[None]:
    """Report a signal that ends the run: as a failure, except while serving, which normally ends that way."""
    gone = "the embedded account, and all that was made in it, is gone"
    try:
        yield
    except Interrupted as signalled:
        if not serve:
            raise Failure(f"ended by {signalled}: {gone}", "run the same command again", Exit.CANCELLED) from None
        Console().print(f"\nEnded: {gone}.")
        raise typer.Exit from None


def _steps(stack: str, config: Sequence[str] | None, then: Sequence[str] | None, other: str | None) -> list[Step]:
    if not (then or other):
        return []
    from ..changes import parse_steps, step_to

    if other:
        return [step_to(ROOT, stack, other)]
    return parse_steps(ROOT, stack, config or (), [_PAIRS.split(step.strip()) for step in then or ()])


def _exit_code(outcome: Outcome) -> Exit:
    if outcome.failures or outcome.leftovers:
        return Exit.FAILED
    if outcome.refused:
        return Exit.BAD_INPUT if outcome.refused.early else Exit.FAILED
    return Exit.GOOD


def _on_real_engine(
    project: Project, account: Account, console: Console, meanwhile: Console, result: Path | None
) -> None:
    """Run the same stack with the Pulumi CLI, with its state in a temporary folder and the account as its providers."""
    from ..engines.real import rehearse_on_real_engine

    run = rehearse_on_real_engine(project, account, lambda line: meanwhile.out(line, highlight=False))
    for warning in run.warnings:
        console.print(f"Warning: {warning}", style="yellow", markup=False, soft_wrap=True)
    write(run.as_json() | {"stack": project.stack}, result)
    if run.problems:
        raise Failure("\n".join(run.problems))
    console.print("Up, unchanged, refreshed and destroyed on the Pulumi engine; nothing is left.", style="bold green")
