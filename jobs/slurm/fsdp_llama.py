"""Trains a Llama-class model with PyTorch's fully sharded data parallelism; started by srun or torchrun.

Every rank holds a slice of parameters, gradients and optimizer state, gathers a layer when it needs it, and saves and
loads its own slice of a checkpoint. Tokens come from a flat file of 16- or 32-bit integers, or are random.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

sys.path.insert(0, os.environ.get("TRAINING", "/opt/hyperpod/lib/training"))
from training_report import Report

# Layers, width, feed-forward width, heads, key-value heads: the published sizes of Llama 2, and Llama 3's 8B and 70B.
SIZES = {
    "7b": (32, 4096, 11008, 32, 32),
    "8b": (32, 4096, 14336, 32, 8),
    "13b": (40, 5120, 13824, 40, 40),
    "70b": (80, 8192, 28672, 64, 8),
}
KEPT = 2


def main() -> None:
    """Train as one rank of the job."""
    options = _options().parse_args()
    if "RANK" not in os.environ:
        # torch's env:// reads torchrun's variables.
        for ours, slurm in (("RANK", "PROCID"), ("WORLD_SIZE", "NTASKS"), ("LOCAL_RANK", "LOCALID")):
            os.environ[ours] = os.environ[f"SLURM_{slurm}"]
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    mesh = init_device_mesh("cuda", (world,))
    torch.manual_seed(options.seed)
    model = _model(options, mesh, rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    out = Path(options.out)
    first = _resume(out, model, optimizer)
    if rank == 0:
        size = sum(p.numel() for p in model.parameters()) / 1e9
        print(f"{options.model}: {size:.2f}B parameters, {world} ranks, PyTorch {torch.__version__}")
        print(f"resumed after step {first - 1}" if first else "started from step 0", flush=True)
    stop = [False]
    signal.signal(signal.SIGUSR1, lambda *_: stop.__setitem__(0, True))
    _train(options, model, optimizer, out, first, stop)
    dist.destroy_process_group()


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Llama on PyTorch FSDP")
    parser.add_argument("--model", choices=sorted(SIZES), default="7b")
    parser.add_argument("--pretrained", help="Hugging Face model to start from; gated models need HF_TOKEN")
    parser.add_argument("--out", required=True)
    parser.add_argument("--data", help="flat file of token ids (default: random tokens)")
    parser.add_argument("--data-type", choices=("uint16", "uint32"), default="uint16")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=1, help="sequences per rank and step")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def _model(options: argparse.Namespace, mesh: Any, rank: int) -> Any:
    """The sharded model. It is sharded before it is allocated, so a rank needs memory only for its own shards."""
    source = None
    if options.pretrained:
        # Loaded into one rank's host memory; the other ranks get their shards from it.
        if rank == 0:
            source = AutoModelForCausalLM.from_pretrained(options.pretrained, torch_dtype=torch.float32)
        config = LlamaConfig.from_pretrained(options.pretrained)
    else:
        layers, width, inner, heads, kv = SIZES[options.model]
        config = LlamaConfig(
            vocab_size=options.vocabulary,
            hidden_size=width,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv,
            max_position_embeddings=options.context,
            use_cache=False,
        )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cuda")
    _buffers(model, config)
    if options.pretrained:
        whole = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model, source.state_dict() if source is not None else {}, options=whole)
    else:
        _initialize(model, config)
    return model


def _buffers(model: Any, config: LlamaConfig) -> None:
    """Compute the rotary frequencies: they are not trained, and `to_empty` left them uninitialized."""
    rotary = type(model.model.rotary_emb)(config=config, device="cuda")
    model.model.rotary_emb.inv_freq = rotary.inv_freq
    model.model.rotary_emb.original_inv_freq = rotary.inv_freq


def _initialize(model: Any, config: LlamaConfig) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.fill_(1.0)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                parameter.normal_(0.0, config.initializer_range)


def _train(options: argparse.Namespace, model: Any, optimizer: Any, out: Path, first: int, stop: list[bool]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    tokens = _tokens(options)
    report, done = Report(rank), 0
    report.begin()
    for step in range(first, options.steps):
        for group in optimizer.param_groups:
            group["lr"] = _rate(options, step)
        batch = _batch(options, tokens, step, rank)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done += 1
        last = step == options.steps - 1
        due = last or (step > first and step % options.save_every == 0)
        if step % options.log_every and not due:
            continue
        # One all-reduce for what all ranks must agree on: the mean loss, and whether any of them was asked to stop.
        both = torch.stack([loss.detach().float() / world, torch.tensor(float(stop[0]), device="cuda")])
        dist.all_reduce(both)
        tokens = world * options.batch * options.context
        seconds = report.step(step, tokens, float(both[0]), steps=done)
        if rank == 0:
            rate = tokens / seconds
            print(f"step {step}: loss {both[0]:.4f}, {seconds * 1000:.0f} ms, {rate:,.0f} tokens/s", flush=True)
        done = 0
        stopping = bool(both[1] > 0)
        if due or stopping:
            with report.checkpoint():
                _save(out, model, optimizer, step)
        if stopping:
            return
        report.begin()


def _rate(options: argparse.Namespace, step: int) -> float:
    """Linear warm-up, then cosine decay to a tenth."""
    if step < options.warmup:
        return float(options.rate * (step + 1) / options.warmup)
    share = (step - options.warmup) / max(1, options.steps - options.warmup)
    return float(options.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, share)))))


def _tokens(options: argparse.Namespace) -> Any:
    if not options.data:
        return None
    import numpy

    return numpy.memmap(options.data, dtype=options.data_type, mode="r")


def _batch(options: argparse.Namespace, tokens: Any, step: int, rank: int) -> Any:
    """This step's sequences. They depend only on step and rank, so a resumed run reads the same data."""
    generator = torch.Generator().manual_seed(options.seed + step * 100_003 + rank)
    shape = (options.batch, options.context)
    if tokens is None:
        return torch.randint(options.vocabulary, shape, generator=generator).cuda()
    starts = torch.randint(len(tokens) - options.context, (options.batch,), generator=generator)
    rows = [torch.from_numpy(tokens[int(s) : int(s) + options.context].astype("int64")) for s in starts]
    return torch.stack(rows).cuda()


def _save(out: Path, model: Any, optimizer: Any, step: int) -> None:
    """Every rank writes its shard to a temporary folder, which is then renamed; the oldest checkpoint is deleted."""
    final, aside = out / f"step-{step:08d}", out / f".step-{step:08d}.new"
    if dist.get_rank() == 0:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    dist.barrier()
    weights, states = get_state_dict(model, optimizer)
    checkpoint.save({"model": weights, "optimizer": states, "step": torch.tensor(step)}, checkpoint_id=str(aside))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
        for old in sorted(out.glob("step-*"))[:-KEPT]:
            shutil.rmtree(old)
        print(f"checkpoint {final}", flush=True)


def _resume(out: Path, model: Any, optimizer: Any) -> int:
    """The next step, from the newest complete checkpoint. All ranks load the one that rank 0 sees."""
    found = [str(sorted(out.glob("step-*"))[-1]) if any(out.glob("step-*")) else ""]
    dist.broadcast_object_list(found, src=0)
    if not found[0]:
        return 0
    weights, states = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": states, "step": torch.tensor(0)}
    checkpoint.load(state, checkpoint_id=found[0])
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    return int(state["step"]) + 1


if __name__ == "__main__":
    sys.exit(main())
