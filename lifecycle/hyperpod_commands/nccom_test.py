"""``run-nccom-test [nodes] [workers]``: measures and rates the bus bandwidth between Trainium workers."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import List, Sequence

from . import bandwidth
from .cluster import BIN, Trouble, Workers, allocate, as_person, ask_workers, record, say, worker_group
from .nccl_test import failure, run_test

# nccom-test's names of the collectives.
COLLECTIVES = {"all_reduce": "allr", "all_gather": "allg", "reduce_scatter": "redsct", "alltoall": "alltoall"}
# Bandwidth is measured in the data type that models train in.
SWEEP = (
    "--minbytes", "1kb", "--maxbytes", "128mb", "--stepfactor", "2", "--datatype", "bf16",
    "--iters", "5", "--warmup_iters", "5",
)  # fmt: skip
# Values are checked in a second run, because nccom-test checks only fp32 (Neuron documentation, "NCCOM-TEST User
# Guide", --check).
CHECK = (
    "--minbytes",
    "1mb",
    "--maxbytes",
    "16mb",
    "--stepfactor",
    "4",
    "--datatype",
    "fp32",
    "--check",
    "--iters",
    "1",
)
# The same guide, "-N, --nnodes": with several nodes NEURON_RT_ROOT_COMM_ID must name the first node's address and a
# free port. By default Linux assigns no port above 60999 (ip_local_port_range).
FIRST_PORT, PORTS = 61000, 4000


def main() -> int:
    """Allocate the workers; inside the allocation, run the test."""
    options = parser().parse_args()
    as_person("run-nccom-test")
    own = record()
    group = worker_group(own, options.partition)
    if group.accelerator != "trainium":
        raise Trouble(f"the workers are {group.instance_type}, without NeuronCores; run-nccl-test is for GPUs")
    if not os.environ.get("HYPERPOD_INSIDE"):
        os.environ["HYPERPOD_INSIDE"] = "1"
        partition = options.partition or group.partition or None
        allocate(
            options.nodes,
            group.accelerators,
            group.gres,
            partition,
            [f"{BIN}/run-nccom-test", *sys.argv[1:]],
        )
    workers = ask_workers(options.nodes)
    cores = min(int(fact["environment"].get("NEURON_RT_NUM_CORES", 0)) for fact in workers.facts) or group.neuron_cores
    per_node = options.workers or int(cores)
    say(f"{options.collective}, {options.nodes} nodes x {per_node} NeuronCores, {workers.transport}, {workers.names}")
    for complaint in workers.complaints():
        say(f"WARNING: {complaint}")
    code, text = run_test(command(options, workers, per_node, SWEEP), options.timeout)
    if not code:
        code, checked = run_test(command(options, workers, per_node, CHECK), options.timeout)
        text += "\n" + checked
    wire, share = float(workers.first["group"]["network_gbps"]), min(1.0, per_node / max(1, int(cores)))
    limit = bandwidth.threshold(options.collective, "nccom", wire, options.nodes, per_node, share)
    if options.threshold is not None:
        limit = options.threshold or None
    rating = bandwidth.rate("nccom", text, limit, failure(code, text))
    if options.json:
        document = {
            "test": "nccom",
            "collective": options.collective,
            "transport": workers.transport,
            "nodes": workers.names,
            "ranks_per_node": per_node,
            "instance_type": workers.first["group"]["instance_type"],
            "warnings": workers.complaints(),
            **rating.record(),
        }
        print(json.dumps(document, indent=2, sort_keys=True))
    else:
        say("\n".join(bandwidth.verdict(rating, bandwidth.hints(workers.transport))))
    return 0 if rating.passed else 1


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    found = argparse.ArgumentParser(prog="run-nccom-test", description=(__doc__ or "").split("\n")[0])
    found.add_argument("nodes", nargs="?", type=int, default=2, help="number of workers (default 2)")
    found.add_argument("workers", nargs="?", type=int, default=0, help="NeuronCores per worker (default: all)")
    found.add_argument("collective", nargs="?", choices=sorted(COLLECTIVES), default="all_reduce")
    found.add_argument("-p", "--partition")
    found.add_argument("--threshold", type=float, help="required peak in GB/s (default: by instance type; 0 for none)")
    found.add_argument("--timeout", type=float, default=1800, help="seconds for each run (default 1800)")
    found.add_argument("--json", action="store_true", help="print the result as JSON, everything else to stderr")
    return found


def command(options: argparse.Namespace, workers: Workers, per_node: int, sizes: Sequence[str]) -> List[str]:
    """Return the command for nccom-test on the first node, by its full path. Its own MPI reaches the other nodes by
    ssh.
    """
    program = str(workers.first["nccom_test"])
    if not program:
        raise Trouble(f"{workers.names[0]} has no /opt/aws/neuron/bin/nccom-test: the Neuron tools are not installed")
    srun = ["srun", "--mpi=none", "--nodes=1", "--ntasks=1", f"--nodelist={workers.names[0]}", "--overlap"]
    variables = []
    arguments = [COLLECTIVES[options.collective], "--nworkers", str(options.nodes * per_node)]
    if options.nodes > 1:
        port = FIRST_PORT + int(os.environ.get("SLURM_JOB_ID", "0")) % PORTS
        variables.append(f"NEURON_RT_ROOT_COMM_ID={workers.first['address']}:{port}")
        arguments += ["--nnodes", str(options.nodes), "--hosts", *workers.names]
    return [*srun, *(["env", *variables] if variables else []), program, *arguments, *sizes]


def entry() -> int:
    """Run the command; report a failure in one line."""
    try:
        return main()
    except Trouble as trouble:
        print(f"run-nccom-test: {trouble}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(entry())
