"""Trains a Llama-class model with PyTorch's fully sharded data parallelism; started by srun or torchrun.

Every rank holds a slice of parameters, gradients and optimizer state, gathers a layer when it needs it, and saves and
loads its own slice of a checkpoint. Tokens come from a flat file of 16- or 32-bit integers, or are random.
"""

from __future__ import annotations

import argparse
import os
import shutil
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
import llama
from training_report import Asked


def main() -> None:
    """Train as one rank of the job."""
    stop = Asked()
    options = llama.parser("Llama on PyTorch FSDP").parse_args()
    tokens = llama.tokens(options)
    rank, world, local = llama.place()
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

    def one(sequences: Any, rate: float) -> Any:
        for group in optimizer.param_groups:
            group["lr"] = rate
        sequences = sequences.cuda()
        loss = model(input_ids=sequences, labels=sequences).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    llama.train(options, first, tokens, stop, one, lambda step: _save(out, model, optimizer, step))
    dist.destroy_process_group()


def _model(options: argparse.Namespace, mesh: Any, rank: int) -> Any:
    """The sharded model. It is sharded before it is allocated, so a rank needs memory only for its own shards."""
    source = None
    if options.pretrained:
        # Loaded into one rank's host memory; the other ranks get their shards from it.
        if rank == 0:
            source = AutoModelForCausalLM.from_pretrained(options.pretrained, torch_dtype=torch.float32)
        config = LlamaConfig.from_pretrained(options.pretrained)
    else:
        config = llama.configuration(options, LlamaConfig)
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
        for old in sorted(out.glob("step-*"))[: -llama.KEPT]:
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
