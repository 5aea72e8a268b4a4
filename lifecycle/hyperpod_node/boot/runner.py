"""Runs the steps: each as soon as the steps that it needs are done, none longer than its limit."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from ..facts.model import Node
from ..host.errors import Cancelled, Skip, StepError

# How long after its limit a step that does not notice it (a hung mount, say) is given up.
GRACE = 5.0


@dataclass(frozen=True)
class Step:
    """One part of the boot. ``run`` returns what it did, in a few words; ``needs`` names the steps that must be done
    first.

    A step runs if a step that it needs was skipped, but not if that failed. ``modes``: its work when these scripts set
    Slurm up, and when HyperPod's image does; a step of one mode has no text for the other.
    """

    name: str
    run: Callable[[Node], str]
    limit: float
    needs: Tuple[str, ...] = ()
    required: bool = True
    modes: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """The end of one step: ok, degraded (done, with warnings), skipped, failed, or not run."""

    name: str
    result: str
    seconds: float
    detail: str
    required: bool
    began: float = 0.0
    warnings: Tuple[str, ...] = ()

    def record(self) -> Dict[str, Any]:
        """Return the outcome as the JSON summary has it."""
        return {
            "name": self.name,
            "result": self.result,
            "seconds": round(self.seconds, 3),
            "began": round(self.began, 3),
            "detail": self.detail,
            "required": self.required,
            "warnings": list(self.warnings),
        }


class Runner:
    """Runs steps on threads, logs each as it ends, and starts no more after a required one has failed."""

    def __init__(self, node: Node, steps: Sequence[Step], log: Callable[[str], None]) -> None:
        self._node, self._steps, self._log = node, list(steps), log
        self._outcomes: Dict[str, Outcome] = {}
        self._changed = threading.Condition()
        self._start = node.host.now()
        self._began: Dict[str, float] = {}
        self._stopped = False

    def run(self) -> List[Outcome]:
        """Run all steps; return the outcomes in the order of the steps."""
        waiting = list(self._steps)
        running: Dict[str, Step] = {}
        with self._changed:
            while waiting or running:
                for step in list(waiting):
                    verdict = self._ready(step)
                    if verdict == "wait":
                        continue
                    waiting.remove(step)
                    if verdict != "go":
                        self._end(step, "not run", verdict)
                        continue
                    running[step.name] = step
                    self._begin(step)
                if not running:
                    continue
                self._changed.wait(self._patience(running))
                for name in [name for name in running if name in self._outcomes]:
                    del running[name]
                self._give_up(running)
        return [self._outcomes[step.name] for step in self._steps]

    def _ready(self, step: Step) -> str:
        if self._stopped:
            return "a required step failed"
        for need in step.needs:
            if need not in self._outcomes:
                return "wait"
            if self._outcomes[need].result in ("failed", "not run"):
                return f"needs {need}"
        return "go"

    def _begin(self, step: Step) -> None:
        self._began[step.name] = self._node.host.now()
        threading.Thread(target=self._work, args=(step,), name=step.name, daemon=True).start()

    def _patience(self, running: Dict[str, Step]) -> float:
        now = self._node.host.now()
        left = min(self._began[name] + step.limit + GRACE - now for name, step in running.items())
        return max(0.05, left)

    def _give_up(self, running: Dict[str, Step]) -> None:
        now = self._node.host.now()
        for name, step in list(running.items()):
            if now >= self._began[name] + step.limit + GRACE:
                self._end(step, "failed", f"did not end within {step.limit:g} s")
                del running[name]

    def _work(self, step: Step) -> None:
        node = self._node
        node.host.begin(step.limit)
        node.enter(step.name)
        try:
            result, detail = "ok", step.run(node)
            if node.warnings.get(step.name):
                result = "degraded"
        except Skip as skip:
            result, detail = "skipped", str(skip)
        except Cancelled as cancelled:
            result, detail = "not run", str(cancelled)
        except StepError as error:
            result, detail = "failed", str(error)
        except Exception as error:  # our own defect must not look like success
            result, detail = "failed", f"{type(error).__name__}: {error}"
        with self._changed:
            self._end(step, result, detail)
            self._changed.notify_all()

    def _end(self, step: Step, result: str, detail: str) -> None:
        if step.name in self._outcomes:
            return
        host = self._node.host
        began = self._began.get(step.name, host.now())
        warnings = tuple(self._node.warnings.get(step.name, ()))
        detail = " ".join(detail.split())
        outcome = Outcome(step.name, result, host.now() - began, detail, step.required, began - self._start, warnings)
        self._outcomes[step.name] = outcome
        line = f"step {step.name} ... {result} {outcome.seconds:.2f}s"
        self._log(line + (f"  {detail}" if detail else ""))
        for warning in warnings:
            self._log(f"step {step.name}: WARNING: {warning}")
        if result == "failed" and step.required:
            self._stopped = True
            host.cancel()
