"""``run-nccl-test [nodes] [gpus] [collective]``: bus bandwidth between workers, and whether it is what the wire gives.

With NVIDIA GPUs it runs nccl-tests under MPI. Where the transport is tcp and the workers have no nccl-tests, or with
``--backend gloo``, it runs the same sweep with PyTorch's gloo and prints the same columns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from typing import Any, Dict, List, Sequence, Tuple

from . import bandwidth
from .cluster import BIN, LIB, Trouble, Workers, allocate, ask_workers, record, say, worker_group

COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "scatter", "gather", "sendrecv",
)  # fmt: skip
GLOO = ("all_reduce", "all_gather", "broadcast", "reduce", "scatter", "gather", "sendrecv")
# A node's variables that its ranks get explicitly; mpirun forwards nothing by itself.
FORWARDED = ("LD_LIBRARY_PATH", "NCCL_", "FI_")


def main() -> int:
    """The command."""
    options = _options().parse_args()
    own = record()
    group = worker_group(own, options.partition)
    per_node = options.gpus or max(1, int(group["accelerators"]))
    if not os.environ.get("HYPERPOD_INSIDE"):
        os.environ["HYPERPOD_INSIDE"] = "1"
        gres = str(group["gres"]) if group["accelerators"] else ""
        arguments = [f"{BIN}/run-nccl-test", *sys.argv[1:]]
        allocate(options.nodes, per_node, gres, options.partition or group["partition"] or None, arguments)
    return measure(options, per_node)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run-nccl-test", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("nodes", nargs="?", type=int, default=2, help="workers (default 2)")
    parser.add_argument("gpus", nargs="?", type=int, default=0, help="GPUs a worker (default all)")
    parser.add_argument("collective", nargs="?", choices=COLLECTIVES, default="all_reduce")
    parser.add_argument("-b", "--min", default="8", help="smallest message (default 8 bytes)")
    parser.add_argument("-e", "--max", help="largest message (default 16G; 32M with gloo)")
    parser.add_argument("-n", "--iterations", type=int, help="rounds a size (default 100; fewer with gloo)")
    parser.add_argument("-p", "--partition")
    parser.add_argument("--backend", choices=("nccl", "gloo"), help="default: by what the workers have")
    parser.add_argument(
        "--threshold", type=float, help="GB/s that the peak must reach (default by the catalogue; 0: none)"
    )
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for the test (default 1800)")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output, the rest on error")
    return parser


def measure(options: argparse.Namespace, per_node: int) -> int:
    """Within the allocation: detect on the workers, run, rate."""
    workers = ask_workers(options.nodes)
    complaints = workers.complaints()
    backend = options.backend or choose(workers)
    if backend == "gloo":
        per_node, command = 1, _gloo(options, workers)
    else:
        command = mpirun(options, workers, per_node, os.geteuid() == 0)
    say(
        f"{options.collective}, {options.nodes} nodes x {per_node}, {backend} over {workers.transport}, {workers.names}"
    )
    for complaint in complaints:
        say(f"WARNING: {complaint}")
    code, text = run_test(command, options.timeout)
    rows = bandwidth.parse_nccl(text)
    group = workers.first["group"]
    limit = _limit(options, backend, workers, per_node) if options.threshold is None else options.threshold or None
    rating = bandwidth.rate(rows, bandwidth.average_of(text, rows), limit)
    if code != 0:
        words = [line for line in text.splitlines() if line.strip()]
        why = f"the test ended with status {code}: {words[-1].strip() if words else 'no output'}"
        rating = dataclasses.replace(rating, passed=False, reasons=[*rating.reasons, why])
    if options.json:
        document: Dict[str, Any] = {
            "test": "nccl",
            "collective": options.collective,
            "backend": backend,
            "transport": workers.transport,
            "nodes": workers.names,
            "ranks_per_node": per_node,
            "instance_type": group["instance_type"],
            "warnings": complaints,
            "rows": [row.__dict__ for row in rows],
            **rating.record(),
        }
        print(json.dumps(document, indent=2, sort_keys=True))
    else:
        say("\n".join(bandwidth.table(rows)))
        say("\n".join(bandwidth.verdict(rating, bandwidth.hints(workers.transport))))
    return 0 if rating.passed else 1


def choose(workers: Workers) -> str:
    """nccl where the workers can; gloo where they have nothing better than Ethernet and no nccl-tests."""
    if workers.everywhere("nccl_tests"):
        return "nccl"
    if workers.transport == "tcp":
        return "gloo"
    raise Trouble(
        f"the workers ({', '.join(workers.names)}) have no nccl-tests, looked for all_reduce_perf in "
        "/usr/local/cuda*/efa/test-*, /opt/nccl-tests/build and /usr/local/bin; --backend gloo tests their Ethernet"
    )


def _limit(options: argparse.Namespace, backend: str, workers: Workers, per_node: int) -> "float | None":
    group = workers.first["group"]
    if backend == "gloo" and workers.transport != "tcp":
        return None  # the catalogue has the wire of EFA, which gloo does not use
    share = 1.0 if backend == "gloo" else min(1.0, per_node / max(1, int(group["accelerators"])))
    wire = float(group["network_gbps"])
    return bandwidth.threshold(options.collective, backend, wire, options.nodes, per_node, share)


def mpirun(options: argparse.Namespace, workers: Workers, per_node: int, root: bool) -> List[str]:
    """nccl-tests under Open MPI: its own traffic over plain sockets, NCCL's as the workers' variables say."""
    program = workers.everywhere("nccl_tests") + f"/{options.collective}_perf"
    launcher = str(workers.first["mpirun"] or "/opt/amazon/openmpi/bin/mpirun")
    command = [launcher, *(["--allow-run-as-root"] if root else [])]
    command += ["-np", str(options.nodes * per_node), "--map-by", f"ppr:{per_node}:node", "--bind-to", "none"]
    command += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_exclude", "lo,docker0"]
    variables = {
        **workers.environment,
        **{k: v for k, v in os.environ.items() if k in ("NCCL_DEBUG", "LD_LIBRARY_PATH")},
    }
    for name, value in sorted(variables.items()):
        if name.startswith(FORWARDED):
            command += ["-x", f"{name}={value}"]
    sizes = ["-b", options.min, "-e", options.max or "16G", "-f", "2", "-g", "1", "-c", "1"]
    return [*command, program, *sizes, "-n", str(options.iterations or 100)]


def _gloo(options: argparse.Namespace, workers: Workers) -> List[str]:
    if options.collective not in GLOO:
        raise Trouble(f"gloo has no {options.collective}; it has {', '.join(GLOO)}")
    python = workers.everywhere("python")
    if not python:
        missing = [str(fact["hostname"]) for fact in workers.facts if not fact["python"]]
        raise Trouble(
            f"no Python with PyTorch on {', '.join(missing) or 'all nodes alike'}; HYPERPOD_PYTHON may name one"
        )
    command = ["srun", "--mpi=none", f"--nodes={options.nodes}", f"--ntasks={options.nodes}", "--ntasks-per-node=1"]
    command += ["--gres=none", "--kill-on-bad-exit=1", python, f"{LIB}/training/gloo_sweep.py"]
    command += [options.collective, "--min", options.min, "--max", options.max or "32M"]
    command += ["--master", str(workers.first["address"])]
    return command + (["--iterations", str(options.iterations)] if options.iterations else [])


def run_test(command: Sequence[str], timeout: float) -> Tuple[int, str]:
    """Run a test to its end: status and output. A failed one's output is shown."""
    with subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    ) as process:
        try:
            text, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.terminate()
            text, _ = process.communicate()
            return 124, text + f"\nno end within {timeout:.0f} s"
    if process.returncode != 0:
        say(text)
    return process.returncode, text


def entry() -> int:
    """The command, its troubles in one line."""
    try:
        return main()
    except Trouble as trouble:
        print(f"run-nccl-test: {trouble}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(entry())
