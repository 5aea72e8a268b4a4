"""``hyperpod-benchmark [nodes]``: the collectives test that fits the cluster's accelerator, on its idle workers."""

from __future__ import annotations

import os
import sys

from .cluster import BIN, Trouble, record, run, worker_group


def main() -> int:
    """Become the test's command."""
    try:
        own = record()
        if own["role"] == "worker":
            raise Trouble("run this on the controller or a login node; it allocates the workers")
        group = worker_group(own, None)
        arguments = sys.argv[1:]
        if not any(word.isdigit() for word in arguments):
            idle = run(
                ["sinfo", "-h", "-t", "idle", "-o", "%D", *(["-p", group["partition"]] if group["partition"] else [])]
            )
            nodes = sum(int(word) for word in idle.split() if word.isdigit())
            if not nodes:
                raise Trouble("no worker is idle; see sinfo")
            arguments = [str(nodes), *arguments]
    except Trouble as trouble:
        print(f"hyperpod-benchmark: {trouble}", file=sys.stderr)
        return 2
    command = "run-nccom-test" if group["accelerator"] == "trainium" else "run-nccl-test"
    os.execv(f"{BIN}/{command}", [command, *arguments])
    return 0  # never reached


if __name__ == "__main__":
    sys.exit(main())
