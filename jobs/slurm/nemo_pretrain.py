"""Pretrains with a recipe of NeMo 2 on all ranks that srun or torchrun started, and tells how far it is."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import timedelta
from typing import Any

import nemo_run
import torch
from lightning.pytorch import Callback
from nemo.collections import llm

sys.path.insert(0, os.environ.get("TRAINING", "/opt/hyperpod/lib/training"))
from training_report import Report


class Figures(Callback):  # type: ignore[misc]
    """What this rank tells of its training. ``tokens``: of all ranks in one step.

    A checkpoint's seconds are those that training waits for it: NeMo goes on while the files are written.
    """

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def on_train_start(self, trainer: Any, _: Any) -> None:
        """The rank is known from here on. Lightning has no hook around a checkpoint."""
        self._report, save = Report(trainer.global_rank), trainer.save_checkpoint

        def measured(*args: Any, **options: Any) -> None:
            with self._report.checkpoint():
                save(*args, **options)

        trainer.save_checkpoint = measured

    def on_train_batch_start(self, *_: Any) -> None:
        """A step begins."""
        self._report.begin()

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        """A step ends. Reading the loss waits for the GPU, so it is read as often as NeMo logs it."""
        due = trainer.global_step % trainer.log_every_n_steps == 0
        loss = trainer.callback_metrics.get("reduced_train_loss") if due else None
        self._report.step(trainer.global_step, self._tokens, None if loss is None else float(loss))
        if due:
            self._report.alone(torch, module.device)


def main() -> None:
    """Adapt the recipe to the job and run it in this process, as one of the ranks that are already running."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="llama3_8b")
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-minutes", type=float, default=15)
    options = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE") or os.environ["SLURM_NTASKS"])
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ["SLURM_NTASKS_PER_NODE"])
    recipe = getattr(llm, options.recipe).pretrain_recipe(
        name=options.recipe,
        dir=options.out,
        num_nodes=world // per_node,
        num_gpus_per_node=per_node,
    )
    recipe.trainer.max_steps = options.steps
    # The recipes warm up for 2000 steps, of a million. NeMo tells the schedule of max_steps by itself.
    schedule = recipe.optim.lr_scheduler
    schedule.warmup_steps = min(schedule.warmup_steps, options.steps // 10)
    # The newest, and the best two from the first validation on. NeMo marks one that a lost node has left incomplete,
    # and removes the one before it only when the next is complete.
    recipe.log.ckpt.train_time_interval = nemo_run.Config(timedelta, minutes=options.save_minutes)
    recipe.log.ckpt.save_top_k = 2
    recipe.log.ckpt.save_last = True
    recipe.resume.resume_if_exists = True
    recipe.resume.resume_ignore_no_checkpoint = True
    figures = nemo_run.Config(Figures, tokens=recipe.data.global_batch_size * recipe.data.seq_length)
    recipe.trainer.callbacks = [*(recipe.trainer.callbacks or []), figures]
    nemo_run.run(recipe, direct=True)


if __name__ == "__main__":
    main()
