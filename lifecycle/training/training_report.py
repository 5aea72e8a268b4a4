"""What a rank tells of its training: a small file in the folder that the node's metrics read (docs/metrics.md).
And what it is told: that its time is nearly up.

Without that folder, as outside of a Slurm job with metrics, it only measures. It never ends the training.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional

# Seconds between two writes: the node reads every 30 s.
INTERVAL = 2.0


class Report:
    """One rank's. ``begin`` and ``step`` are around a step, ``computed`` where the rank goes on to wait for others."""

    def __init__(self, rank: int, environment: Mapping[str, str] = os.environ) -> None:
        folder = Path(environment.get("HYPERPOD_TRAINING_REPORTS") or "/nonexistent")
        self._file: Optional[Path] = folder / f"rank-{rank}.json" if folder.is_dir() else None
        self._told: Dict[str, float] = {}
        self._began = time.perf_counter()
        self._written = 0.0

    def begin(self) -> None:
        """A step begins."""
        self._began = time.perf_counter()
        self._told.pop("compute_seconds", None)

    def computed(self, torch: Any = None) -> None:
        """The rank has done its own part of the step. With ``torch``, once its GPU has."""
        if self._file is None:
            return
        if torch is not None and torch.cuda.is_available():
            torch.cuda.synchronize()
        self._told["compute_seconds"] = time.perf_counter() - self._began

    def step(self, number: int, tokens: int, loss: Optional[float] = None, steps: int = 1) -> float:
        """A step ends, or several that were measured together; ``tokens``: of all ranks in one. Its seconds."""
        seconds = (time.perf_counter() - self._began) / steps
        self._told.update(step=number, step_seconds=seconds, updated_time_seconds=time.time())
        if seconds > 0:
            self._told["tokens_per_second"] = tokens / seconds
        if loss is not None:
            self._told["loss"] = loss
        self._write(time.monotonic())
        return seconds

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Around the writing of a checkpoint. One that failed is none."""
        began = time.perf_counter()
        yield
        self._told.update(checkpoint_seconds=time.perf_counter() - began, checkpoint_time_seconds=time.time())
        self._written = 0.0
        self._write(time.monotonic())

    def _write(self, now: float) -> None:
        if self._file is None or (self._written and now - self._written < INTERVAL):
            return
        self._written = now
        aside = self._file.with_name(f".{self._file.name}.new")
        with contextlib.suppress(OSError, ValueError):
            aside.write_text(json.dumps(self._told), encoding="ascii")
            aside.replace(self._file)


class Asked:
    """Whether SIGUSR1 has arrived, which ``#SBATCH --signal`` sends before the time limit.

    Made first of all: until then the signal ends the process.
    """

    def __init__(self) -> None:
        self.value = False
        signal.signal(signal.SIGUSR1, self._arrived)

    def __bool__(self) -> bool:
        return self.value

    def _arrived(self, *_: object) -> None:
        self.value = True
