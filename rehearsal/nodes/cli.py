"""``python -m rehearsal nodes``: a stack's nodes as isolated hosts of this machine, booted, used, broken, removed."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from components.config import Config, ConfigError, parse
from stack.interrupts import Interrupted, interruptible
from stack.project import Project, ProjectError, load_project

from ..checks import Check, CheckFailed
from . import audit, requirements, slurm_packages
from .checks import AFTER, BOOT, Act
from .cluster import Cluster, Options
from .growth import reboot_others
from .outcome import Outcome, nodes_of
from .recovery import lose_a_worker, reboot_controller
from .report import write_report
from .sandbox import SandboxError
from .show import Progress, ending
from .stack import StackError, bring_up

PASSED, FAILED, CANNOT = 0, 1, 2
_ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str]) -> int:
    """Run the command line. 0: all good, 1: a failed check or leftovers, 2: it cannot run here."""
    options = _parser().parse_args(argv)
    errors = Console(stderr=True)
    if lacking := requirements.missing(options.slurm):
        if options.if_possible:
            errors.print("The nodes were not rehearsed: `python -m rehearsal nodes` says what this machine lacks.")
            return PASSED
        errors.print("The node rehearsal needs what this machine lacks:", style="red")
        errors.print("\n".join(lacking), markup=False, highlight=False, soft_wrap=True)
        return CANNOT
    try:
        project = load_project(_ROOT, options.stack, options.config)
        config = parse(project.config)
    except (ProjectError, ConfigError) as refused:
        errors.print(str(refused), style="red", markup=False, highlight=False, soft_wrap=True)
        return CANNOT
    if options.if_possible and config.settings.orchestrator != "slurm":
        return PASSED
    outcome = Outcome(stack=options.stack)
    console, began = Console(), time.monotonic()
    with interruptible():
        asked = Options(workers=options.workers, slurm=options.slurm)
        run(project, config, outcome, console, asked, keep=options.keep)
    console.print(ending(outcome, began))
    if options.json:
        options.json.write_text(json.dumps(outcome.as_json(), indent=2) + "\n")
    if options.report:
        write_report(outcome.as_json(), options.report)
        console.print(f"Report: {options.report}")
    return PASSED if outcome.passed else FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rehearsal nodes",
        description="Bring a Slurm stack up in the embedded AWS account, start every node of it as an isolated host "
        "of this machine, run the stack's lifecycle scripts on them as HyperPod does, and use the cluster: jobs, ssh, "
        "MPI, training, the loss of a worker, a reboot of the controller. Needs root and Debian packages.",
        epilog="Exit code: 0 every check passed and nothing is left, 1 otherwise, 2 the machine or the configuration "
        "does not allow a run.",
    )
    parser.add_argument("--stack", default="dev", help="which Pulumi.<stack>.yaml (default: dev)")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="set a key; repeatable")
    parser.add_argument("--workers", type=int, metavar="N", help="workers to start of each group (default: its count)")
    parser.add_argument(
        "--slurm",
        choices=sorted(slurm_packages.RELEASES),
        default=slurm_packages.DEFAULT,
        help="which release of Slurm (default: %(default)s, HyperPod's; the other one is what comes next)",
    )
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a page to look at")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result for machines")
    parser.add_argument(
        "--if-possible",
        action="store_true",
        help="where the machine lacks something, or the stack runs EKS, say so and exit 0",
    )
    parser.add_argument("--keep", action="store_true", help="leave the nodes up until Enter or Ctrl-C")
    return parser


def run(
    project: Project, config: Config, outcome: Outcome, console: Console, asked: Options, *, keep: bool = False
) -> None:
    """The whole rehearsal; what it finds goes into ``outcome``, an interruption and leftovers included."""
    # The account takes a second to load, and is not needed to say what a machine lacks.
    from ..account import Account

    before, progress = audit.look(), Progress(console)
    made = audit.Namespaces()
    run_id = ""
    try:
        with Account(config.region.name) as account:
            console.print(f"[bold]Rehearsing the nodes[/] of {project.stack}: {config.variant} in {config.region.name}")
            stack = bring_up(project, config, account)
            with Cluster(stack, asked) as cluster:
                run_id = cluster.sandbox.run_id
                made.note([cluster.sandbox.pid])
                _rehearse(cluster, outcome, progress, made)
                if keep:
                    _keep(cluster, console)
    except (StackError, SandboxError) as error:
        outcome.failure = str(error)
    except Interrupted as signalled:
        outcome.failure = f"ended by {signalled}"
    finally:
        progress.close()
        with made:
            outcome.leftovers = audit.leftovers(before, run_id, made) if run_id else []


def _rehearse(cluster: Cluster, outcome: Outcome, progress: Progress, made: audit.Namespaces) -> None:
    cluster.start_hosts()
    made.note([host.pid for host in cluster.hosts])
    cluster.boot(progress.booting)
    outcome.nodes = nodes_of(cluster)
    perform = _performer(cluster, outcome, progress)
    booted = [perform(name, act) for name, act in BOOT]
    outcome.all_idle_seconds = cluster.idle_seconds
    progress.booted(outcome.nodes, outcome.all_idle_seconds)
    if not all(booted):
        return
    for name, act in AFTER:
        perform(name, act)

    def lose(cluster: Cluster) -> str:
        outcome.recovery = lose_a_worker(cluster)
        return f"back after {outcome.recovery.resumed_after_seconds:.1f} s, {outcome.recovery.steps_lost} steps lost"

    perform("loss of a worker", lose)
    made.note([host.pid for host in cluster.hosts])
    perform("reboot of the controller", reboot_controller)
    perform("reboot of the others", reboot_others)
    made.note([host.pid for host in cluster.hosts])


def _performer(cluster: Cluster, outcome: Outcome, progress: Progress) -> Callable[[str, Act], bool]:
    def perform(name: str, act: Act) -> bool:
        began = time.monotonic()
        try:
            passed, detail = True, act(cluster)
        except CheckFailed as failed:
            passed, detail = False, str(failed)
        check = Check(name, passed, detail, round(time.monotonic() - began, 3))
        outcome.checks.append(check)
        progress.check(check)
        return passed

    return perform


def _keep(cluster: Cluster, console: Console) -> None:
    console.print("\nThe nodes stay up; a shell on one, as root:")
    for host in cluster.hosts:
        line = f"  nsenter -t {host.pid} -m -u -i -n -p --wdns=/root env -i TERM=$TERM bash -l"
        console.print(f"{line}   # {host.name}", markup=False, highlight=False, soft_wrap=True)
    console.print("Enter or Ctrl-C ends them.")
    try:
        while sys.stdin.readline() == "":
            # Nobody is there to press Enter.
            signal.pause()
    except Interrupted:
        console.print("Ending.")
