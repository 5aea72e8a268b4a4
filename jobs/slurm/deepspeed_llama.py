"""Trains a Llama-class model with DeepSpeed's ZeRO; started by srun or torchrun.

The same sizes, data and schedule as fsdp_llama.py. Every rank saves and loads its own part of a checkpoint, and a job
that starts again resumes from the newest one that all ranks have finished. Needs the packages deepspeed (0.16 or newer)
and transformers.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

sys.path.insert(0, os.environ.get("TRAINING", "/opt/hyperpod/lib/training"))
import llama
from training_report import Asked

# DeepSpeed reads the name of the newest checkpoint from this file.
LATEST = "latest"


def main() -> None:
    """Train as one rank of the job."""
    asked = Asked()
    parser = llama.parser("Llama on DeepSpeed")
    parser.add_argument("--stage", type=int, choices=(1, 2, 3), default=3, help="of ZeRO: what is sharded (default 3)")
    options = parser.parse_args()
    tokens = llama.tokens(options)
    rank, world, local = llama.place()
    torch.cuda.set_device(local)
    deepspeed.init_distributed("nccl")
    torch.manual_seed(options.seed)
    model = _model(options)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings(options))
    out = Path(options.out)
    first = resume(engine, out)
    if rank == 0:
        stage = f"ZeRO-{options.stage}, DeepSpeed {deepspeed.__version__}, PyTorch {torch.__version__}"
        print(f"{options.model}: {world} ranks, {stage}")
        print(f"resumed after step {first - 1}" if first else "started from step 0", flush=True)

    def one(sequences: Any, rate: float) -> Any:
        for group in engine.optimizer.param_groups:
            group["lr"] = rate
        sequences = sequences.to(engine.device)
        loss = engine(input_ids=sequences, labels=sequences).loss
        engine.backward(loss)
        engine.step()
        return loss

    llama.train(options, first, tokens, asked, one, lambda step: save(engine, out, step))
    dist.destroy_process_group()


def settings(options: Any) -> dict[str, Any]:
    """DeepSpeed's configuration, as its page "DeepSpeed Configuration JSON" names the keys."""
    # PyTorch's own AdamW: DeepSpeed's is compiled when it is first used, which takes nvcc on every node.
    adam = {"lr": options.rate, "betas": [0.9, 0.95], "weight_decay": 0.1, "torch_adam": True}
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": options.stage, "overlap_comm": True, "contiguous_gradients": True},
        "optimizer": {"type": "AdamW", "params": adam},
        "steps_per_print": 1 << 30,
    }


def _model(options: Any) -> Any:
    """The model. At stage 3 random weights are made in parts: no rank has memory for all of them.

    Pretrained weights are not: until DeepSpeed shards them, every rank has all of them in its node's memory, 2 bytes a
    parameter: with 8 ranks 112 GB for 7 billion, and 1.1 TB for 70 billion. fsdp_llama.py reads them in one rank.
    """
    config = llama.configuration(options, LlamaConfig)
    if options.pretrained:
        # By its older name, which every release takes: "dtype" is new in transformers 4.56.
        model = AutoModelForCausalLM.from_pretrained(options.pretrained, torch_dtype=torch.bfloat16, use_cache=False)
    else:
        with deepspeed.zero.Init(config_dict_or_path=settings(options), enabled=options.stage == 3):
            model = LlamaForCausalLM(config)
        _initialize(model, config)
    model.gradient_checkpointing_enable()
    return model


def _initialize(model: Any, config: Any) -> None:
    """Random weights. transformers' own cannot see a parameter whose parts are elsewhere."""
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0), torch.no_grad():
            if "norm" in name:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, config.initializer_range)


def save(engine: Any, out: Path, step: int) -> None:
    """Every rank writes its part. Only then is it named the newest: DeepSpeed's rank 0 does not wait for others."""
    tag = f"step-{step:08d}"
    engine.save_checkpoint(str(out), tag=tag, client_state={"step": step}, save_latest=False)
    # save_checkpoint ends with a barrier.
    if dist.get_rank() == 0:
        aside = out / f".{LATEST}.new"
        aside.write_text(tag, encoding="utf-8")
        aside.replace(out / LATEST)
        for old in sorted(out.glob("step-*"))[: -llama.KEPT]:
            shutil.rmtree(old)
        print(f"checkpoint {out / tag}", flush=True)


def resume(engine: Any, out: Path) -> int:
    """The next step, from the newest complete checkpoint. Raises SystemExit where it cannot be read."""
    if not (out / LATEST).is_file():
        return 0
    path, state = engine.load_checkpoint(str(out))
    if path is None:
        raise SystemExit(f"{out}/{LATEST} names a checkpoint that cannot be read")
    return int(state["step"]) + 1


if __name__ == "__main__":
    sys.exit(main())
