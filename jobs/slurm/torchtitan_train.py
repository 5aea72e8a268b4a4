"""Runs TorchTitan as one rank that torchrun started, and tells how far it is. Its options are TorchTitan's own.

Checkpoints are on, in the job's folder, and TorchTitan loads the newest complete one.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import torch
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.config import ConfigManager
from torchtitan.train import Trainer
from torchtitan.train import main as train

sys.path.insert(0, os.environ.get("TRAINING", "/opt/hyperpod/lib/training"))
from training_report import Report

# Where the options say nothing else: of two, TorchTitan takes the last one. The last checkpoint has an optimizer too: a
# longer run can continue from it.
DEFAULTS = (
    *("--checkpoint.enable", "--checkpoint.keep_latest_k", "2", "--checkpoint.no_last_save_model_only"),
    "--metrics.disable_color_printing",
)
# Options go before what a file of options says, so these are for a job without one: TorchTitan's for this model.
MODEL = (
    *("--model.name", "llama3", "--model.flavor", "8B", "--optimizer.lr", "3e-4", "--training.steps", "1000"),
    *("--training.local_batch_size", "1", "--training.seq_len", "8192", "--activation_checkpoint.mode", "selective"),
    *("--activation_checkpoint.selective_ac_option", "op"),
)


class Figures:
    """What this rank tells of its training. Steps between two lines of TorchTitan's log are measured together.

    A checkpoint's seconds are those that training waits for it.
    """

    def __init__(self, rank: int, world: int) -> None:
        self._report, self._rank, self._world = Report(rank), rank, world
        self._trainer: Any = None
        self._steps, self._seen = 0, 0

    def follow(self) -> None:
        """Follow what TorchTitan runs in this process."""
        step, log, save = Trainer.train_step, MetricsProcessor.log, CheckpointManager.save

        def stepped(trainer: Any, data: Any) -> None:
            if not self._steps:
                self._report.begin()
                self._trainer, self._seen = trainer, trainer.ntokens_seen
            self._steps += 1
            step(trainer, data)

        def logged(metrics: Any, number: int, loss: float, *given: Any, **named: Any) -> None:
            log(metrics, number, loss, *given, **named)
            self._logged(metrics, number, loss)

        def saved(manager: Any, number: int, last_step: bool = False) -> None:
            if manager._should_save(number, last_step):
                with self._report.checkpoint():
                    save(manager, number, last_step)

        Trainer.train_step, MetricsProcessor.log, CheckpointManager.save = stepped, logged, saved

    def _logged(self, metrics: Any, number: int, loss: float) -> None:
        degrees, flops, peak = metrics.parallel_dims, metrics.num_flops_per_token, metrics.gpu_peak_flops
        tokens = (self._trainer.ntokens_seen - self._seen) * self._world // degrees.non_data_parallel_size
        # Only the last stage of a pipeline knows the loss.
        last = self._world // degrees.pp * (degrees.pp - 1)
        known = loss if self._rank >= last else None
        self._report.step(number, tokens // self._steps, known, self._steps, flops, peak * self._world)
        self._report.alone(torch, self._trainer.device)
        if self._rank == last:
            print(self._report.line(), flush=True)
        self._steps = 0


def main() -> None:
    """Train in this process."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out", required=True)
    options, theirs = parser.parse_known_args()
    model = () if any(word.startswith(("--job.config_file", "--job.config-file")) for word in theirs) else MODEL
    words, parse = [*DEFAULTS, *model, "--job.dump_folder", options.out, *theirs], ConfigManager.parse_args
    ConfigManager.parse_args = lambda manager: parse(manager, words)
    Figures(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])).follow()
    train(Trainer)


if __name__ == "__main__":
    main()
