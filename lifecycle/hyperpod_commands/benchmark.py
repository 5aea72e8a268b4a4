"""``hyperpod-benchmark [nodes]``: runs the collectives test for the cluster's accelerator on its idle workers."""

from __future__ import annotations

import os
import sys

from hyperpod_node.facts.model import Group

from . import nccl_test, nccom_test
from .cluster import BIN, Trouble, record, run, worker_group


def main() -> int:
    """Replace this process with the test's command."""
    try:
        own = record()
        if own.group.role == "worker":
            raise Trouble("run this on the controller or a login node; it allocates the workers")
        group = worker_group(own, None)
        trainium = group.accelerator == "trainium"
        command = "run-nccom-test" if trainium else "run-nccl-test"
        parser = nccom_test.parser() if trainium else nccl_test.parser()
        arguments = sys.argv[1:]
        parser.set_defaults(nodes=None)
        if parser.parse_args(arguments).nodes is None:
            nodes = idle_workers(group)
            if not nodes:
                raise Trouble("no worker is idle; see sinfo")
            arguments = [str(nodes), *arguments]
    except Trouble as trouble:
        print(f"hyperpod-benchmark: {trouble}", file=sys.stderr)
        return 2
    os.execv(f"{BIN}/{command}", [command, *arguments])
    return 0  # unreachable


def idle_workers(group: Group) -> int:
    """Count a partition's idle nodes that take jobs. sinfo's own filter by state counts drained nodes as idle."""
    chosen = ["-p", group.partition] if group.partition else []
    lines = [line.split() for line in run(["sinfo", "-h", "-o", "%D %t", *chosen]).splitlines()]
    return sum(int(words[0]) for words in lines if words[1:] == ["idle"])


if __name__ == "__main__":
    sys.exit(main())
