"""Trains the cluster's small GPT on NeuronCores with PyTorch/XLA; started by neuron.sbatch."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend  # noqa: F401 (registers the backend)

sys.path.insert(0, os.environ.get("TRAINING", "/opt/hyperpod/lib/training"))
import nanogpt
from training_report import Report

KEPT = 2


def main() -> None:
    """Train as one rank, on one NeuronCore."""
    options = _options().parse_args()
    dist.init_process_group("xla")
    rank, world, device = dist.get_rank(), dist.get_world_size(), xm.xla_device()
    text = nanogpt.make_text(options.seed, 400_000)
    symbols = sorted(set(text))
    data = torch.tensor([symbols.index(character) for character in text], dtype=torch.long)
    torch.manual_seed(options.seed)
    model = nanogpt.build(torch, len(symbols), options).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    out = Path(options.out)
    first = _resume(out, model, optimizer)
    if rank == 0:
        print(f"{world} NeuronCores, " + (f"resumed after iter {first - 1}" if first else "started"), flush=True)
    report = Report(rank)
    for step in range(first, options.steps + 1):
        report.begin()
        loss = _step(model, optimizer, data, options, step, rank, device)
        report.step(step, world * options.batch * options.block)
        if step % options.log_every == 0 or step == options.steps:
            mean = xm.mesh_reduce("loss", loss.item(), lambda values: sum(values) / len(values))
            if rank == 0:
                print(f"iter {step}: loss {mean:.4f}", flush=True)
            report.alone(torch, device, xm)
        if step == options.steps or (step > first and step % options.save_every == 0):
            with report.checkpoint():
                _save(out, model, optimizer, step, rank)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--rate", type=float, default=1e-3)
    for name, value in (("batch", 12), ("block", 64), ("layers", 4), ("heads", 4), ("embed", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser


def _step(model: Any, optimizer: Any, data: Any, options: argparse.Namespace, step: int, rank: int, device: Any) -> Any:
    generator = torch.Generator().manual_seed(options.seed + step * 100_003 + rank)
    starts = torch.randint(len(data) - options.block - 1, (options.batch,), generator=generator)
    x = torch.stack([data[i : i + options.block] for i in starts]).to(device)
    y = torch.stack([data[i + 1 : i + 1 + options.block] for i in starts]).to(device)
    optimizer.zero_grad()
    loss = model(x, y)
    loss.backward()
    # All-reduces the gradients and runs the graph.
    xm.optimizer_step(optimizer)
    xm.mark_step()
    return loss


def _save(out: Path, model: Any, optimizer: Any, step: int, rank: int) -> None:
    """Save the checkpoint atomically: rank 0 writes a temporary file and renames it while the others wait."""
    # Only tensors and integers, as weights_only requires. The optimizer's settings come from the options.
    state = {"model": model.state_dict(), "moments": optimizer.state_dict()["state"], "step": step}
    out.mkdir(parents=True, exist_ok=True)
    aside = out / f".checkpoint-{step:08d}.pt.new"
    xm.save(state, str(aside), master_only=True, global_master=True)
    if rank == 0:
        aside.rename(out / f"checkpoint-{step:08d}.pt")
        for old in sorted(out.glob("checkpoint-*.pt"))[:-KEPT]:
            old.unlink()
        print(f"checkpoint at iter {step}", flush=True)
    xm.rendezvous("saved")


def _resume(out: Path, model: Any, optimizer: Any) -> int:
    """The next step, from the newest readable checkpoint."""
    for path in sorted(out.glob("checkpoint-*.pt"), reverse=True):
        try:
            # weights_only: a user who can write to the folder must not be able to run code here.
            state = torch.load(str(path), map_location="cpu", weights_only=True)
            moments = {**optimizer.state_dict(), "state": state["moments"]}
        except Exception as error:
            print(f"{path.name} cannot be read ({error}); trying the one before", flush=True)
            continue
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(moments)
        return int(state["step"]) + 1
    return 0


if __name__ == "__main__":
    main()
