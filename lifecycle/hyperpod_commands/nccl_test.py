"""``run-nccl-test [nodes] [gpus] [collective]``: measures and rates the bus bandwidth between workers.

With NVIDIA GPUs it runs nccl-tests under MPI. With ``--backend gloo``, or when the transport is tcp and the workers
have no nccl-tests, it runs the same sweep with PyTorch's gloo and prints the same columns.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from typing import Any, Callable, Dict, List, Sequence, Tuple

from . import bandwidth
from .cluster import BIN, LIB, Trouble, Workers, allocate, as_person, ask_workers, record, say, worker_group

COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "scatter", "gather", "sendrecv",
)  # fmt: skip
GLOO = ("all_reduce", "all_gather", "broadcast", "reduce", "scatter", "gather", "sendrecv")
# mpirun forwards no variables by itself. These are passed to the ranks explicitly.
FORWARDED = ("LD_LIBRARY_PATH", "NCCL_", "FI_")
# Further folders for the ranks' loader: AWS's images have CUDA's NCCL next to the tests, and name its folder only in a
# login shell (awsome-distributed-ai, nccl-tests-ami.sbatch). Without the plugin's folder NCCL silently uses Ethernet.
CUDA = re.compile(r"/usr/local/cuda[^/]*")
LIBRARIES = (
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/amazon/efa/lib",
    "/opt/amazon/openmpi/lib",
)
# The exit status of coreutils' timeout, and the seconds between its SIGTERM and its SIGKILL.
TIMED_OUT, GRACE = 124, 20.0


def main() -> int:
    """Allocate the workers; inside the allocation, run the test."""
    options = parser().parse_args()
    as_person("run-nccl-test")
    own = record()
    group = worker_group(own, options.partition)
    per_node = options.gpus or max(1, group.accelerators)
    if not os.environ.get("HYPERPOD_INSIDE"):
        os.environ["HYPERPOD_INSIDE"] = "1"
        gres = group.gres if group.accelerators else ""
        arguments = [f"{BIN}/run-nccl-test", *sys.argv[1:]]
        allocate(options.nodes, per_node, gres, options.partition or group.partition or None, arguments)
    return measure(options, per_node)


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    found = argparse.ArgumentParser(prog="run-nccl-test", description=__doc__.split("\n")[0] if __doc__ else "")
    found.add_argument("nodes", nargs="?", type=int, default=2, help="number of workers (default 2)")
    found.add_argument("gpus", nargs="?", type=int, default=0, help="GPUs per worker (default: all)")
    found.add_argument("collective", nargs="?", choices=COLLECTIVES, default="all_reduce")
    found.add_argument("-b", "--min", default="8", help="smallest message size (default 8 bytes)")
    found.add_argument("-e", "--max", help="largest message size (default 16G; 32M with gloo)")
    found.add_argument("-n", "--iterations", type=int, help="iterations per size (default 100; fewer with gloo)")
    found.add_argument("-p", "--partition")
    found.add_argument("--backend", choices=("nccl", "gloo"), help="default: nccl where the workers can run it")
    found.add_argument("--threshold", type=float, help="required peak in GB/s (default: by instance type; 0 for none)")
    found.add_argument("--timeout", type=float, default=1800, help="seconds for the test (default 1800)")
    found.add_argument("--json", action="store_true", help="print the result as JSON, everything else to stderr")
    return found


def measure(options: argparse.Namespace, per_node: int) -> int:
    """Inside the allocation: inspect the workers, run the test, rate the result."""
    workers = ask_workers(options.nodes)
    complaints = workers.complaints()
    backend = options.backend or choose(workers)
    if backend == "gloo":
        per_node, command = 1, gloo(options, workers)
    else:
        command = mpirun(options, workers, per_node)
    say(
        f"{options.collective}, {options.nodes} nodes x {per_node}, {backend} over {workers.transport}, {workers.names}"
    )
    for complaint in complaints:
        say(f"WARNING: {complaint}")
    code, text = run_test(command, options.timeout)
    group = workers.first["group"]
    required = limit(options, backend, workers, per_node) if options.threshold is None else options.threshold or None
    rating = bandwidth.rate("nccl", text, required, failure(code, text))
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
            **rating.record(),
        }
        print(json.dumps(document, indent=2, sort_keys=True))
    else:
        say("\n".join(bandwidth.verdict(rating, bandwidth.hints(workers.transport))))
    return 0 if rating.passed else 1


def choose(workers: Workers) -> str:
    """Choose nccl if the workers can run it; gloo if they have only Ethernet and no nccl-tests."""
    if workers.everywhere("nccl_tests"):
        return "nccl"
    if workers.transport == "tcp":
        return "gloo"
    raise Trouble(
        f"the workers ({', '.join(workers.names)}) have no nccl-tests: all_reduce_perf is not in "
        "/usr/local/cuda*/efa/test-*, /opt/nccl-tests/build or /usr/local/bin; --backend gloo tests their Ethernet"
    )


def limit(options: argparse.Namespace, backend: str, workers: Workers, per_node: int) -> "float | None":
    """Return the GB/s that these workers should reach; None if unknown."""
    group = workers.first["group"]
    if backend == "gloo" and workers.transport != "tcp":
        return None  # the instance type's figure is EFA's, which gloo does not use
    share = 1.0 if backend == "gloo" else min(1.0, per_node / max(1, int(group["accelerators"])))
    wire = float(group["network_gbps"])
    return bandwidth.threshold(options.collective, backend, wire, options.nodes, per_node, share)


def mpirun(options: argparse.Namespace, workers: Workers, per_node: int) -> List[str]:
    """Return the command for nccl-tests under Open MPI, on these workers of the allocation. MPI itself uses TCP; the
    workers' variables select NCCL's transport.
    """
    program = workers.everywhere("nccl_tests") + f"/{options.collective}_perf"
    launcher = str(workers.first["mpirun"] or "/opt/amazon/openmpi/bin/mpirun")
    command = [launcher, "-np", str(options.nodes * per_node), "--map-by", f"ppr:{per_node}:node", "--bind-to", "none"]
    command += ["--host", ",".join(f"{name}:{per_node}" for name in workers.names)]
    command += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_exclude", "lo,docker0"]
    variables = {**workers.environment, "LD_LIBRARY_PATH": libraries(program)}
    if "NCCL_DEBUG" in os.environ:
        variables["NCCL_DEBUG"] = os.environ["NCCL_DEBUG"]
    for name, value in sorted(variables.items()):
        if name.startswith(FORWARDED):
            command += ["-x", f"{name}={value}"]
    sizes = ["-b", options.min, "-e", options.max or "16G", "-f", "2", "-g", "1", "-c", "1"]
    return [*command, program, *sizes, "-n", str(options.iterations or 100)]


def libraries(program: str) -> str:
    """Return the ranks' LD_LIBRARY_PATH: the person's own folders, and those that the tests need."""
    beside = CUDA.match(program)
    cuda = beside.group(0) if beside else "/usr/local/cuda"
    own = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    return ":".join(dict.fromkeys([*own, f"{cuda}/lib", f"{cuda}/lib64", *LIBRARIES]))


def gloo(options: argparse.Namespace, workers: Workers) -> List[str]:
    """Return the command for the same sweep with PyTorch's gloo, on these workers of the allocation."""
    if options.collective not in GLOO:
        raise Trouble(f"gloo has no {options.collective}; it has {', '.join(GLOO)}")
    python = workers.everywhere("python")
    if not python:
        missing = [str(fact["hostname"]) for fact in workers.facts if not fact["python"]]
        raise Trouble(
            f"no Python with PyTorch on {', '.join(missing) or 'the same path of all nodes'}; set HYPERPOD_PYTHON"
        )
    command = ["srun", "--mpi=none", f"--nodes={options.nodes}", f"--ntasks={options.nodes}", "--ntasks-per-node=1"]
    command += ["--gres=none", "--overlap", f"--nodelist={','.join(workers.names)}"]
    command += ["--kill-on-bad-exit=1", python, f"{LIB}/training/gloo_sweep.py"]
    command += [options.collective, "--min", options.min, "--max", options.max or "32M"]
    command += ["--master", str(workers.first["address"])]
    return command + (["--iterations", str(options.iterations)] if options.iterations else [])


def run_test(command: Sequence[str], timeout: float, show: Callable[[str], None] = say) -> Tuple[int, str]:
    """Run a test for at most ``timeout`` seconds, showing its output. Returns its status, and command and output."""
    lines = [" ".join(shlex.quote(word) for word in command)]
    show(lines[0])
    with subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        late = threading.Event()

        def end() -> None:
            late.set()
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()

        alarm = threading.Timer(timeout, end)
        alarm.daemon = True
        alarm.start()
        for line in process.stdout or ():
            lines.append(line.rstrip("\n"))
            show(lines[-1])
        code = process.wait()
        alarm.cancel()
    return (TIMED_OUT if late.is_set() else code), "\n".join(lines)


def failure(code: int, text: str) -> str:
    """Return the meaning of the exit status from ``run_test``; empty if it is 0."""
    if not code:
        return ""
    said = [line for line in text.splitlines()[1:] if line.strip()]
    status = "timed out" if code == TIMED_OUT else f"ended with status {code}"
    return f"the test {status}: {said[-1].strip() if said else 'no output'}"


def entry() -> int:
    """Run the command; report a failure in one line."""
    try:
        return main()
    except Trouble as trouble:
        print(f"run-nccl-test: {trouble}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(entry())
