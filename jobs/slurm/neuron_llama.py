"""Trains a Llama-class model on NeuronCores with Optimum Neuron (0.4 or newer); started by torchrun.

Tensor parallelism within a node, ZeRO-1 across data-parallel ranks. A job that starts again resumes from its newest
complete checkpoint. NxD (neuronx-distributed) writes and reads checkpoints, because Optimum Neuron's own trainer
refuses to resume. Tokens come from a flat file of 16- or 32-bit integers, or are random.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from typing import Any

import neuronx_distributed as nxd
import numpy as np
import torch
import torch_xla.core.xla_model as xm
from optimum.neuron import NeuronTrainer, NeuronTrainingArguments
from optimum.neuron.models.training import NeuronModelForCausalLM
from torch.utils.data import Dataset, SequentialSampler
from transformers import LlamaConfig

sys.path.insert(0, os.environ.get("TRAINING", "/opt/hyperpod/lib/training"))
import llama
from training_report import Report

SIZES = ("7b", "8b", "13b")


class Tokens(Dataset):  # type: ignore[type-arg]
    """Sequences of a fixed length, from a flat file or random."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._data = llama.tokens(options)
        self._length, self._seed, self._vocabulary = options.context, options.seed, options.vocabulary
        # Random sequences: enough that no step sees one twice.
        self._count = len(self._data) // self._length if self._data is not None else 1 << 20
        # A step without a common factor with the number: neighbours of the file are far from each other in the order
        # of training, and each sequence has its turn.
        self._stride = next(n for n in range(max(1, self._count * 5 // 8), 2 * self._count + 1) if self._fits(n))
        # Sequences that earlier runs have seen. They are skipped, because every run starts the order again.
        self.seen = 0

    def _fits(self, stride: int) -> bool:
        return math.gcd(stride, self._count) == 1

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = (index + self.seen) * self._stride % self._count
        if self._data is None:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + index)
            ids = torch.randint(self._vocabulary, (self._length,), generator=generator)
        else:
            piece = self._data[index * self._length : (index + 1) * self._length]
            ids = torch.from_numpy(piece.astype(np.int64))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


class Trainer(NeuronTrainer):  # type: ignore[misc]
    """Optimum Neuron's trainer with checkpoints from which a later run can continue, and what its rank tells of it.

    ``tokens``: of all ranks in one step.
    """

    tokens = 0

    def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
        """In the order of the data, of which ranks get every so many: Optimum Neuron shuffles it otherwise, by the same
        seed in every run (optimum-neuron 0.4, accelerator.py), and a run that resumes could not skip what was seen."""
        return SequentialSampler(self.train_dataset)

    def setup_training(self, *args: Any, **kwargs: Any) -> None:
        """Create model, optimizer and schedule, with their state from a checkpoint if there is one."""
        super().setup_training(*args, **kwargs)
        if nxd.has_checkpoint(self.args.output_dir):
            self._resume()
        self._report, self._told = Report(int(os.environ.get("RANK", "0"))), self.state.global_step
        self._report.begin()

    def log(self, logs: dict[str, float]) -> None:
        """Every ``logging_steps``, when the devices have caught up with the program: only then times mean something."""
        super().log(logs)
        done = self.state.global_step - self._told
        if done > 0:
            self._report.step(self.state.global_step, self.tokens, logs.get("loss"), steps=done)
            self._told = self.state.global_step
            self._report.alone(torch, xm.xla_device(), xm)
            self._report.begin()

    def _resume(self) -> None:
        known = nxd.load_checkpoint(
            self.args.output_dir, model=self.model, optimizer=self._own_optimizer, scheduler=self.lr_scheduler
        )
        step = self.state.global_step = self.global_step_last_logged = int(known["step"])
        self.train_dataset.seen = step * int(known["sequences"])
        if xm.is_master_ordinal():
            print(f"resumed after step {step}", flush=True)

    def _save_checkpoint(self) -> None:
        """Every rank saves its part. NxD marks the checkpoint as done after the last one, and deletes the oldest."""
        step = self.state.global_step
        with self._report.checkpoint():
            nxd.save_checkpoint(
                self.args.output_dir,
                tag=f"step_{step:08d}",
                model=self.model,
                optimizer=self._own_optimizer,
                scheduler=self.lr_scheduler,
                user_content={"step": step, "sequences": self.args.train_batch_size},
                use_xser=True,
                num_kept_ckpts=llama.KEPT,
            )
        if self._told == step:
            # No part of the next steps.
            self._report.begin()
        if xm.is_master_ordinal():
            print(f"checkpoint at step {step}", flush=True)

    @property
    def _own_optimizer(self) -> Any:
        """The optimizer inside Accelerate's wrapper. Its type tells NxD that data-parallel ranks share its state."""
        return self.optimizer.optimizer


def main() -> None:
    """Train as one rank, on one NeuronCore."""
    options = _options().parse_args()
    data = Tokens(options)
    arguments = NeuronTrainingArguments(
        output_dir=options.out,
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        learning_rate=options.rate,
        warmup_steps=options.warmup,
        weight_decay=0.1,
        adam_beta2=0.95,
        bf16=True,
        gradient_checkpointing=True,
        tensor_parallel_size=options.tensor_parallel,
        zero_1=True,
        logging_steps=options.log_every,
        save_steps=options.save_every,
        seed=options.seed,
        report_to="none",
    )
    trainer = Trainer(_model(options, arguments), arguments, train_dataset=data)
    replicas = int(os.environ.get("WORLD_SIZE", "1")) // options.tensor_parallel or 1
    trainer.tokens = replicas * options.batch * options.context
    trainer.train()


def _options() -> argparse.ArgumentParser:
    parser = llama.parser("Llama on Trainium", SIZES)
    # AWS Neuron documentation, "Training Llama3.1-8B, Llama3-8B and Llama2-7B with Tensor Parallelism and ZeRO-1".
    parser.add_argument("--tensor-parallel", type=int, default=8, help="NeuronCores that share a layer")
    return parser


def _model(options: argparse.Namespace, arguments: NeuronTrainingArguments) -> Any:
    """The model, sharded as configured, with pretrained or random weights."""
    if options.pretrained:
        return NeuronModelForCausalLM.from_pretrained(options.pretrained, arguments.trn_config)
    config = llama.configuration(options, LlamaConfig)
    return NeuronModelForCausalLM.from_config(config, arguments.trn_config)


if __name__ == "__main__":
    main()
