"""Fine-tunes a Hugging Face model with LoRA, by TRL, as one rank that torchrun started. Its options are `trl sft`'s.

It continues from the newest complete checkpoint of the job's folder, and tells how far it is.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback
from trl.scripts import sft

sys.path.insert(0, os.environ.get("TRAINING", "/opt/hyperpod/lib/training"))
from training_report import Report

# Where the options say nothing else: of two, the last one counts.
DEFAULTS = (
    *("--use_peft", "--dtype", "bfloat16", "--max_steps", "1000", "--logging_steps", "10"),
    *("--save_strategy", "steps", "--save_steps", "100", "--save_total_limit", "2"),
    *("--report_to", "none", "--disable_tqdm", "true"),
)
# Products and sums of bfloat16 a second, without sparsity (NVIDIA's data sheets).
PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12, "L40S": 362e12, "L4": 121e12, "A10G": 70e12}


class Figures(TrainerCallback):  # type: ignore[misc]
    """What this rank tells of its training. Steps between two lines of the trainer's log are measured together."""

    def __init__(self, model: Any, world: int) -> None:
        self._report, self._device = Report(int(os.environ["RANK"])), model.device
        adapters = sum(one.numel() for one in model.parameters() if one.requires_grad)
        # Forward, and backward to the activations; gradients are of the adapters alone.
        self._flops = 4 * model.num_parameters(exclude_embeddings=True) + 2 * adapters
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
        self._peak = world * next((peak for part, peak in PEAKS.items() if part in name), 0.0)
        self._steps, self._seen, self._before = 0, 0, 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """A step begins, perhaps the first since the last line."""
        if not self._steps:
            self._report.begin()
        self._steps += 1

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """What comes next may be a checkpoint."""
        self._before = time.perf_counter()

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """What comes next may be a checkpoint."""
        self._before = time.perf_counter()

    def on_log(self, _: Any, state: Any, __: Any, logs: dict[str, float], **___: Any) -> None:
        """The trainer writes a line. The one at the end has no loss of a step."""
        if not self._steps or "loss" not in logs:
            return
        tokens = int(logs["num_tokens"] - self._seen) // self._steps
        self._seen = logs["num_tokens"]
        self._report.step(state.global_step, tokens, float(logs["loss"]), self._steps, self._flops, self._peak)
        self._report.alone(torch, self._device)
        if state.is_world_process_zero:
            print(self._report.line(), flush=True)
        self._steps, self._before = 0, time.perf_counter()

    def on_save(self, *_: Any, **__: Any) -> None:
        """A checkpoint is complete."""
        self._report.saved(time.perf_counter() - self._before)


def newest(out: Path) -> str | None:
    """The newest complete checkpoint. Of its files, the trainer's state is written last."""
    complete = [path.parent for path in out.glob("checkpoint-*/trainer_state.json")]
    return str(max(complete, key=lambda path: int(path.name.partition("-")[2]))) if complete else None


def main() -> None:
    """Train in this process."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out", required=True)
    options, theirs = parser.parse_known_args()
    train = Trainer.train

    def resumed(trainer: Any) -> Any:
        found = newest(Path(options.out))
        if trainer.is_world_process_zero():
            print(f"resumed from {found}" if found else "started", flush=True)
        trainer.add_callback(Figures(trainer.model, trainer.args.world_size))
        return train(trainer, resume_from_checkpoint=found)

    Trainer.train = resumed
    parsed = sft.make_parser().parse_args_and_config([*DEFAULTS, "--output_dir", options.out, *theirs])
    sft.main(*parsed)


if __name__ == "__main__":
    main()
