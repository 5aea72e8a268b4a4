"""Measures a collective's bus bandwidth over plain sockets, by message size, in nccl-tests' columns.

For nodes without EFA and without nccl-tests. One process a node under srun; PyTorch's gloo moves the data.
Bus bandwidth is nccl-tests' (doc/PERFORMANCE.md): algorithm bandwidth times a factor of the number of ranks.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import time
from typing import Any, Callable, Dict, Tuple

from nanogpt import end, run

ELEMENT = 4
SECONDS_A_SIZE = 0.4


def main() -> None:
    """Run the sweep; rank 0 prints."""
    options = _options().parse_args()
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    torch.set_num_threads(1)
    port = 20000 + int(os.environ.get("SLURM_JOB_ID", "0")) * 7 % 12000 + int(os.environ.get("SLURM_STEP_ID", "0")) % 7
    store = dist.TCPStore(options.master, port, world, rank == 0, timeout=datetime.timedelta(seconds=120))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    if rank == 0:
        print(f"# {options.collective}, gloo, {world} ranks, PyTorch {torch.__version__}", flush=True)
        print(
            f"# {'size':>10} {'count':>12} {'type':>8} {'redop':>6} {'root':>6} "
            f"{'time':>9} {'algbw':>7} {'busbw':>7} #wrong"
        )
    size, largest, speeds = _bytes(options.min), _bytes(options.max), []
    while size <= largest:
        count = max(1, size // ELEMENT)
        seconds, wrong = _measure(torch, dist, options, count, rank, world)
        algbw = count * ELEMENT / seconds / 1e9
        busbw = algbw * _factor(options.collective, world)
        speeds.append(busbw)
        if rank == 0:
            redop, root = ("sum", -1) if options.collective in ("all_reduce", "reduce") else ("none", -1)
            print(
                f"{count * ELEMENT:>12} {count:>12} {'float':>8} {redop:>6} {root:>6} "
                f"{seconds * 1e6:>9.1f} {algbw:>7.2f} {busbw:>7.2f} {wrong:>6}",
                flush=True,
            )
        size *= 2
    if rank == 0:
        print(f"# Avg bus bandwidth    : {sum(speeds) / len(speeds):.4f}")
    end(0)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("collective")
    parser.add_argument("--master", required=True, help="address of rank 0's node")
    parser.add_argument("--min", default="8")
    parser.add_argument("--max", default="32M")
    parser.add_argument(
        "--iterations", type=int, help="iterations per size (default: as many as fit into 0.4 s, 3 to 100)"
    )
    return parser


def _bytes(text: str) -> int:
    match = re.match(r"^(\d+)([kKmMgG]?)[bB]?$", text)
    if not match:
        raise SystemExit(f"{text} is no size; 8, 64K, 32M or 1G are")
    return int(match.group(1)) * {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[match.group(2).lower()]


def _factor(collective: str, world: int) -> float:
    if collective == "all_reduce":
        return 2 * (world - 1) / world
    return (world - 1) / world if collective in ("all_gather", "scatter", "gather") else 1.0


def _operation(torch: Any, dist: Any, name: str, count: int, rank: int, world: int) -> Tuple[Callable[[], Any], Any]:
    """Return the collective, and a function that checks its first result."""
    ours = torch.full((count,), float(rank + 1))
    part = max(1, count // world)
    parts = [torch.zeros(part) for _ in range(world)]
    total = world * (world + 1) / 2

    def sendrecv() -> None:
        got = torch.zeros(count)
        work = dist.irecv(got, (rank - 1) % world)
        dist.send(ours, (rank + 1) % world)
        work.wait()
        parts[0] = got

    table: Dict[str, Tuple[Callable[[], Any], Callable[[], Any]]] = {
        "all_reduce": (lambda: dist.all_reduce(ours), lambda: (ours != total).sum()),
        "broadcast": (lambda: dist.broadcast(ours, 0), lambda: (ours != 1).sum()),
        "reduce": (lambda: dist.reduce(ours, 0), lambda: (ours != total).sum() if rank == 0 else 0),
        "all_gather": (
            lambda: dist.all_gather(parts, ours[:part].contiguous()),
            lambda: sum((p != i + 1).sum() for i, p in enumerate(parts)),
        ),
        "gather": (
            lambda: dist.gather(ours[:part].contiguous(), parts if rank == 0 else None, 0),
            lambda: sum((p != i + 1).sum() for i, p in enumerate(parts)) if rank == 0 else 0,
        ),
        "scatter": (
            lambda: dist.scatter(
                parts[rank], [torch.full((part,), float(i + 1)) for i in range(world)] if rank == 0 else None, 0
            ),
            lambda: (parts[rank] != rank + 1).sum(),
        ),
        "sendrecv": (sendrecv, lambda: (parts[0] != (rank - 1) % world + 1).sum()),
    }  # fmt: skip
    if name not in table:
        raise SystemExit(f"gloo has no {name}; it has {', '.join(table)}")
    return table[name]


def _measure(
    torch: Any, dist: Any, options: argparse.Namespace, count: int, rank: int, world: int
) -> Tuple[float, int]:
    """Return the slowest rank's seconds per round, and the number of wrong values in the first round."""
    operation, check = _operation(torch, dist, options.collective, count, rank, world)
    operation()
    wrong = torch.tensor([float(check())])
    dist.all_reduce(wrong)
    began = time.perf_counter()
    operation()
    once = torch.tensor([time.perf_counter() - began])
    # All ranks must run the same number of rounds.
    dist.all_reduce(once, op=dist.ReduceOp.MAX)
    rounds = options.iterations or int(min(100, max(3, SECONDS_A_SIZE / max(float(once), 1e-6))))
    dist.barrier()
    began = time.perf_counter()
    for _ in range(rounds):
        operation()
    spent = torch.tensor([(time.perf_counter() - began) / rounds])
    dist.all_reduce(spent, op=dist.ReduceOp.MAX)
    return float(spent), int(wrong)


if __name__ == "__main__":
    run(main)
