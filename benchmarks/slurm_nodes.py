"""One real slurmctld and many real slurmd on this machine, with the configuration that our scripts write.

    sudo venv/bin/python -m benchmarks.slurm_nodes [--nodes 10,100] [--slurm 24.11] [--jobs 10000] [--json FILE]

The controller and one worker boot as in ``hyperpod rehearse nodes``, told of all nodes. The worker's host then runs a
slurmd for each node, with its name, its address and its spool directory, as Slurm's own large tests do. They share this
machine's cores with the controller, so each time is an upper bound; compare the sizes of one run with each other.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from components.config import parse
from operations.project.loading import load_project
from rehearsal.account import Account
from rehearsal.nodes import agent, requirements, slurm_packages
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.hosts import Host
from rehearsal.nodes.network import INTERFACE
from rehearsal.nodes.stack import Stack, bring_up

_ROOT = Path(__file__).parents[1]
# Jobs of one array: Slurm's MaxArraySize is 1001, one more than the largest index (slurm.conf(5)).
_ARRAY = 1000
# Seconds in which the schedulers look at the full queue before they are asked.
_WATCHED = 10
# Each daemon of a host that runs many listens on its node's address only. Its PID file and spool directory are private.
# Slurm refuses more than 10,000 jobs, running ones included, unless told otherwise (slurm.conf(5), MaxJobCount).
_MANY = "CommunicationParameters=NoInAddrAny\nMaxJobCount=20000\n"
_START = r"""
cd /; mkdir -p /run/many /run/slurm
while read -r name; do
  unshare --uts --mount sh -c '
    hostname "$1" && mount -t tmpfs spool /var/spool/slurmd && mount -t tmpfs run /run/slurm &&
    exec /opt/slurm/sbin/slurmd $OPTIONS > /run/many/$1 2>&1' start "$name" < /dev/null &
done < /run/nodes
wait
"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one size took, in seconds unless a name says otherwise."""

    nodes: int
    configuration_bytes: int
    scripts_seconds: float
    idle_seconds: float
    job_seconds: float
    reconfigure_seconds: float
    queued_jobs: int
    submit_seconds: float
    cycle_milliseconds: float
    restart_seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slurm_nodes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--nodes", default="10,100", help="the sizes, separated by commas (default: 10,100)")
    parser.add_argument("--slurm", default=slurm_packages.DEFAULT, choices=slurm_packages.RELEASES)
    parser.add_argument("--jobs", type=int, default=10000, help="the jobs that wait in the queue (default: 10000)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args(argv)
    if lacking := requirements.missing():
        print("\n".join(lacking), file=sys.stderr)
        return 2
    found = [measure(nodes, chosen.jobs, chosen.slurm) for nodes in map(int, chosen.nodes.split(","))]
    show(found, chosen.slurm)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in found], indent=2) + "\n")
    return 0


def measure(nodes: int, jobs: int, release: str) -> Measured:
    """Boot a cluster of so many nodes, run a job on all of them, fill the queue, and lose the controller."""
    project = load_project(_ROOT, "dev")
    config = parse(project.config)
    with Account(config.region.name) as account:
        stack = bring_up(project, config, account)
        with Cluster(stack, Options(workers=1, slurm=release)) as cluster:
            return _measure(stack, cluster, nodes, jobs)


def _measure(stack: Stack, cluster: Cluster, nodes: int, jobs: int) -> Measured:
    say(f"{nodes} nodes: the scripts of the controller and a worker")
    head, many = cluster.controller, cluster.workers[0]
    others = [_named(cluster, many, number) for number in range(2, nodes + 1)]
    with _told_of(cluster, others):
        cluster.start_hosts()
        names = "".join(f"{host.address} {host.hostname}\n" for host in (head, many, *others))
        for host in (head, many):
            host.write("/etc/hosts", f"127.0.0.1 localhost\n{names}")
        scripts = cluster.boot()
    options = _options(many)
    many.run(["systemctl", "stop", "slurmd"])
    cluster.sandbox.ip([f"addr add {host.address}/32 dev {INTERFACE}" for host in others], of=many.pid)
    many.write("/run/nodes", "".join(f"{host.hostname}\n" for host in (many, *others)))
    say(f"{nodes} nodes: starting their daemons")
    began = time.monotonic()
    daemons = many.start(["bash", "-c", _START], environment={"OPTIONS": options})
    until(lambda: _nodes(head, "idle") == nodes, f"{nodes} idle nodes", lambda: f"{_nodes(head, 'idle')} are idle")
    idle = time.monotonic() - began
    say(f"{nodes} nodes: a job on all of them")
    job = _seconds(head, f"srun -N {nodes} true", limit=900)
    say(f"{nodes} nodes: {jobs} jobs in the queue")
    # It holds all nodes, so that the others wait for resources.
    head.run(f"sbatch -N {nodes} --exclusive --wrap 'sleep 7200'")
    until(lambda: _nodes(head, "allocated") == nodes, "a job on all nodes", lambda: _epilogs(head))
    arrays = [min(_ARRAY, jobs - begun) for begun in range(0, jobs, _ARRAY)]
    submit = _seconds(head, " && ".join(f"sbatch -N 1 --array=1-{size} --wrap true" for size in arrays), 600)
    queued = _queued(head)
    time.sleep(_WATCHED)
    cycle = _cycle(head)
    reconfigure = _seconds(head, "scontrol reconfigure", 120)
    say(f"{nodes} nodes: the controller is killed")
    began = time.monotonic()
    head.run("systemctl kill -s KILL slurmctld; systemctl restart slurmctld")
    until(
        lambda: _queued(head) == queued and _nodes(head, "allocated") == nodes,
        "the queue and the nodes",
        lambda: f"{_queued(head)} jobs, {_nodes(head, 'allocated')} nodes",
    )
    restart = time.monotonic() - began
    size = len(head.read(agent.SLURM_CONF))
    daemons.kill()
    return Measured(
        nodes=nodes,
        configuration_bytes=size,
        scripts_seconds=round(scripts, 1),
        idle_seconds=round(idle, 1),
        job_seconds=round(job, 1),
        reconfigure_seconds=round(reconfigure, 2),
        queued_jobs=queued,
        submit_seconds=round(submit, 1),
        cycle_milliseconds=cycle,
        restart_seconds=round(restart, 1),
    )


def _named(cluster: Cluster, like: Host, number: int) -> Host:
    """A node that has a name and an address, and no host of its own."""
    return Host(
        name=f"{like.group}-{number}",
        instance_id=f"i-{secrets.token_hex(8)}0",
        group=like.group,
        role=like.role,
        address=cluster.network.next_address(),
        machine=like.machine,
        sandbox=cluster.sandbox,
        network=cluster.network,
    )


@contextmanager
def _told_of(cluster: Cluster, others: Sequence[Host]) -> Iterator[None]:
    """HyperPod's agent lists the other nodes, too."""
    prepare = cluster.agent.prepare

    def with_others(host: Host, hosts: Sequence[Host]) -> None:
        prepare(host, [*hosts, *others])
        if host.role == "controller":
            text = host.read(agent.SLURM_CONF).replace("/run/slurmd.pid", "/run/slurm/slurmd.pid")
            host.write(agent.SLURM_CONF, _MANY + text, owner="slurm")

    cluster.agent.prepare = with_others  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        cluster.agent.prepare = prepare  # type: ignore[method-assign]


def _options(host: Host) -> str:
    """The options of the slurmd that our scripts started."""
    return host.run("ps -C slurmd -o args=").stdout.partition("slurmd")[2].strip()


def _nodes(head: Host, state: str) -> int:
    """How many nodes answer and are in a state."""
    said = head.run(f"sinfo --noheader --Node --partition dev --states {state} --responding --format %n").stdout
    return len(set(said.split()))


def _epilogs(head: Host) -> str:
    return f"{_nodes(head, 'completing')} nodes run their epilogs"


def _queued(head: Host) -> int:
    return len(head.run("squeue --noheader --array --format %i", timeout=120).stdout.split())


def _cycle(head: Host) -> float:
    """The longest mean cycle of the main scheduler and of backfill, milliseconds (sdiag(1) has microseconds)."""
    return max((int(found) for found in re.findall(r"Mean cycle:\s+(\d+)", head.run("sdiag").stdout)), default=0) / 1000


def _seconds(head: Host, command: str, limit: float) -> float:
    began = time.monotonic()
    done = head.run(command, timeout=limit)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr or done.stdout}")
    return time.monotonic() - began


def until(done: Callable[[], bool], what: str, state: Callable[[], str], limit: float = 900.0) -> None:
    """Wait, and say every five seconds how far it is."""
    began = said = time.monotonic()
    while not done():
        now = time.monotonic()
        if now - began > limit:
            raise SystemExit(f"{what}: not after {limit:g} s; {state()}")
        if now - said > 5:
            said = now
            say(f"  {now - began:.0f} s: {state()}")
        time.sleep(0.2)


def say(line: str) -> None:
    """Tell what happens, on standard error."""
    print(line, file=sys.stderr, flush=True)


def show(found: Sequence[Measured], release: str) -> None:
    """Print a column for each size."""
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"Slurm {release}, {os.cpu_count()} cores for all nodes")
    table.add_column("")
    for one in found:
        table.add_column(f"{one.nodes:,} nodes", justify="right")
    for name, values in _rows(found):
        table.add_row(name, *values)
    Console().print(table)


def _rows(found: Sequence[Measured]) -> Iterator[tuple[str, list[str]]]:
    yield "slurm.conf", [f"{one.configuration_bytes / 1024:,.0f} KiB" for one in found]
    yield "lifecycle scripts of controller and worker", [f"{one.scripts_seconds} s" for one in found]
    yield "all idle after their daemons' start", [f"{one.idle_seconds} s" for one in found]
    yield "a job on all nodes, prolog and epilog included", [f"{one.job_seconds} s" for one in found]
    yield "reconfigure, with the queue", [f"{one.reconfigure_seconds} s" for one in found]
    yield "jobs in the queue", [f"{one.queued_jobs:,} in {one.submit_seconds} s" for one in found]
    yield "the slower scheduler's mean cycle", [f"{one.cycle_milliseconds} ms" for one in found]
    yield "controller killed: queue and nodes back", [f"{one.restart_seconds} s" for one in found]


if __name__ == "__main__":
    sys.exit(main())
