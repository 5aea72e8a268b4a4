"""What many nodes take of a real Slurm: to register, to run a job on all, to queue, to lose its daemons."""

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from components.config import parse
from operations.project.loading import load_project
from rehearsal.account import Account
from rehearsal.nodes import agent
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.hosts import Host
from rehearsal.nodes.stack import bring_up
from rehearsal.patience import told, until

from . import services
from .many import Many, boot
from .services import Cost

_ROOT = Path(__file__).parents[2]
# Accounting in a MariaDB on the controller, and metrics.
_STACK = ('slurm={"accounting":{}}', 'observability={"prometheus":"create"}')
# Jobs of one array: Slurm's MaxArraySize is 1001, one more than the largest index (slurm.conf(5)).
_ARRAY = 1000
# Jobs that end while slurmdbd is away, and as many while it starts again.
UNRECORDED = 100
# Seconds in which the schedulers look at the full queue before they are asked.
_WATCHED = 10
_LIMIT = 900.0


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one size took, in seconds unless a name says otherwise.

    ``names``: distinct hostnames that the job on all nodes printed. ``recorded_jobs``: those of the jobs that ended
    around the restart of slurmdbd which are in its database.
    """

    nodes: int
    configuration_bytes: int
    scripts_seconds: float
    idle_seconds: float
    names: int
    job_seconds: float
    epilog_seconds: float
    recorded_jobs: int
    recorded_seconds: float
    queued_jobs: int
    submit_seconds: float
    cycle_milliseconds: float
    slurmctld_cpu_seconds: float
    requeue: Cost
    metrics: Cost
    health: Cost
    reconfigure_seconds: float
    kept_jobs: int
    restart_seconds: float


def measure(nodes: int, jobs: int, release: str) -> Measured:
    """Boot a cluster of so many nodes, run a job on all of them, fill the queue, and lose the daemons."""
    project = load_project(_ROOT, "dev", _STACK)
    config = parse(project.config)
    with Account(config.region.name) as account:
        stack = bring_up(project, config, account)
        with Cluster(stack, Options(workers=1, slurm=release)) as cluster:
            many = boot(cluster, nodes)
            began = time.monotonic()
            daemons = many.start()
            try:
                return _measure(many, jobs, began)
            finally:
                daemons.kill()


def _measure(many: Many, jobs: int, began: float) -> Measured:
    head, nodes = many.head, len(many.names)
    idle = _reach(f"{nodes} nodes are idle", lambda: _nodes(head, "idle"), nodes, began)
    began = time.monotonic()
    # A socket for each task, and the default is 1,024.
    printed = _output(head, f"ulimit -n 65536; srun -N {nodes} hostname", _LIMIT).split()
    job = time.monotonic() - began
    epilogs = _reach(f"epilogs of {nodes} nodes", lambda: _nodes(head, "idle"), nodes)
    recorded, recorded_seconds = _without_slurmdbd(head)
    # It holds all nodes, so that the others wait for resources.
    _output(head, f"sbatch -o /dev/null -N {nodes} --exclusive --wrap 'sleep 7200'")
    _reach(f"a job on {nodes} nodes", lambda: _nodes(head, "allocated"), nodes)
    submit = _fill(head, jobs)
    queued = _queue(head)
    time.sleep(_WATCHED)
    cycle = _cycle(head)
    requeue, slurmctld = services.requeue(head)
    metrics, health = services.metrics(head), services.health(head, many.host, nodes)
    reconfigure = _reconfigure(head, nodes)
    began = time.monotonic()
    _output(head, "systemctl kill -s KILL slurmctld; systemctl restart slurmctld")
    _reach("the queue", lambda: len(queued & _queue(head)), len(queued))
    restart = _reach("all nodes", lambda: _nodes(head, "allocated"), nodes, began)
    return Measured(
        nodes=nodes,
        configuration_bytes=len(head.read(agent.SLURM_CONF)),
        scripts_seconds=round(many.scripts_seconds, 1),
        idle_seconds=round(idle, 1),
        names=len(set(printed) & set(many.names)),
        job_seconds=round(job, 1),
        epilog_seconds=round(epilogs, 1),
        recorded_jobs=recorded,
        recorded_seconds=round(recorded_seconds, 1),
        queued_jobs=len(queued),
        submit_seconds=round(submit, 1),
        cycle_milliseconds=cycle,
        slurmctld_cpu_seconds=slurmctld,
        requeue=requeue,
        metrics=metrics,
        health=health,
        reconfigure_seconds=round(reconfigure, 2),
        kept_jobs=len(queued & _queue(head)),
        restart_seconds=round(restart, 1),
    )


def _without_slurmdbd(head: Host) -> tuple[int, float]:
    """Jobs end while slurmdbd is away and starts again. Returns how many it records, and seconds from its start."""
    _output(head, "systemctl stop slurmdbd")
    away = _array(head, UNRECORDED)
    _reach("jobs without slurmdbd", lambda: len(_queue(head)), 0)
    again = _array(head, UNRECORDED)
    began = time.monotonic()
    _output(head, "systemctl start slurmdbd")
    asked = f"sacct -X -n -a -s COMPLETED -j {away},{again} -o jobid | wc -l"

    def recorded() -> int:
        # It does not answer at once.
        said = head.run(asked, timeout=60).stdout.strip()
        return int(said) if said.isdigit() else 0

    seconds = _reach("records of slurmdbd", recorded, 2 * UNRECORDED, began)
    return recorded(), seconds


def _fill(head: Host, jobs: int) -> float:
    """Queue jobs, each with a record: Slurm makes one of a task that is changed. Returns the submission's seconds."""
    sizes = [min(_ARRAY, jobs - begun) for begun in range(0, jobs, _ARRAY)]
    began = time.monotonic()
    arrays = [(_array(head, size), size) for size in sizes]
    seconds = time.monotonic() - began
    changes = [f"update JobId={array}_{task} Nice=1\n" for array, size in arrays for task in range(1, size + 1)]
    head.run(["scontrol"], text_in="".join(changes), timeout=600)
    return seconds


def _array(head: Host, size: int) -> str:
    return _output(head, f"sbatch --parsable -o /dev/null -N 1 --array=1-{size} --wrap true").strip()


def _reconfigure(head: Host, nodes: int) -> float:
    began = time.monotonic()
    _output(head, "scontrol reconfigure", 120)
    return _reach("all nodes, configured again", lambda: _nodes(head, "allocated"), nodes, began)


def _nodes(head: Host, state: str) -> int:
    """How many nodes answer and are in a state."""
    said = head.run(f"sinfo --noheader --Node --partition dev --states {state} --responding --format %n").stdout
    return len(set(said.split()))


def _queue(head: Host) -> set[str]:
    return set(head.run("squeue --noheader --array --format %i", timeout=120).stdout.split())


def _cycle(head: Host) -> float:
    """The longest mean cycle of the main scheduler and of backfill, milliseconds (sdiag(1) has microseconds)."""
    return max((int(found) for found in re.findall(r"Mean cycle:\s+(\d+)", head.run("sdiag").stdout)), default=0) / 1000


def _output(head: Host, command: str, limit: float = 120.0) -> str:
    done: subprocess.CompletedProcess[str] = head.run(command, timeout=limit)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr or done.stdout}")
    return done.stdout


def _reach(what: str, count: Callable[[], int], wanted: int, began: float | None = None) -> float:
    """Wait until a count is the wanted one, and say how far it is. Returns the seconds since ``began``."""
    began = time.monotonic() if began is None else began
    with told(Console(stderr=True), what, 10) as at:

        def there() -> bool:
            found = count()
            at(f"{found:,} of {wanted:,}")
            return found == wanted

        if not until(there, _LIMIT, every=0.5):
            raise SystemExit(f"{what}: {count():,} of {wanted:,} after {_LIMIT:g} s")
    return time.monotonic() - began
