"""How fast nodes boot, how that grows with their number, and how fast a job is back at work after the loss of a node.

    sudo venv/bin/python -m benchmarks.nodes [--stack dev] [--workers 1,2,4,8,16] [--repeat 3] [--json FILE]

Needs what ``hyperpod rehearse nodes`` needs. All nodes share this machine's cores, so a large cluster is slower here
than one whose every node has its own; the figures are for comparing versions of the lifecycle scripts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from components.config import parse
from operations.project.loading import load_project
from rehearsal.account import Account
from rehearsal.nodes import requirements
from rehearsal.nodes.checks import all_idle, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.recovery import Recovery, lose_a_worker
from rehearsal.nodes.stack import Stack, bring_up

_ROOT = Path(__file__).parents[1]
_LOGIN = 'login={"instanceType":"ml.m5.large"}'
# The reference is measured with 1 controller, 1 login node and 4 workers.
REFERENCE_WORKERS = 4
# Measured on the same kind of emulated nodes, in seconds: the lifecycle scripts of
# github.com/sunilpp/hyperpod-quickstart, whole and without their 30 s sleep, and Slurm's hold on the jobs of a lost
# node.
QUICKSTART_BOOT, QUICKSTART_BOOT_AWAKE, QUICKSTART_REQUEUE = 44.1, 13.8, 152.0
BOOT_LIMIT, REQUEUE_LIMIT = QUICKSTART_BOOT / 5, 10.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when a figure is over its limit."""
    options = _parser().parse_args(argv)
    if lacking := requirements.missing():
        print("\n".join(lacking), file=sys.stderr)
        return 2
    project = load_project(_ROOT, options.stack, [_LOGIN])
    config = parse(project.config)
    counts = sorted({REFERENCE_WORKERS, *(int(count) for count in options.workers.split(","))})
    with Account(config.region.name) as account:
        stack = bring_up(project, config, account)
        boots = {count: [boot(stack, count) for _ in range(options.repeat)] for count in counts}
        # A spare node: the job goes on as soon as the loss is noticed. None: it waits for the replacement.
        spare = [lose(stack, REFERENCE_WORKERS - 1) for _ in range(options.repeat)]
        replaced = [lose(stack, REFERENCE_WORKERS) for _ in range(options.repeat)]
    found = report(boots, spare, replaced)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if found["passed"] else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nodes", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--stack", default="dev")
    parser.add_argument("--workers", default="1,2,4,8,16", help="how many workers to boot with (default: 1,2,4,8,16)")
    parser.add_argument("--repeat", type=int, default=3, help="how often each is measured (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def boot(stack: Stack, workers: int) -> float:
    """Seconds from the start of all scripts, at once, to all workers idle."""
    with Cluster(stack, Options(workers=workers)) as cluster:
        cluster.start_hosts()
        seconds = cluster.boot()
        scripts_succeeded(cluster)
        all_idle(cluster)
        return seconds


def lose(stack: Stack, ranks: int) -> Recovery:
    """A job on ``ranks`` of the reference's workers loses one of them."""
    with Cluster(stack, Options(workers=REFERENCE_WORKERS)) as cluster:
        cluster.start_hosts()
        cluster.boot()
        return lose_a_worker(cluster, ranks)


def report(boots: dict[int, list[float]], spare: Sequence[Recovery], replaced: Sequence[Recovery]) -> dict[str, Any]:
    """Print the table, and return it for machines."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("what", "median", "runs", "limit", "hyperpod-quickstart"):
        table.add_column(column, justify="left" if column == "what" else "right")

    def row(what: str, values: Sequence[float], limit: float | None = None, before: str = "") -> float:
        median = statistics.median(values)
        runs = " ".join(f"{value:.2f}" for value in values)
        bad = limit is not None and median > limit
        table.add_row(
            what, f"{median:.2f} s", runs, f"{limit:.1f} s" if limit else "", before, style="red" if bad else ""
        )
        return median

    reference = f"{QUICKSTART_BOOT} s"
    medians = {
        count: row(
            f"boot, {count} workers",
            values,
            BOOT_LIMIT if count == REFERENCE_WORKERS else None,
            reference if count == REFERENCE_WORKERS else "",
        )
        for count, values in boots.items()
    }
    back = row(
        "job back, spare node",
        [one.resumed_after_seconds for one in spare],
        REQUEUE_LIMIT,
        f"{QUICKSTART_REQUEUE:.0f} s",
    )
    noticed = row("  loss noticed", [one.noticed_seconds for one in spare])
    fresh = row("job back, node replaced", [one.resumed_after_seconds for one in replaced])
    row("  fresh node idle", [one.node_back_seconds for one in replaced])
    Console().print(table)
    print("boot: 1 controller, 1 login node and the workers, all scripts started at once, until all workers are idle")
    print(f"hyperpod-quickstart without its 30 s sleep: {QUICKSTART_BOOT_AWAKE} s")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; again: {(__doc__ or '').splitlines()[2].strip()}")
    return {
        "cores": os.cpu_count(),
        "boot_seconds": {str(count): round(seconds, 3) for count, seconds in medians.items()},
        "requeue_seconds": round(back, 2),
        "noticed_seconds": round(noticed, 2),
        "replaced_seconds": round(fresh, 2),
        "steps_lost": max(one.steps_lost for one in (*spare, *replaced)),
        "passed": medians[REFERENCE_WORKERS] <= BOOT_LIMIT and back <= REQUEUE_LIMIT,
    }


if __name__ == "__main__":
    sys.exit(main())
