"""Pretrains with a recipe of NeMo 2 on all ranks that srun or torchrun started."""

from __future__ import annotations

import argparse
import os
from datetime import timedelta

import nemo_run
from nemo.collections import llm


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
    # Keep two checkpoints, in case a lost node left the newest one incomplete.
    recipe.log.ckpt.train_time_interval = nemo_run.Config(timedelta, minutes=options.save_minutes)
    recipe.log.ckpt.save_top_k = 2
    recipe.log.ckpt.save_last = True
    recipe.resume.resume_if_exists = True
    recipe.resume.resume_ignore_no_checkpoint = True
    nemo_run.run(recipe, direct=True)


if __name__ == "__main__":
    main()
