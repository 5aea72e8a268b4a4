"""The Kubernetes rehearsal: a stack's objects, jobs and nodes on a real API server on this machine."""

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from rich.console import Console

from components.config import Config
from operations.jobs.requests import jobs_of
from operations.project.loading import Project
from operations.terminal.interrupts import Interrupted

from ..checks import CheckFailed
from ..patience import until
from . import access, demand, growth, health, placement, workloads
from .charts import Charts
from .container import available
from .control_plane import ControlPlane, ControlPlaneError
from .declared import Declared, StackFailed, declare
from .deploy import Deployer, DeployFailed
from .kubectl import Refused
from .outcome import Outcome
from .run import Run, Stack, describe, played
from .show import Progress
from .training import lacking as training_lacks
from .training import trains_across_nodes

_SETTLE_SECONDS = 30.0
Act = Callable[[Run], str]
EMBEDDED, PULUMI = "embedded", "pulumi"


def lacking(engine: str) -> str:
    """What this machine lacks for a run, or empty. Missing programs do not count; ``binaries`` builds them."""
    if engine == PULUMI:
        from .pulumi_engine import lacking as engine_lacks

        if why := engine_lacks():
            return why
    if not available():
        return "this machine lets you make no namespaces (`unshare --mount --net`), which the operators need"
    return ""


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
    """Run the whole rehearsal. Results go into ``outcome``, including an interruption and leftovers."""
    progress = Progress(console)
    try:
        progress.say("the program, in the embedded account")
        objects = declare(project, config)
        progress.say("the control plane")
        with plane, played(plane) as pods, ExitStack() as context:
            deployer = Deployer(plane.kubectl, Charts(plane.folder), progress.say)
            declared = Declared(plane, config, objects, deployer)
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
        outcome.cancel(signalled)
    finally:
        progress.close()
        # Also where it never came to its context.
        plane.processes.stop_all()
        shutil.rmtree(plane.folder, ignore_errors=True)


def _cycle(here: Run, outcome: Outcome, progress: Progress, cycle: int, cycles: int, before: frozenset[str]) -> bool:
    """Deploy, check, delete, and look for leftovers. The first cycle runs every check. False ends the run.

    What an uninstall may leave stays, so the next cycle must cope with it. The last cycle deletes it with the cluster.
    """

    def perform(name: str, act: Act) -> bool:
        progress.say(name)
        known = len(here.pods.problems)

        def judged() -> str:
            try:
                return act(here)
            except (CheckFailed, DeployFailed, Refused) as failed:
                # If the control plane itself has died, that is the cause.
                here.plane.check()
                said = "; ".join([str(failed), *here.pods.problems[known:], *here.pods.waiting()])
                raise CheckFailed(said) from failed

        return outcome.perform(name, judged, progress.check)

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
    follows: list[tuple[str, Act]] = [
        ("pods make nodes", demand.pods_make_nodes),
        ("limits hold", demand.limits_hold),
        ("idle nodes go, jobs stay", demand.idle_nodes_go),
    ]
    came, rest = (follows[:1], follows[1:]) if demand.groups_of(here) else ([], [])
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
    # Only a queue guarantees it: Kubernetes' own scheduler places pods one by one.
    queued: list[tuple[str, Act]] = [("all or none", workloads.all_or_none), ("others go on", workloads.others_go_on)]
    return [
        *came,
        *placed,
        ("bad nodes", health.bad_nodes),
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
        ("directories", access.directories),
        ("restricted pods", access.restricted_pods),
        ("external addresses", access.external_addresses),
        ("network policies", access.network_policies),
        ("file system grows", growth.file_system_grows),
        *training,
        *rest,
    ]
