"""The table and the picture of sizes that were measured."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..picture import draw
from .measures import Measured

_ROWS: Mapping[str, Callable[[Measured], str]] = {
    "slurm.conf": lambda one: f"{one.configuration_bytes / 1024:,.0f} KiB",
    "lifecycle scripts of controller and worker": lambda one: f"{one.scripts_seconds} s",
    "all idle after their daemons' start": lambda one: f"{one.idle_seconds} s",
    "srun hostname on all nodes, prologs included": lambda one: f"{one.names:,} names in {one.job_seconds} s",
    "its epilogs, on all nodes": lambda one: f"{one.epilog_seconds} s",
    "slurmdbd restarted: jobs that ended, recorded": lambda one: f"{one.recorded_jobs} in {one.recorded_seconds} s",
    "jobs in the queue": lambda one: f"{one.queued_jobs:,} in {one.submit_seconds} s",
    "the slower scheduler's mean cycle": lambda one: f"{one.cycle_milliseconds:.0f} ms",
    "slurmctld with that queue": lambda one: f"{one.slurmctld_cpu_seconds} CPU s/min",
    "requeue service": lambda one: f"{one.requeue.cpu_seconds} CPU s/min",
    "  its calls to slurmctld": lambda one: f"{one.requeue.calls:,.0f}/min",
    "metrics of the controller": lambda one: f"{one.metrics.cpu_seconds} CPU s/min, {one.metrics.megabytes} MB",
    "  their calls to slurmctld": lambda one: f"{one.metrics.calls:,.0f}/min",
    "health checks of a node": lambda one: f"{one.health.cpu_seconds} CPU s/min",
    "  calls of all nodes to slurmctld": lambda one: f"{one.health.calls:,.0f}/min",
    "reconfigure, with that queue": lambda one: f"{one.reconfigure_seconds} s",
    "controller killed: queue and nodes back": lambda one: f"{one.kept_jobs:,} jobs in {one.restart_seconds} s",
}


def table(found: Sequence[Measured], release: str) -> None:
    """Print a column for each size."""
    columns = Table(box=None, padding=(0, 2, 0, 0), title=f"Slurm {release}, {os.cpu_count()} cores for all nodes")
    columns.add_column("")
    for one in found:
        columns.add_column(f"{one.nodes:,} nodes", justify="right")
    for name, say in _ROWS.items():
        columns.add_row(name, *map(say, found))
    Console(width=120).print(columns)


def picture(found: Sequence[Measured], release: str, path: Path) -> None:
    """Draw how the times grow."""
    lines = {
        "all idle, s": {one.nodes: one.idle_seconds for one in found},
        "job on all nodes, s": {one.nodes: one.job_seconds for one in found},
        "scheduler's cycle, ms": {one.nodes: one.cycle_milliseconds for one in found},
        "controller restarted, s": {one.nodes: one.restart_seconds for one in found},
        "slurmctld, CPU s a minute": {one.nodes: one.slurmctld_cpu_seconds for one in found},
        "requeue service, CPU s a minute": {one.nodes: one.requeue.cpu_seconds for one in found},
    }
    draw(lines, f"Slurm {release} on {os.cpu_count()} cores, {found[0].queued_jobs:,} jobs queued", "nodes", path)
