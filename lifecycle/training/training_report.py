"""Reports a rank's training progress: a small file in the folder that the node's metrics read (docs/metrics.md). It
also notices that the rank's time is nearly up.

In a pod nobody reads the folder, so one rank of the pod serves all reports over HTTP. Without that folder, as outside
of a Slurm job with metrics, a rank only measures. Where MLFLOW_TRACKING_URI says so, the first rank also logs to
MLflow. It never ends the training.
"""

from __future__ import annotations

import atexit
import contextlib
import http.server
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional

# Seconds between two writes: the node reads every 30 s.
INTERVAL = 2.0
# Prometheus documentation, "Exposition formats": the text format's version.
EXPOSITION = "text/plain; version=0.0.4"
# A rank's own work: products of two square matrices of so many rows, the fastest of some rounds. With 300 TFLOPS a
# round takes 2 ms, of the seconds that the steps between two reports take, and it needs 24 MiB.
ROUNDS, PRODUCTS, ROWS, ROWS_ON_CPU = 3, 32, 2048, 128
# The fields of a report that go to MLflow, seconds between two reports, and the most that the end of the training waits
# for the last: Slurm and Kubernetes end what is left of a job.
TRACKED = ("loss", "tokens_per_second", "mfu", "step_seconds", "checkpoint_seconds")
TRACKING_INTERVAL, TRACKING_PATIENCE = 5.0, 20.0


class Report:
    """One rank's report. ``begin`` and ``step`` surround a step, ``computed`` marks when the rank begins to wait for
    others.
    """

    def __init__(self, rank: int, environment: Mapping[str, str] = os.environ) -> None:
        folder = Path(environment.get("HYPERPOD_TRAINING_REPORTS") or "/nonexistent")
        if port := environment.get("HYPERPOD_TRAINING_PORT"):
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                if environment.get("LOCAL_RANK", "0") == "0":
                    serve(folder, int(port))
        self._file: Optional[Path] = folder / f"rank-{rank}.json" if folder.is_dir() else None
        self._told: Dict[str, float] = {}
        self._tracking = Tracking.begun(environment) if rank == 0 else None
        self._alone: Optional[Callable[[], None]] = None
        self._began = time.perf_counter()
        self._written = 0.0

    def begin(self) -> None:
        """Begin a step."""
        self._began = time.perf_counter()

    def computed(self, torch: Any = None) -> None:
        """Mark that the rank has done its own part of the step. With ``torch``, once its GPU has."""
        if self._file is None:
            return
        if torch is not None and torch.cuda.is_available():
            torch.cuda.synchronize()
        self._told["compute_seconds"] = time.perf_counter() - self._began

    def step(
        self, number: int, tokens: int, loss: Optional[float] = None, steps: int = 1, flops: float = 0, peak: float = 0
    ) -> float:
        """End a step, or several that were measured together; ``tokens``: of all ranks in one. Return its seconds.

        ``flops``: what the model computes for a token; ``peak``: what all ranks' GPUs can in a second.
        """
        seconds = (time.perf_counter() - self._began) / steps
        self._told.update(step=number, step_seconds=seconds, updated_time_seconds=time.time())
        if seconds > 0:
            self._told["tokens_per_second"] = tokens / seconds
            if peak:
                self._told["mfu"] = flops * tokens / seconds / peak
        if loss is not None:
            self._told["loss"] = loss
        self._write(time.monotonic())
        if self._tracking:
            self._tracking.tell(self._told)
        return seconds

    def line(self) -> str:
        """The last step's figures, for the log: `hyperpod job run` and SageMaker's operator read its loss."""
        told = self._told
        mfu = f", MFU {told['mfu']:.1%}" if "mfu" in told else ""
        return (
            f"step {told['step']}: loss {told['loss']:.4f}, {told['step_seconds'] * 1000:.0f} ms, "
            f"{told['tokens_per_second']:,.0f} tokens/s{mfu}"
        )

    def alone(self, torch: Any, device: Any, xm: Any = None) -> None:
        """Between two steps: time a piece of work that is the same on every rank and waits for none.

        Ranks of a spread model wait for each other in every layer, so no part of a step is a rank's own. ``xm``:
        torch_xla's model, on Neuron.
        """
        if self._file is None:
            return
        # The model may have left no memory.
        with contextlib.suppress(RuntimeError):
            self._alone = self._alone or _own_work(torch, device, xm)
            self._told["compute_seconds"] = min(_seconds(self._alone) for _ in range(ROUNDS))

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Surround the writing of a checkpoint. A failed one does not count."""
        began = time.perf_counter()
        yield
        self.saved(time.perf_counter() - began)

    def saved(self, seconds: float) -> None:
        """A checkpoint is complete, for which training waited this long."""
        self._told.update(checkpoint_seconds=seconds, checkpoint_time_seconds=time.time())
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


def _own_work(torch: Any, device: Any, xm: Any) -> Callable[[], None]:
    rows, kind = (ROWS_ON_CPU, torch.float32) if device.type == "cpu" else (ROWS, torch.bfloat16)
    # Its product with itself is the same again.
    one = torch.full((rows, rows), 1 / rows, device=device, dtype=kind)

    def work() -> None:
        product = one
        for _ in range(PRODUCTS):
            product = product @ one
        # XLA computes what somebody still has, at this point.
        if xm is not None:
            xm.mark_step()
            xm.wait_device_ops()
        elif device.type == "cuda":
            torch.cuda.synchronize()

    work()  # The first time loads libraries, and compiles.
    return work


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def serve(folder: Path, port: int) -> int:
    """Serve the folder's reports on every address of the pod, from a thread that ends with the process. Return the
    port.

    Raises OSError if the port is taken.
    """
    began = time.time()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer with all figures, whatever the path."""
            body = exposition(folder, began).encode("ascii")
            self.send_response(200)
            self.send_header("Content-Type", EXPOSITION)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The log is the training's."""

    server = http.server.ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])


def exposition(folder: Path, since: float) -> str:
    """Return the reports as Prometheus reads them. Those from before ``since`` are of ranks that ended: torchrun
    restarts ranks of a pod under other numbers.
    """
    lines = []
    for path in sorted(folder.glob("rank-*.json")):
        rank = path.stem[len("rank-") :]
        try:
            told = json.loads(path.read_text(encoding="ascii")) if path.stat().st_mtime >= since else {}
        except (OSError, ValueError):  # It has just ended.
            continue
        lines += [f'hyperpod_training_{field}{{rank="{rank}"}} {value!r}' for field, value in sorted(told.items())]
    return "".join(f"{line}\n" for line in lines)


class Tracking:
    """Logs reports to MLflow from another process: the training neither waits for it nor ends with it.

    Each line of the process's input is a report. Reports that do not fit into the pipe, because MLflow does not answer,
    are dropped.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=dict(environment)
        )
        assert self._child.stdin is not None
        self._pipe: Optional[int] = self._child.stdin.fileno()
        os.set_blocking(self._pipe, False)
        self._last, self._sent = "", 0.0
        atexit.register(self.end)

    @classmethod
    def begun(cls, environment: Mapping[str, str]) -> Optional[Tracking]:
        """Begin to log, where there is somewhere to log to and this Python has MLflow."""
        if not environment.get("MLFLOW_TRACKING_URI") or importlib.util.find_spec("mlflow") is None:
            return None
        with contextlib.suppress(OSError):
            return cls(environment)
        return None

    def tell(self, report: Mapping[str, float]) -> None:
        """Log a report, unless one was logged just now: then it goes with the end, if no other follows."""
        self._last = json.dumps({name: report[name] for name in ("step", *TRACKED) if name in report}) + "\n"
        if time.monotonic() - self._sent >= TRACKING_INTERVAL:
            self._send()

    def _send(self) -> None:
        self._sent = time.monotonic()
        line, self._last = self._last, ""
        if self._pipe is not None and line:
            # A line is shorter than what a pipe takes as a whole (pipe(7), PIPE_BUF).
            with contextlib.suppress(OSError):
                os.write(self._pipe, line.encode("ascii"))

    def end(self) -> None:
        """Log the last report and wait until it is there, for a while."""
        if self._pipe is None:
            return
        self._send()
        self._pipe = None
        try:
            self._child.communicate(timeout=TRACKING_PATIENCE)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            self._child.kill()


def track(lines: Iterator[str], mlflow: Any, environment: Mapping[str, str]) -> None:
    """Log each line's report as a step of one run, in the experiment that the user or the job's name says."""
    if name := environment.get("MLFLOW_EXPERIMENT_NAME") or environment.get("SLURM_JOB_NAME"):
        # An app of SageMaker's may answer a question for an experiment that is not there with an error that mlflow does
        # not know; for one that is there, mlflow raises.
        with contextlib.suppress(Exception):
            mlflow.create_experiment(name)
        mlflow.set_experiment(name)
    with mlflow.start_run(run_name=environment.get("SLURM_JOB_ID") or environment.get("HOSTNAME")):
        for line in lines:
            report = json.loads(line)
            mlflow.log_metrics({name: report[name] for name in TRACKED if name in report}, step=int(report["step"]))


def main() -> None:
    """Log what comes in; one line tells the training's log why that ended."""
    # Slurm sends it to every process of the job before the time limit.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    # With the cluster's role for it, whatever the user's files say; keys in the environment come before any file.
    own = os.environ.get("HYPERPOD_MLFLOW_AWS_CONFIG")
    if own and Path(own).is_file():
        os.environ.update(AWS_CONFIG_FILE=own, AWS_SHARED_CREDENTIALS_FILE=os.devnull, AWS_PROFILE="default")
    try:
        track(iter(sys.stdin), importlib.import_module("mlflow"), os.environ)
    except Exception as error:  # Of MLflow or any plug-in: the training goes on without them.
        print(f"no more figures go to MLflow: {error}", file=sys.stderr)


class Asked:
    """Whether SIGUSR1 has arrived, which ``#SBATCH --signal`` sends before the time limit.

    Create it first of all: until then the signal ends the process.
    """

    def __init__(self) -> None:
        self.value = False
        signal.signal(signal.SIGUSR1, self._arrived)

    def __bool__(self) -> bool:
        return self.value

    def _arrived(self, *_: object) -> None:
        self.value = True


if __name__ == "__main__":
    main()
