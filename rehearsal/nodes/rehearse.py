"""The node rehearsal: boots a stack's nodes as isolated hosts, uses them, breaks them, removes them."""

import signal
import sys
import time
from collections.abc import Callable

from rich.console import Console

from components.config import Config
from operations.project.loading import Project
from operations.terminal.interrupts import Interrupted

from . import audit
from .checks import AFTER, Act, all_idle, scripts_succeeded
from .cluster import Cluster, Options
from .growth import reboot_others, until
from .outcome import Outcome, nodes_of
from .recovery import lose_a_worker, reboot_controller
from .sandbox import SandboxError
from .show import Progress
from .stack import StackError, bring_up

# A worker's slurmd retries every two seconds, and the controller takes a moment to read its configuration.
_JOIN_SECONDS = 60.0


def run(
    project: Project, config: Config, outcome: Outcome, console: Console, asked: Options, *, keep: bool = False
) -> None:
    """Run the whole rehearsal. Results go into ``outcome``, including an interruption and leftovers."""
    # The account takes a second to load. Saying what a machine lacks does not need it.
    from ..account import Account

    before, progress = audit.look(), Progress(console)
    made = audit.Namespaces()
    run_id = ""
    try:
        with Account(config.region.name) as account:
            with progress.doing("the stack comes up in the embedded AWS account"):
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
        outcome.cancel(signalled)
    finally:
        progress.close()
        with made:
            outcome.leftovers = audit.leftovers(before, run_id, made) if run_id else []


def _rehearse(cluster: Cluster, outcome: Outcome, progress: Progress, made: audit.Namespaces) -> None:
    with progress.doing("the hosts start"):
        cluster.start_hosts()
    made.note([host.pid for host in cluster.hosts])
    began = time.monotonic()
    cluster.boot(progress.booting)
    outcome.nodes = nodes_of(cluster)
    perform = _performer(cluster, outcome, progress)
    booted = perform("scripts", scripts_succeeded) and perform("all idle", _idle_at_last)
    outcome.all_idle_seconds = time.monotonic() - began
    progress.booted(outcome.nodes, outcome.all_idle_seconds)
    if not booted:
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


def _idle_at_last(cluster: Cluster) -> str:
    """Workers of which Slurm hears after their scripts have ended take a moment."""
    until("all workers are idle", lambda: all_idle(cluster), _JOIN_SECONDS)
    return all_idle(cluster)


def _performer(cluster: Cluster, outcome: Outcome, progress: Progress) -> Callable[[str, Act], bool]:
    def perform(name: str, act: Act) -> bool:
        took = max((run.seconds for run in cluster.scripts.values()), default=0.0)
        own = took if act is scripts_succeeded else None
        with progress.doing(name):
            return outcome.perform(name, lambda: act(cluster), progress.check, own)

    return perform


def _keep(cluster: Cluster, console: Console) -> None:
    console.print("\nThe nodes stay up; a shell on one, as root:")
    for host in cluster.hosts:
        line = f"  nsenter -t {host.pid} -m -u -i -n -p --wdns=/root env -i TERM=$TERM bash -l"
        console.print(f"{line}   # {host.name}", markup=False, highlight=False, soft_wrap=True)
    console.print("Enter or Ctrl-C ends them.")
    try:
        while sys.stdin.readline() == "":
            # Nobody can press Enter.
            signal.pause()
    except Interrupted:
        console.print("Ending.")
