"""``python -m rehearsal eks``: a stack's Kubernetes objects, jobs and nodes on a real API server of this machine."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from components.config import Config, ConfigError, parse
from stack.interrupts import Interrupted, interruptible
from stack.jobs.render import jobs_of
from stack.project import Project, ProjectError, load_project

from ..checks import Check, CheckFailed
from . import access, growth, network, placement, workloads
from .binaries import Missing, find_all, missing
from .charts import Charts
from .container import available
from .control_plane import ControlPlane, ControlPlaneError
from .declared import Declared, StackFailed, declare
from .deploy import Deployer, DeployFailed
from .kubectl import Refused, until
from .outcome import Outcome
from .run import Run, Stack, describe, played
from .show import Progress, ending
from .training import lacking as training_lacks
from .training import trains_across_nodes

PASSED, FAILED, CANNOT = 0, 1, 2
_ROOT = Path(__file__).parents[2]
_SETTLE_SECONDS = 30.0
Act = Callable[[Run], str]
EMBEDDED, PULUMI = "embedded", "pulumi"


def main(argv: Sequence[str]) -> int:
    """Run the command line. 0: all good, 1: a failed check or leftovers, 2: it cannot run here."""
    options = _parser().parse_args(argv)
    errors, console = Console(stderr=True), Console()
    try:
        project = load_project(_ROOT, options.stack, options.config)
        config = parse(project.config)
    except (ProjectError, ConfigError) as refused:
        return _cannot(errors, str(refused))
    if config.settings.orchestrator != "eks":
        if options.if_possible:
            return PASSED
        return _cannot(errors, f"stack {options.stack} runs Slurm; `python -m rehearsal nodes` rehearses it")
    if options.if_possible and (lacking := _lacking()):
        errors.print(f"Kubernetes was not rehearsed: {lacking} (`python -m rehearsal eks` says more).")
        return PASSED
    if options.engine == PULUMI:
        from .pulumi_engine import lacking as engine_lacks

        if why := engine_lacks():
            return _cannot(errors, why)
    if not available():
        return _cannot(
            errors, "this machine lets you make no namespaces (`unshare --mount --net`), which the operators need"
        )
    try:
        # Building them needs the network that the run itself does without.
        binaries = find_all(console)
    except Missing as missing_programs:
        return _cannot(errors, str(missing_programs))
    if not network.isolated():
        network.isolate([sys.executable, "-m", "rehearsal", "eks", *argv])
    network.set_up()
    outcome, began = Outcome(stack=options.stack), time.monotonic()
    with interruptible():
        run(project, config, outcome, console, ControlPlane(binaries), cycles=options.cycles, engine=options.engine)
    console.print(ending(outcome, time.monotonic() - began))
    if options.json:
        options.json.write_text(json.dumps(outcome.as_json(), indent=2) + "\n")
    return PASSED if outcome.passed else FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rehearsal eks",
        description="Bring an EKS stack up in the embedded AWS account, then apply its Kubernetes objects to a real "
        "API server on this machine, through real Helm and server-side apply, with nodes as the catalogue describes "
        "them. Jobs are submitted, placed, queued and refused; one trains. Everything is removed again.",
        epilog="Exit code: 0 every check passed and nothing is left, 1 otherwise, 2 the machine or the configuration "
        "does not allow a run.",
    )
    parser.add_argument("--stack", default="eks-gpu", help="which Pulumi.<stack>.yaml (default: eks-gpu)")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="set a key; repeatable")
    parser.add_argument(
        "--engine",
        choices=(EMBEDDED, PULUMI),
        default=EMBEDDED,
        help="pulumi: the real CLI with the real pulumi-eks and pulumi-kubernetes plugins, which must be installed",
    )
    parser.add_argument("--cycles", type=_count, default=2, metavar="N", help="times up and down (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result for machines")
    parser.add_argument(
        "--if-possible",
        action="store_true",
        help="where programs are missing or the stack runs Slurm, say so and exit 0; nothing is built",
    )
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of times; 1 or more')
    return int(text)


def _lacking() -> str:
    """What keeps this machine from a run, empty if nothing does."""
    if names := missing():
        return f"not built yet: {', '.join(names)} (make kubernetes-tools)"
    return "" if available() else "no namespaces of mounts and networks"


def _cannot(errors: Console, why: str) -> int:
    errors.print(why, style="red", markup=False, highlight=False, soft_wrap=True)
    return CANNOT


def run(
    project: Project,
    config: Config,
    outcome: Outcome,
    console: Console,
    plane: ControlPlane,
    *,
    cycles: int,
    engine: str = EMBEDDED,
) -> None:
    """The whole rehearsal; what it finds goes into ``outcome``, an interruption and leftovers included."""
    progress = Progress(console)
    try:
        console.print(f"[bold]Rehearsing Kubernetes[/] of {project.stack}: {config.variant} in {config.region.name}")
        progress.say("the program, in the embedded account")
        objects = declare(project, config)
        progress.say("the control plane")
        with plane, played(plane) as pods, ExitStack() as context:
            deployer = Deployer(plane.kubectl, Charts(plane.folder), progress.say)
            declared = Declared(plane.kubectl, config, objects, deployer)
            stack: Stack = declared
            if engine == PULUMI:
                from .pulumi_engine import on_real_engine

                stack = context.enter_context(on_real_engine(project, config, plane, declared, progress.say))
            here = Run(plane, config, pods, stack, objects.addons, objects.grown)
            outcome.version = here.kubectl.server_version()
            outcome.chart = deployer.charts.played
            until(here.settled, _SETTLE_SECONDS)
            before = here.look()
            for cycle in range(1, cycles + 1):
                if not _cycle(here, outcome, progress, cycle, cycles, before):
                    return
    except (StackFailed, ControlPlaneError, DeployFailed, Refused) as error:
        outcome.failure = str(error)
    except Interrupted as signalled:
        outcome.failure = f"ended by {signalled}"
    finally:
        progress.close()
        # Also where it never came to its context.
        plane.processes.stop_all()
        shutil.rmtree(plane.folder, ignore_errors=True)


def _cycle(here: Run, outcome: Outcome, progress: Progress, cycle: int, cycles: int, before: frozenset[str]) -> bool:
    """Up, the checks, down, and a look for leftovers. The first time with every check. False ends the run.

    What an uninstall may leave stays for the next cycle to cope with; the last one ends as the EKS cluster's end does.
    """

    def perform(name: str, act: Act) -> bool:
        progress.say(name)
        began, known = time.monotonic(), len(here.pods.problems)
        try:
            passed, detail = True, act(here)
        except (CheckFailed, DeployFailed, Refused) as failed:
            # Where the control plane itself is gone, that is the cause.
            here.plane.check()
            passed, detail = False, "; ".join([str(failed), *here.pods.problems[known:], *here.pods.waiting()])
        check = Check(name, passed, detail, round(time.monotonic() - began, 3))
        outcome.checks.append(check)
        progress.check(check)
        return passed

    def bring_up(here: Run) -> str:
        here.kubectl.apply(here.addons)
        outcome.objects = here.stack.bring_up()
        return f"{outcome.objects} objects, {len(here.kubectl.list('nodes'))} nodes"

    def take_down(here: Run) -> str:
        kept = here.stack.kept()
        problems, allowed = here.stack.take_down(), frozenset(map(describe, kept))
        here.kubectl.delete(here.addons)
        outcome.leftovers = here.leftovers(before, allowed)
        stays = Counter(one.split(".")[0] for one in here.look() - before)
        if cycle == cycles:
            here.end_of_cluster(kept)
            outcome.leftovers += here.leftovers(before)
        if problems or outcome.leftovers:
            raise CheckFailed("; ".join(problems + [f"left over: {one}" for one in outcome.leftovers]))
        said = ", ".join(f"{count} {kind}" for kind, count in sorted(stays.items()))
        return f"nothing is left but what goes with the cluster: {said}" if said else "nothing is left"

    suffix = f" ({cycle})" if cycle > 1 else ""
    up = perform(f"up{suffix}", bring_up)
    for name, act in _checks(here, outcome, full=cycle == 1) if up else ():
        perform(f"{name}{suffix}", act)
    down = perform(f"down{suffix}", take_down)
    outcome.cycles = cycle
    return up and down


def _checks(here: Run, outcome: Outcome, *, full: bool) -> list[tuple[str, Act]]:
    placed: list[tuple[str, Act]] = [
        ("device plugins", placement.device_plugins),
        ("health monitoring", placement.health_agents),
        ("operators", placement.operators),
        ("system pods", placement.system_pods),
    ]
    if not full:
        return placed
    jobs: list[tuple[str, Act]] = [
        (f"job {name}", lambda run, name=name: workloads.admitted_and_placed(run, name))  # type: ignore[misc]
        for name in jobs_of(here.config)
    ]
    training: list[tuple[str, Act]] = []
    if "nanogpt" in jobs_of(here.config):
        if why := training_lacks():
            outcome.left_out.append(f"training: {why}")
        else:
            training.append(("training", trains_across_nodes))
    # Without a queue nothing promises it: Kubernetes' own scheduler places pods one by one.
    queued: list[tuple[str, Act]] = [("all or none", workloads.all_or_none), ("others go on", workloads.others_go_on)]
    return [
        *placed,
        *jobs,
        ("strict validation", workloads.unknown_field_refused),
        *(queued if here.config.settings.charts.queues == "kueue" else []),
        ("jobs without tolerations", workloads.plain_jobs),
        ("second job queues", workloads.second_job_queues),
        ("oversize job", workloads.oversize_refused),
        ("rights of teams", access.rights),
        ("jobs by teams", access.job_runs),
        ("quota", access.quota),
        ("pod security", access.pod_security),
        ("network policies", access.network_policies),
        ("file system grows", growth.file_system_grows),
        *training,
    ]
