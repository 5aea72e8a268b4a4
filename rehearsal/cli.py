"""The command line: ``python -m rehearsal``, and its commands ``nodes``, ``eks`` and ``drill``.

Each command checks its input before it imports what it runs: the account takes a second, Kubernetes two.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from components.config import Config, parse
from stack.command_line import complain, new_app
from stack.command_line import run as run_words
from stack.failures import Exit, Failure, bad_input, explain
from stack.interrupts import Interrupted, interruptible
from stack.project import Project, ProjectError, load_project

from .files import check_folders, console_beside, write
from .nodes.slurm_packages import DEFAULT as DEFAULT_SLURM
from .nodes.slurm_packages import ReleaseName

if TYPE_CHECKING:
    from .account import Account
    from .changes import Step
    from .checks import Findings
    from .outcome import Outcome

_ROOT = Path(__file__).parent.parent
_CANNOT_RUN = (
    "Exit code: 0 every check passed and nothing is left, 1 otherwise, "
    "2 the machine or the configuration does not allow a run."
)

Stack = Annotated[str, typer.Option(metavar="STACK", help="Which Pulumi.STACK.yaml.")]
Engine = Literal["embedded", "pulumi"]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="KEY=VALUE",
        help="Set a key as `pulumi config set` does, for this run only; lists and objects as JSON. Repeatable.",
    ),
]
Report = Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write an HTML report.", dir_okay=False)]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - is standard output.", dir_okay=False),
]

app = new_app(
    "Exit code: 0 all good, 1 the deployment, a change or destroy failed or left something, "
    "2 invalid input, or a change that is refused before anything happens, 3 the Pulumi CLI is missing."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code; bad input is one message, never a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return run_words(app, _folded(words), "python -m rehearsal")
    except Exception as error:
        failure = explain(error)
        if failure is None:
            raise
        complain(failure)
        return failure.code


def _folded(words: Iterable[str]) -> list[str]:
    """Turn ``--then A B`` into ``--then "A\\0B"``: a Typer option takes a fixed number of words."""
    folded: list[str] = []
    changing = False
    for word in words:
        if changing and not word.startswith("-") and folded[-1] != "--then":
            folded[-1] += f"\0{word}"
        else:
            changing = word == "--then" or (changing and folded[-1] == "--then")
            folded.append(word)
    return folded


@app.callback(invoke_without_command=True)
def _account(
    context: typer.Context,
    stack: Stack = "dev",
    config: Set = None,
    then: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE...",
            help="Change the deployed stack: one further update with these keys set, on the stack as it then is. Says "
            "what is created, updated, replaced and deleted, and what is refused. Repeatable, one update each.",
        ),
    ] = None,
    engine: Annotated[Engine, typer.Option(help="What runs the program.")] = "embedded",
    fail: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TARGET[=KIND]",
            help="Make a resource fail: TARGET is a type, a resource's name, or #N for the Nth create; KIND is error "
            "(default) or throttling, which create nothing, or capacity, lifecycle or unavailable, which leave a "
            "failed resource behind. Repeatable.",
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
            help="Keep the embedded account alive for plain `pulumi` commands, until Ctrl-C; says what to source.",
        ),
    ] = False,
    keep_up: Annotated[
        bool, typer.Option("--keep-up", help="Stop after the deployment: no destroy, no search for leftovers.")
    ] = False,
    report: Report = None,
    result: Json = None,
) -> None:
    """Rehearse a stack in an AWS account that is embedded in this process. Nothing reaches AWS.

    The Pulumi program runs unchanged: every resource is created, timed and
    priced, then destroyed, and the account is searched for leftovers.
    """
    if context.invoked_subcommand:
        if context.obj[0] != context.invoked_subcommand:
            raise bad_input(
                f"put the options of {context.invoked_subcommand} after the word {context.invoked_subcommand}"
            )
        return
    project, chosen = _load(stack, config)
    steps = _steps(stack, config, then)
    check_folders(report, result)
    if serve and (keep_up or report or result):
        raise bad_input("--serve ends with Ctrl-C and has no result: leave out --keep-up, --report and --json")
    if engine == "pulumi" and (keep_up or report):
        raise bad_input(
            "--keep-up and --report are for the embedded engine, which knows AWS's times",
            "--serve keeps the account for `pulumi` commands, --json has the result",
        )
    if then and serve:
        raise ProjectError(
            "--then and --serve exclude each other: with --serve, change the configuration and `pulumi up`"
        )
    if then and engine == "pulumi":
        raise ProjectError(
            "--then is for the embedded engine, which knows AWS's times; for changes on the Pulumi engine use --serve"
        )
    # Imported only once the configuration is valid.
    from .account import Account
    from .engines.program import ProgramError
    from .existing import prepare
    from .injected import injected
    from .outcome import rehearse
    from .reports.html import write_report
    from .reports.terminal import Progress, summary

    console = console_beside(result)
    planned = [(project, chosen), *((step.project, step.config) for step in steps)]
    with _ended_early(serve), interruptible():
        faults, quotas = injected(fail or (), quota or (), *planned)
    with _ended_early(serve), interruptible(), Account(chosen.region.name, faults=faults, quotas=quotas) as account:
        if serve:
            from .engines.serving import keep_serving

            prepare(account, chosen)
            keep_serving(project, account, console)
        if engine == "pulumi":
            prepare(account, chosen)
            _on_real_engine(project, account, console, result)
            return
        try:
            with Progress(console) as progress:
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
    # Wrap lines only in a terminal, not in files and pipes.
    console.print(summary(outcome), soft_wrap=not console.is_terminal)
    found = outcome.as_json()
    write(found, result)
    if report:
        write_report(found, report)
        console.print(f"Report: {report}", soft_wrap=True)
    raise typer.Exit(_exit_code(outcome))


@contextmanager
def _ended_early(serve: bool) -> Iterator[None]:
    """Report a signal that ends the run: as a failure, except while serving, which normally ends that way."""
    gone = "the embedded account, and all that was made in it, is gone"
    try:
        yield
    except Interrupted as signalled:
        if not serve:
            raise Failure(f"ended by {signalled}: {gone}") from None
        Console().print(f"\nEnded: {gone}.")
        raise typer.Exit from None


@app.command("nodes", epilog=_CANNOT_RUN)
def _nodes(
    stack: Stack = "dev",
    config: Set = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Workers to start in each group (default: its count).")
    ] = None,
    slurm: Annotated[
        ReleaseName, typer.Option(help="Which release of Slurm: HyperPod's, or the next one.")
    ] = DEFAULT_SLURM,
    report: Report = None,
    result: Json = None,
    if_possible: Annotated[
        bool,
        typer.Option(
            "--if-possible", help="Where the machine lacks something, or the stack runs EKS, say so and exit 0."
        ),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the nodes running until Enter or Ctrl-C.")] = False,
) -> None:
    """Boot a Slurm stack's nodes on this machine, and use them.

    The stack comes up in the embedded AWS account, every node of it as an
    isolated host, and the stack's lifecycle scripts run on them as HyperPod
    runs them. Then come jobs, ssh, MPI, training, the loss of a worker and
    reboots. Needs root and Debian packages.
    """
    from .nodes import requirements

    check_folders(report, result)
    console = console_beside(result)
    if lacking := requirements.missing(slurm):
        if if_possible:
            _note("The nodes were not rehearsed: `python -m rehearsal nodes` says what this machine lacks.")
            return
        raise bad_input("\n".join(["This machine lacks what the node rehearsal needs:", *lacking]))
    project, chosen = _load(stack, config)
    if if_possible and chosen.settings.orchestrator != "slurm":
        return
    from .nodes.cluster import Options
    from .nodes.outcome import Outcome
    from .nodes.rehearse import run
    from .nodes.report import write_report
    from .nodes.show import ending

    outcome, began = Outcome(stack=stack), time.monotonic()
    with interruptible():
        run(project, chosen, outcome, console, Options(workers=workers, slurm=slurm), keep=keep)
    console.print(ending(outcome, time.monotonic() - began), soft_wrap=not console.is_terminal)
    write(outcome.as_json(), result)
    if report:
        write_report(outcome.as_json(), report)
        console.print(f"Report: {report}", soft_wrap=True)
    _end(outcome)


@app.command("eks", epilog=_CANNOT_RUN)
def _eks(
    context: typer.Context,
    stack: Stack = "eks-gpu",
    config: Set = None,
    engine: Annotated[
        Engine, typer.Option(help="pulumi: the real CLI with the real pulumi-eks and pulumi-kubernetes plugins.")
    ] = "embedded",
    cycles: Annotated[int, typer.Option(min=1, metavar="N", help="Times up and down.")] = 2,
    result: Json = None,
    if_possible: Annotated[
        bool,
        typer.Option(
            "--if-possible",
            help="Where programs are missing or the stack runs Slurm, say so and exit 0; nothing is built.",
        ),
    ] = False,
) -> None:
    """Apply an EKS stack's objects to a real Kubernetes API.

    The stack comes up in the embedded AWS account, its objects through real
    Helm and server-side apply, with nodes as the catalogue describes them.
    Jobs are submitted, placed, queued and refused; one trains. Everything is
    removed again.
    """
    project, chosen = _load(stack, config)
    if chosen.settings.orchestrator != "eks":
        if if_possible:
            return
        raise bad_input(f"stack {stack} runs Slurm; `python -m rehearsal nodes` rehearses it")
    from .kubernetes import binaries, network
    from .kubernetes.control_plane import ControlPlane
    from .kubernetes.nodes import names_of
    from .kubernetes.outcome import Outcome
    from .kubernetes.rehearse import lacking, run
    from .kubernetes.show import ending

    check_folders(None, result)
    console = console_beside(result)
    unbuilt = binaries.missing() if if_possible else []
    why = f"not built yet: {', '.join(unbuilt)} (make kubernetes-tools)" if unbuilt else lacking(engine)
    if why and if_possible:
        _note(f"Kubernetes was not rehearsed: {why} (`python -m rehearsal eks` says more).")
        return
    if why:
        raise bad_input(why)
    try:
        # Building the programs needs the network; the run itself does not.
        found = binaries.find_all(console)
    except binaries.Missing as programs:
        raise bad_input(str(programs)) from None
    if not network.isolated():
        network.isolate([sys.executable, "-m", "rehearsal", *context.obj])
    network.set_up()
    outcome, began = Outcome(stack=stack), time.monotonic()
    with interruptible():
        plane = ControlPlane(found, names_of(chosen))
        run(project, chosen, outcome, console, plane, cycles=cycles, engine=engine)
    console.print(ending(outcome, time.monotonic() - began), soft_wrap=not console.is_terminal)
    write(outcome.as_json(), result)
    _end(outcome)


@app.command("drill", epilog="Exit code: 0 every drill that this machine can hold passed, 1 otherwise, 2 bad input.")
def _drill(
    stack: Stack = "dev",
    config: Set = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Hold this drill alone. Repeatable.")] = None,
    result: Json = None,
) -> None:
    """Break a stack on purpose, one fault at a time, and recover it.

    A drill passes if its user is told the cause and nothing is lost or left
    behind: in the embedded AWS account, and on a Slurm stack's nodes.
    """
    from .drills.show import hold

    with interruptible():
        outcome = hold(*_load(stack, config), only or (), console_beside(result))
    write(outcome.as_json(), result)
    raise typer.Exit(Exit.GOOD if outcome.passed else Exit.FAILED)


def _load(stack: str, config: Sequence[str] | None) -> tuple[Project, Config]:
    """Load the stack with this run's keys set. Raises ProjectError and ConfigError."""
    project = load_project(_ROOT, stack, config or ())
    return project, parse(project.config)


def _steps(stack: str, config: Sequence[str] | None, then: Sequence[str] | None) -> list[Step]:
    if not then:
        return []
    from .changes import parse_steps

    return parse_steps(_ROOT, stack, config or (), [step.split("\0") for step in then])


def _exit_code(outcome: Outcome) -> Exit:
    if outcome.failures or outcome.leftovers:
        return Exit.FAILED
    if outcome.refused:
        return Exit.BAD_INPUT if outcome.refused.early else Exit.FAILED
    return Exit.GOOD


def _on_real_engine(project: Project, account: Account, console: Console, result: Path | None) -> None:
    """Run the same stack with the Pulumi CLI, with its state in a temporary folder and the account as its providers."""
    from .engines.real import rehearse_on_real_engine

    run = rehearse_on_real_engine(project, account, lambda line: console.out(line, highlight=False))
    for warning in run.warnings:
        console.print(f"Warning: {warning}", style="yellow", markup=False, soft_wrap=True)
    write(run.as_json() | {"stack": project.stack}, result)
    if run.problems:
        raise Failure("\n".join(run.problems))
    console.print("Up, unchanged, refreshed and destroyed on the Pulumi engine; nothing is left.", style="bold green")


def _note(line: str) -> None:
    Console(stderr=True).print(line, soft_wrap=True)


def _end(outcome: Findings) -> None:
    if not outcome.passed:
        raise typer.Exit(Exit.FAILED)
