"""Trains a Llama-class model with PyTorch's fully sharded data parallelism; started by srun or torchrun.

Every rank holds a slice of parameters, gradients and optimizer state, gathers a layer when it needs it, and saves and
loads its own slice of a checkpoint. Tokens come from a flat file of 16- or 32-bit integers, or are random.
"""

from __future__ import annotations

import argparse
import os
import re
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
    # What goes to the nodes' memory leaves the GPUs first.
    backend = "cpu:gloo,cuda:nccl" if options.memory_every else "nccl"
    dist.init_process_group(backend, device_id=torch.device("cuda", local))
    mesh = init_device_mesh("cuda", (world,))
    torch.manual_seed(options.seed)
    model = _model(options, mesh, rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    out = Path(options.out)
    memory = Memory(out) if options.memory_every else None
    first = _resume(out, model, optimizer, memory)
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

    def remember(step: int) -> None:
        if memory:
            memory.save(_state(model, optimizer, step), step)

    llama.train(options, first, tokens, stop, one, lambda step: _save(out, model, optimizer, step), remember)
    if memory:
        memory.wait()
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
    checkpoint.save(_state(model, optimizer, step), checkpoint_id=str(aside))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
        for old in sorted(out.glob("step-*"))[: -llama.KEPT]:
            shutil.rmtree(old)
        print(f"checkpoint {final}", flush=True)


def _resume(out: Path, model: Any, optimizer: Any, memory: Memory | None = None) -> int:
    """The next step, from the newest complete checkpoint, in memory or on disk. All ranks load what rank 0 sees."""
    saved = sorted(out.glob("step-*"))
    found = [saved[-1].name if saved else "", memory.newest() if memory else -1]
    dist.broadcast_object_list(found, src=0)
    newest, remembered = found
    if memory and remembered > (int(newest.partition("-")[2]) if newest else -1):
        try:
            return _load(model, optimizer, storage_reader=memory.reader(remembered))
        except (Exception, checkpoint.CheckpointException) as error:  # The nodes that had a part of it are gone.
            print(f"the checkpoint of step {remembered} in memory cannot be read: {error}", flush=True)
            if not newest:
                # It may have been read in part.
                raise SystemExit(f"there is none in {out} either: start again with another --out") from error
    return _load(model, optimizer, checkpoint_id=str(out / newest)) if newest else 0


def _load(model: Any, optimizer: Any, **source: Any) -> int:
    """Load a checkpoint. Return the step after it."""
    state = _state(model, optimizer, 0)
    checkpoint.load(state, **source)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return int(state["step"]) + 1


def _state(model: Any, optimizer: Any, step: int) -> dict[str, Any]:
    weights, states = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": states, "step": torch.tensor(step)}


class Memory:
    """Checkpoints in the nodes' memory, by HyperPod's managed tiered checkpointing (charts.checkpointMemoryPercent).

    HyperPod's daemon also copies each to a neighbouring node. Training continues while one is saved. Needs the package
    amzn-sagemaker-checkpointing in the image.
    """

    def __init__(self, out: Path) -> None:
        from amzn_sagemaker_checkpointing.checkpointing.filesystem.filesystem import (
            SageMakerTieredStorageReader,
            SageMakerTieredStorageWriter,
        )
        from amzn_sagemaker_checkpointing.config.sagemaker_checkpoint_config import SageMakerCheckpointConfig

        self._read, self._write, self._saving = SageMakerTieredStorageReader, SageMakerTieredStorageWriter, None
        # Every team's pods use the same daemons: its user's number keeps their checkpoints apart.
        name = re.sub("[^A-Za-z0-9]+", "-", f"{os.getuid()}-{out}")
        self._config = SageMakerCheckpointConfig(namespace=name, world_size=dist.get_world_size())

    def save(self, state: dict[str, Any], step: int) -> None:
        """Begin to save. Waits until the one before is saved."""
        self.wait()
        try:
            writer = self._write(checkpoint_config=self._config, step=step)
            self._saving = checkpoint.async_save(state, storage_writer=writer)
        except Exception as error:  # Of the package. Those on disk remain.
            print(f"no checkpoint of step {step} in memory: {error}", flush=True)

    def wait(self) -> None:
        """Wait until the last one is saved, and tell if it is not."""
        if self._saving is not None and (error := self._saving.exception()):
            print(f"no checkpoint in memory: {error}", flush=True)
        self._saving = None

    def newest(self) -> int:
        """The step of the newest one; -1 if there is none, or nobody answers."""
        try:
            reader = self.reader(None)
            return reader.step if reader.read_metadata().state_dict_metadata else -1
        except Exception as error:
            print(f"no checkpoint from memory: {error}", flush=True)
            return -1

    def reader(self, step: int | None) -> Any:
        """What loads the one of that step."""
        return self._read(checkpoint_config=self._config, step=step)


if __name__ == "__main__":
    sys.exit(main())
