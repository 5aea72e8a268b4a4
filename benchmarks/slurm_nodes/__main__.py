"""One real slurmctld and many real slurmd on this machine, with the configuration that our scripts write.

    sudo venv/bin/python -m benchmarks.slurm_nodes [--nodes 10,100,1000] [--release 24.11] [--jobs 10000] [--json FILE]

The controller and one worker boot as in ``hyperpod rehearse nodes``, told of all nodes. The worker's host then runs a
slurmd for each node. They share this machine's cores with the controller, so each time is an upper bound; compare the
sizes of one run with each other.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rehearsal.nodes import requirements, slurm_packages

from . import show
from .measures import measure


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slurm_nodes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--nodes", default="10,100", help="the sizes, separated by commas (default: 10,100)")
    parser.add_argument("--release", default=slurm_packages.DEFAULT, choices=slurm_packages.RELEASES)
    parser.add_argument("--jobs", type=int, default=10000, help="the jobs that wait in the queue (default: 10000)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the growth (svg, png, pdf)")
    chosen = parser.parse_args(argv)
    if lacking := requirements.missing():
        print("\n".join(lacking), file=sys.stderr)
        return 2
    found = [measure(nodes, chosen.jobs, chosen.release) for nodes in map(int, chosen.nodes.split(","))]
    show.table(found, chosen.release)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in found], indent=2) + "\n")
    if chosen.picture:
        show.picture(found, chosen.release, chosen.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
