"""``python -m rehearsal``: bring a stack up and down in an embedded AWS account, and say what it would be like."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

try:
    from rich.console import Console

    from components.config import Config, ConfigError, parse
    from stack.interrupts import Interrupted, interruptible
    from stack.project import Project, ProjectError, load_project
except ModuleNotFoundError as missing:
    sys.stderr.write(
        f"{missing.name} is missing in {sys.executable}: `. venv/bin/activate` (`make rehearse` makes it)\n"
    )
    sys.exit(2)

if TYPE_CHECKING:
    from .account import Account
    from .changes import Step
    from .outcome import Outcome

PASSED, FAILED, BAD_CONFIG = 0, 1, 2
_ROOT = Path(__file__).parent.parent


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0 for all good, 1 for a failure or leftovers, 2 for bad input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["nodes"]:
        from .nodes import main as nodes_main

        return nodes_main(arguments[1:])
    if arguments[:1] == ["eks"]:
        from .kubernetes.cli import main as eks_main

        return eks_main(arguments[1:])
    options = _parser().parse_args(arguments)
    errors = Console(stderr=True)
    try:
        project = load_project(_ROOT, options.stack, options.config)
        config = parse(project.config)
        steps = _steps(options)
        _check_together(options)
    except (ProjectError, ConfigError) as refused:
        _complain(errors, str(refused))
        return BAD_CONFIG
    try:
        with interruptible():
            return _rehearse(project, config, steps, options, errors)
    except Interrupted as signalled:
        if options.serve:
            Console().print("\nEnded. The embedded account, and all that was made in it, is gone.")
            return PASSED
        _complain(errors, f"ended by {signalled}: the embedded account, and all that was made in it, is gone")
        return FAILED


def _steps(options: argparse.Namespace) -> list[Step]:
    if not options.then:
        return []
    from .changes import parse_steps

    return parse_steps(_ROOT, options.stack, options.config, options.then)


def _check_together(options: argparse.Namespace) -> None:
    """Raise ProjectError for options that exclude each other."""
    if options.then and options.serve:
        raise ProjectError(
            "--then and --serve exclude each other: with --serve, change the configuration and `pulumi up`"
        )
    if options.then and options.engine == "pulumi":
        raise ProjectError(
            "--then is for the embedded engine, which knows AWS's times; for changes on the Pulumi engine use --serve"
        )


def _complain(errors: Console, message: str) -> None:
    errors.print(message, style="red", markup=False, highlight=False, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rehearsal",
        description="Run the Pulumi program, unchanged, against an AWS account embedded in this process: every "
        "resource is created, timed and priced, then destroyed, and the account is searched for leftovers. "
        "Nothing reaches AWS.",
        epilog="Exit code: 0 all good, 1 the deployment, a change or destroy failed or left something, 2 bad "
        "configuration, or a change that is refused before anything happens. "
        "`python -m rehearsal nodes --help` is about the nodes.",
    )
    parser.add_argument("--stack", default="dev", help="which Pulumi.<stack>.yaml (default: dev)")
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key as `pulumi config set` does, for this run only; lists and objects as JSON. Repeatable",
    )
    parser.add_argument(
        "--then",
        action="append",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="change the deployed stack: one further update with these keys set, on the stack as it then is; says what "
        "is created, updated, replaced and deleted, and what is refused. Repeatable, one update each",
    )
    parser.add_argument("--engine", choices=("embedded", "pulumi"), default="embedded", help="what runs the program")
    parser.add_argument(
        "--fail",
        action="append",
        default=[],
        metavar="TARGET[=KIND]",
        help="make a resource fail: TARGET is a type, a resource's name, or #N for the Nth create; KIND is error "
        "(default), throttling, capacity or lifecycle. Repeatable",
    )
    parser.add_argument(
        "--quota",
        action="append",
        default=[],
        metavar="NAME=N",
        help="set a quota of the account: an instance type, or vpcs, elastic-ips, nat-gateways, ... Repeatable",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="keep the embedded account alive for plain `pulumi` commands, until Ctrl-C; says what to source",
    )
    parser.add_argument("--keep-up", action="store_true", help="stop after the deployment: no destroy, no audit")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a page to look at")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result for machines")
    return parser


def _rehearse(
    project: Project, config: Config, steps: Sequence[Step], options: argparse.Namespace, errors: Console
) -> int:
    # Only now, when the configuration is good: the account takes a second to load.
    from .account import Account
    from .account.faults import parse_fault
    from .engines.program import ProgramError
    from .existing import prepare
    from .outcome import rehearse
    from .reports.terminal import Progress, summary

    try:
        faults = [parse_fault(text) for text in options.fail]
        quotas = {name: int(number) for name, _, number in (text.partition("=") for text in options.quota)}
    except ValueError as error:
        _complain(errors, f"--fail or --quota: {error}")
        return BAD_CONFIG
    console = Console()
    with Account(config.region.name, faults=faults, quotas=quotas) as account:
        if options.serve:
            from .engines.serving import keep_serving

            prepare(account, config)
            return keep_serving(project, account, console)
        if options.engine == "pulumi":
            prepare(account, config, *(step.config for step in steps))
            return _on_real_engine(project, account, console, errors)
        try:
            with Progress(console) as progress:
                outcome = rehearse(
                    project,
                    config,
                    account,
                    then=steps,
                    keep_up=options.keep_up,
                    on_event=progress.event,
                    on_act=progress.begin,
                )
        except ProgramError as refused:
            _complain(errors, str(refused))
            return BAD_CONFIG
    # Lines are folded for a terminal only: files and pipes keep them whole.
    console.print(summary(outcome), soft_wrap=not console.is_terminal)
    found = outcome.as_json()
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if options.report:
        from .reports.html import write_report

        write_report(found, options.report)
        console.print(f"Report: {options.report}")
    return _exit_code(outcome)


def _exit_code(outcome: Outcome) -> int:
    if outcome.failures or outcome.leftovers:
        return FAILED
    if outcome.refused:
        return BAD_CONFIG if outcome.refused.early else FAILED
    return PASSED


def _on_real_engine(project: Project, account: Account, console: Console, errors: Console) -> int:
    """The same stack through the Pulumi CLI, its state in a temporary folder, its providers the account's."""
    from .engines.real import rehearse_on_real_engine

    run = rehearse_on_real_engine(project, account, lambda line: console.out(line, highlight=False))
    for problem in filter(None, [run.failure, *(f"left over: {leftover}" for leftover in run.leftovers)]):
        _complain(errors, problem)
    if run.failure or run.leftovers:
        return FAILED
    console.print("Up, unchanged, refreshed and destroyed on the Pulumi engine; nothing is left.", style="bold green")
    return PASSED


if __name__ == "__main__":
    sys.exit(main())
