"""How much of a boot is Slurm's own, and what each node asks of the services that all nodes share.

    sudo venv/bin/python -m benchmarks.boot [--workers 32] [--json FILE]

Needs what ``hyperpod rehearse nodes`` needs. The same hosts boot twice: by a script that only starts MUNGE and Slurm,
then by the lifecycle scripts. The calls are those that the hosts made then.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from components.config import parse
from operations.project.loading import load_project
from rehearsal.account import Account
from rehearsal.nodes import requirements
from rehearsal.nodes.agent import ENTRY_POINT
from rehearsal.nodes.checks import scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.stack import Stack, bring_up

from .slurm_nodes.services import calls

_ROOT = Path(__file__).parents[1]
# The size that the calls are multiplied to.
_MANY = 1000
# What a cluster needs for idle nodes, and nothing else; slurmctld asks for a topology file (topology.conf(5)), and the
# image's own slurm.conf would keep a worker from the controller's.
_ALONE = b"""#!/bin/bash
set -e
systemctl start munge
if grep -q "SlurmctldHost=$(hostname)" /opt/slurm/etc/slurm.conf; then
  touch /opt/slurm/etc/topology.conf
  install -d -o slurm /var/spool/slurmctld /var/log/slurm
  exec systemctl start slurmctld
fi
rm -f /opt/slurm/etc/slurm.conf /etc/slurm/slurm.conf
mkdir -p /var/spool/slurmd /var/log/slurm
echo "SLURMD_OPTIONS=--conf-server $HEAD" >/etc/default/slurmd
until (exec 3<>"/dev/tcp/$HEAD/6817") 2>/dev/null; do sleep 0.2; done
systemctl start slurmd
until [[ $(sinfo -h -n "$(hostname)" -o %t 2>/dev/null) == idle ]]; do sleep 0.2; done
"""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a worker asked for while it booted, on average; ``objects``: what HyperPod's agent downloads first."""

    objects: int
    aws: Mapping[str, float]
    metadata: float
    controller: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds until all workers are idle."""

    workers: int
    alone_seconds: float
    scripts_seconds: float
    asked: Asked

    @property
    def ratio(self) -> float:
        """How many times as long as Slurm alone the scripts take."""
        return self.scripts_seconds / self.alone_seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.boot", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args(argv)
    if lacking := requirements.missing():
        print("\n".join(lacking), file=sys.stderr)
        return 2
    found = measure(chosen.workers)
    show(found)
    if chosen.json:
        chosen.json.write_text(json.dumps({**asdict(found), "ratio": found.ratio}, indent=2) + "\n")
    return 0


def measure(workers: int) -> Measured:
    """Boot so many workers and their controller by Slurm alone, and again by the lifecycle scripts."""
    project = load_project(_ROOT, "dev")
    config = parse(project.config)
    with Account(config.region.name) as account:
        stack = bring_up(project, config, account)
        with Cluster(stack, Options(workers=workers, files={ENTRY_POINT: _ALONE})) as cluster:
            alone = _boot(cluster)
        with Cluster(stack, Options(workers=workers)) as cluster:
            scripts = _boot(cluster)
            asked = _asked(cluster, stack)
    return Measured(workers=workers, alone_seconds=alone, scripts_seconds=scripts, asked=asked)


def _boot(cluster: Cluster) -> float:
    cluster.options.environment = {"HEAD": cluster.controller.address}
    cluster.start_hosts()
    seconds = cluster.boot()
    # They wait until their node is idle.
    scripts_succeeded(cluster)
    return round(seconds, 2)


def _asked(cluster: Cluster, stack: Stack) -> Asked:
    workers = {host.name for host in cluster.workers}
    aws = Counter(" ".join(words[:2]) for name, words, _ in cluster.endpoint.calls if name in workers)
    each = {call: round(count / len(workers), 2) for call, count in aws.items()}
    metadata = sum(sum(cluster.metadata_calls[host.instance_id].values()) for host in cluster.workers)
    return Asked(
        objects=len(stack.lifecycle_files()),
        aws=each,
        metadata=round(metadata / len(workers), 1),
        controller=round(calls(cluster.controller) / len(workers), 1),
    )


def show(found: Measured) -> None:
    """Print the two boots, and what many nodes would ask for."""
    print(
        f"{found.workers} workers on {os.cpu_count()} cores, all idle: Slurm alone {found.alone_seconds:.1f} s, "
        f"the lifecycle scripts {found.scripts_seconds:.1f} s, {found.ratio:.1f} times as long"
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("calls of a boot", "one worker", f"{_MANY:,} workers"):
        table.add_column(column, justify="left" if column == "calls of a boot" else "right")
    rows = {
        "S3: the lifecycle objects, by HyperPod's agent": found.asked.objects,
        **{f"AWS: {call}": count for call, count in sorted(found.asked.aws.items())},
        "instance metadata, of its own instance": found.asked.metadata,
        "slurmctld": found.asked.controller,
    }
    for what, count in rows.items():
        table.add_row(what, f"{count:g}", f"{count * _MANY:,.0f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    sys.exit(main())
