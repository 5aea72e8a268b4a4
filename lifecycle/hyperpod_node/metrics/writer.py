"""``hyperpod-metrics PART``: writes one part of a node's figures for node_exporter, once. A timer starts it.

Parts are apart because what one of them asks may not answer: a Lustre server that is gone holds everybody who asks for
its free space. Most of what a run costs is the start of Python, so there are no more than two.
"""

from __future__ import annotations

import sys
from typing import Callable, Dict, List, Mapping

from ..host import safe_open
from ..host.errors import StepError
from ..host.host import Host
from ..host.settings import Settings
from . import efa, lustre, node, slurm, training
from .exposition import Family, render

# node_exporter reads every .prom file in it.
FOLDER = "/var/lib/hyperpod/metrics"
# Seconds from one run of a part to the next, and for the commands of a run.
INTERVAL, LIMIT = 30, 20.0
Source = Callable[[Host], List[Family]]
# Part, its files, and what each has.
PARTS: Mapping[str, Mapping[str, Source]] = {
    "node": {
        "node": lambda host: node.families(host, node.load(host)),
        "efa": efa.families,
        "training": training.families,
        # Last, for slurmctld may be busy.
        "slurm": lambda host: slurm.families(host) if node.load(host).role == "controller" else [],
    },
    "lustre": {"lustre": lustre.families},
}


def write(host: Host, part: str) -> Dict[str, str]:
    """Write a part's files. Return errors by file: such a file is removed, because old figures would look new."""
    trouble = {}
    for name, source in PARTS[part].items():
        file = f"{FOLDER}/{name}.prom"
        try:
            host.write(file, render(source(host)))
        except (StepError, OSError, ValueError) as error:
            trouble[name] = str(error)
            host.remove(file)
    return trouble


def main() -> int:
    """One run of a part; at once where the last one still waits for something."""
    part = sys.argv[1] if len(sys.argv) == 2 else ""
    if part not in PARTS:
        print(f"usage: hyperpod-metrics {'|'.join(PARTS)}", file=sys.stderr)
        return 2
    host = Host(Settings.from_environment())
    with safe_open.holds_lock(str(host.path(f"/run/hyperpod-metrics-{part}.lock"))) as alone:
        if not alone:
            print(f"hyperpod-metrics: {part} is still being read", file=sys.stderr)
            return 1
        host.begin(LIMIT)
        trouble = write(host, part)
    for name, why in trouble.items():
        print(f"hyperpod-metrics: no {name}.prom: {why}", file=sys.stderr)
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
