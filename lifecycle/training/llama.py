"""The options, data and sizes of jobs/slurm/fsdp_llama.py, as published, and its learning rate."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

from training_report import Asked, Report

# Layers, width, feed-forward width, heads, key-value heads: the published sizes of Llama 3.2 1B, of Llama 2, and of
# Llama 3's 8B and 70B.
SIZES: Dict[str, Tuple[int, int, int, int, int]] = {
    "1b": (16, 2048, 8192, 32, 8),
    "7b": (32, 4096, 11008, 32, 32),
    "8b": (32, 4096, 14336, 32, 8),
    "13b": (40, 5120, 13824, 40, 40),
    "70b": (80, 8192, 28672, 64, 8),
}
# Checkpoints that are kept: an older one, in case the newest cannot be read.
KEPT = 2


def parser(description: str) -> argparse.ArgumentParser:
    """Return the trainer's options."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--model", choices=sorted(SIZES), default="7b")
    found.add_argument("--pretrained", help="Hugging Face model to start from; gated models need HF_TOKEN")
    found.add_argument("--out", required=True, help="folder of checkpoints, shared by all ranks")
    found.add_argument("--data", help="flat file of token ids (default: random tokens)")
    found.add_argument("--data-type", choices=("uint16", "uint32"), default="uint16", help="of --data")
    found.add_argument("--vocabulary", type=int, default=32000, help="of --data")
    found.add_argument("--context", type=int, default=4096, help="tokens a sequence")
    found.add_argument("--batch", type=int, default=1, help="sequences per data-parallel rank and step")
    found.add_argument("--steps", type=int, default=1000)
    found.add_argument("--save-every", type=int, default=100)
    found.add_argument(
        "--memory-every", type=int, default=0, help="steps between checkpoints in the nodes' memory, on EKS; 0: none"
    )
    found.add_argument("--log-every", type=int, default=10)
    found.add_argument("--warmup", type=int, default=100, help="steps until the learning rate is reached")
    found.add_argument("--rate", type=float, default=3e-4, help="learning rate")
    found.add_argument("--seed", type=int, default=1)
    return found


def tokens(options: argparse.Namespace) -> Any:
    """Return ``--data`` as an array on disk; None for random tokens.

    Raises SystemExit if there is no such file, or less than one sequence in it.
    """
    if not options.data:
        return None
    import numpy

    path = Path(options.data)
    if not path.is_file():
        raise SystemExit(f"--data {path}: no such file")
    found = numpy.memmap(str(path), dtype=options.data_type, mode="r") if path.stat().st_size else ()
    if len(found) < options.context:
        raise SystemExit(f"--data {path}: {len(found)} tokens, fewer than one sequence of --context has")
    return found


def batch(options: argparse.Namespace, data: Any, step: int, rank: int) -> Any:
    """Return this step's sequences, on the CPU. They depend only on step and rank: a resumed run repeats them."""
    import torch

    generator = torch.Generator().manual_seed(options.seed + step * 100_003 + rank)
    shape = (options.batch, options.context)
    if data is None:
        return torch.randint(options.vocabulary, shape, generator=generator)
    starts = torch.randint(len(data) - options.context + 1, (options.batch,), generator=generator)
    return torch.stack([torch.from_numpy(data[int(s) : int(s) + options.context].astype("int64")) for s in starts])


def rate(options: argparse.Namespace, step: int) -> float:
    """Return the learning rate: linear warm-up, then cosine decay to a tenth."""
    if step < options.warmup:
        return float(options.rate * (step + 1) / options.warmup)
    share = (step - options.warmup) / max(1, options.steps - options.warmup)
    return float(options.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, share)))))


def place() -> Tuple[int, int, int]:
    """Return rank, number of ranks and rank on this node; Slurm's variables become torchrun's, which PyTorch reads."""
    if "RANK" not in os.environ:
        for ours, slurm in (("RANK", "PROCID"), ("WORLD_SIZE", "NTASKS"), ("LOCAL_RANK", "LOCALID")):
            os.environ[ours] = os.environ[f"SLURM_{slurm}"]
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    return rank, world, local


def train(
    options: argparse.Namespace,
    first: int,
    data: Any,
    asked: Asked,
    one: Callable[[Any, float], Any],
    save: Callable[[int], None],
    remember: Callable[[int], None] = lambda step: None,
) -> None:
    """Run the steps from ``first`` on, until the last one or until a rank is asked to stop.

    ``one``: trains on these sequences at that learning rate, and returns the loss, a tensor on the rank's device.
    ``save``: writes a checkpoint, on all ranks; ``remember``: the same into the nodes' memory.
    """
    import torch
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    size, report, done = world * options.batch * options.context, Report(rank), 0
    report.begin()
    for step in range(first, options.steps):
        loss = one(batch(options, data, step, rank), rate(options, step))
        done += 1
        due = step == options.steps - 1 or (step > first and step % options.save_every == 0)
        if options.memory_every and step > first and step % options.memory_every == 0:
            remember(step)
        if step % options.log_every and not due:
            continue
        # One all-reduce for the values on which all ranks must agree: the mean loss, and whether any of them was asked
        # to stop.
        both = torch.stack([loss.detach().float() / world, torch.tensor(float(bool(asked)), device=loss.device)])
        dist.all_reduce(both)
        mean, stopping = float(both[0]), bool(both[1] > 0)
        report.step(step, size, mean, steps=done)
        report.alone(torch, loss.device)
        if rank == 0:
            print(report.line(), flush=True)
        done = 0
        if due or stopping:
            with report.checkpoint():
                save(step)
        if stopping:
            return
        report.begin()


def configuration(options: argparse.Namespace, kind: Any) -> Any:
    """Return transformers' LlamaConfig, which is ``kind``, for a model of that size."""
    layers, width, inner, heads, kv = SIZES[options.model]
    return kind(
        vocab_size=options.vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        max_position_embeddings=options.context,
        use_cache=False,
    )
