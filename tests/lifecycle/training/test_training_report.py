"""What ranks tell of their training is what the node understands, and telling it never ends the training."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from urllib.request import urlopen

import pytest
from hyperpod_node.metrics import training, writer

from tests.lifecycle.rig import LIFECYCLE, FakeHost

FILE = LIFECYCLE / "training/training_report.py"


@pytest.fixture(scope="module")
def reports() -> ModuleType:
    spec = importlib.util.spec_from_file_location("training_report", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_node_understands_every_number_that_a_rank_tells(reports: ModuleType, host: FakeHost) -> None:
    folder = host.path(f"{training.FOLDER}/7")
    folder.mkdir(parents=True)
    report = reports.Report(3, {"HYPERPOD_TRAINING_REPORTS": str(folder)})
    report.begin()
    report.computed()
    seconds = report.step(5, 1000, 2.5, flops=6e9, peak=8e12)
    with report.checkpoint():
        pass
    assert [path.name for path in folder.iterdir()] == ["rank-3.json"]
    told = json.loads((folder / "rank-3.json").read_text())
    assert set(told) == set(training.FIELDS)
    assert (told["step"], told["loss"], told["step_seconds"]) == (5, 2.5, seconds)
    assert told["tokens_per_second"] == pytest.approx(1000 / seconds)
    assert told["mfu"] == pytest.approx(6e9 * told["tokens_per_second"] / 8e12)
    assert report.line() == (
        f"step 5: loss 2.5000, {seconds * 1000:.0f} ms, {1000 / seconds:,.0f} tokens/s, MFU {told['mfu']:.1%}"
    )
    assert 0 <= told["compute_seconds"] <= seconds
    assert "training" not in writer.write(host, "node")
    assert 'hyperpod_training_step{hpc_job="7",rank="3"} 5\n' in host.text(f"{writer.FOLDER}/training.prom")


def test_steps_that_were_measured_together_share_their_time(reports: ModuleType) -> None:
    report = reports.Report(0, {})
    report.begin()
    together = report.step(10, 1000)
    assert report.step(20, 1000, steps=1_000_000) < together + 1e-3


def test_a_checkpoint_that_failed_is_none(reports: ModuleType, tmp_path: Path) -> None:
    report = reports.Report(0, {"HYPERPOD_TRAINING_REPORTS": str(tmp_path)})
    with pytest.raises(RuntimeError), report.checkpoint():
        raise RuntimeError("the disk is full")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["", "/nonexistent/7"])
def test_without_a_folder_nothing_is_told(reports: ModuleType, folder: str) -> None:
    report = reports.Report(0, {"HYPERPOD_TRAINING_REPORTS": folder})
    report.begin()
    assert report.step(1, 10, 1.0) >= 0


def test_a_folder_that_goes_away_or_a_loss_that_is_no_number_does_not_end_the_training(
    reports: ModuleType, tmp_path: Path
) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    report = reports.Report(0, {"HYPERPOD_TRAINING_REPORTS": str(folder)})
    report.step(1, 10, float("nan"))
    assert "loss" not in training.parse((folder / "rank-0.json").read_text())
    (folder / "rank-0.json").unlink()
    folder.rmdir()
    report._written = 0.0
    report.step(2, 10, 1.0)


def scraped(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4"
        text: str = answer.read().decode()
    return text


def test_in_a_pod_one_rank_serves_what_all_of_them_told(reports: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "rank-12.json").write_text('{"step": 3}')  # of the ranks that torchrun ended
    os.utime(folder / "rank-12.json", (1, 1))
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    pod = {"HYPERPOD_TRAINING_REPORTS": str(folder), "HYPERPOD_TRAINING_PORT": str(port)}
    ranks = [reports.Report(8 + local, {**pod, "LOCAL_RANK": str(local)}) for local in (0, 1)]
    for rank in ranks:
        rank.begin()
        rank.computed()
        rank.step(5, 1000, 2.5, peak=1e12)
        with rank.checkpoint():
            pass
    said = scraped(port).splitlines()
    assert 'hyperpod_training_loss{rank="9"} 2.5' in said
    assert {line.rsplit(" ", 1)[0] for line in said} == {
        f'{metric}{{rank="{rank}"}}' for metric, _ in training.FIELDS.values() for rank in (8, 9)
    }
    (folder / "rank-9.json").write_text("{")
    assert 'rank="9"' not in scraped(port)
    # Taken: training goes on, and the other one goes on to answer.
    assert reports.Report(8, pod).step(6, 10) >= 0
    assert scraped(port)


MLFLOW = """
import contextlib, json, os, time
def call(*what, **options):
    if os.environ.get("AWAY") == what[0]:
        raise OSError("MLflow is away")
    if os.environ.get("HANGS") == what[0]:
        time.sleep(60)
    with open(os.environ["CALLS"], "a") as calls:
        print(json.dumps([*what, *options.items()]), file=calls)
def create_experiment(name): call("create", name); raise ValueError("is there already")
def set_experiment(name): call("experiment", name)
def start_run(run_name): call("run", run_name); return contextlib.nullcontext()
def log_metrics(figures, step): call("log", figures, step, os.environ.get("AWS_CONFIG_FILE"))
"""


@pytest.fixture
def tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: ModuleType) -> dict[str, str]:
    """The environment of a job with an MLflow that writes down how it is called."""
    (tmp_path / "mlflow.py").write_text(MLFLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(reports, "TRACKING_PATIENCE", 3.0)
    job = {"MLFLOW_TRACKING_URI": "arn:app", "SLURM_JOB_NAME": "nanogpt", "SLURM_JOB_ID": "7"}
    return {**os.environ, **job, "PYTHONPATH": str(tmp_path), "CALLS": str(tmp_path / "calls")}


def logged(job: dict[str, str]) -> list[list[object]]:
    path = Path(job["CALLS"])
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def trained(reports: ModuleType, job: dict[str, str], rank: int = 0) -> None:
    report = reports.Report(rank, job)
    for step in (1, 2, 3):
        report.step(step, 1000, 2.5)
    if report._tracking:
        report._tracking.end()


def test_the_first_rank_logs_its_first_and_last_step_to_mlflow(reports: ModuleType, tracked: dict[str, str]) -> None:
    tracked["HYPERPOD_MLFLOW_AWS_CONFIG"] = config = str(Path(tracked["CALLS"]).with_name("mlflow.py"))
    trained(reports, tracked)
    trained(reports, tracked, rank=1)
    *begun, first, last = logged(tracked)
    assert begun == [["create", "nanogpt"], ["experiment", "nanogpt"], ["run", "7"]]
    assert [(one[0], one[2], one[3]) for one in (first, last)] == [("log", 1, config), ("log", 3, config)]
    assert isinstance(last[1], dict)
    assert (set(last[1]), last[1]["loss"]) == ({"loss", "tokens_per_second", "step_seconds"}, 2.5)


def test_steps_of_five_seconds_are_all_logged(
    reports: ModuleType, tracked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "TRACKING_INTERVAL", 0.0)
    trained(reports, {**tracked, "MLFLOW_EXPERIMENT_NAME": "mine"})
    assert [one[1] for one in logged(tracked)[:2]] == ["mine", "mine"]
    assert [one[2] for one in logged(tracked)[3:]] == [1, 2, 3]


@pytest.mark.parametrize("where", ["experiment", "log"])
def test_a_training_goes_on_without_an_mlflow_that_is_away(
    reports: ModuleType, tracked: dict[str, str], where: str, capfd: pytest.CaptureFixture[str]
) -> None:
    trained(reports, {**tracked, "AWAY": where})
    assert "no more figures go to MLflow: MLflow is away\n" in capfd.readouterr().err


def test_a_training_neither_waits_for_a_slow_mlflow_nor_ends_long_after_itself(
    reports: ModuleType, tracked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "TRACKING_INTERVAL", 0.0)
    monkeypatch.setattr(reports, "TRACKING_PATIENCE", 0.2)
    report = reports.Report(0, {**tracked, "HANGS": "run"})
    for step in range(2000):  # More than a pipe holds.
        report.step(step, 1000, 2.5)
    report._tracking.end()
    assert report._tracking._child.wait(10) < 0


@pytest.mark.parametrize("lacks", ["MLFLOW_TRACKING_URI", "mlflow"])
def test_without_an_app_or_its_package_nothing_is_logged(
    reports: ModuleType, tracked: dict[str, str], lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked.pop(lacks, None)
    if lacks == "mlflow":
        monkeypatch.setattr(sys, "path", [one for one in sys.path if one != tracked["PYTHONPATH"]])
    assert reports.Report(0, tracked)._tracking is None


class Torch:
    """As much of PyTorch as a rank's own work takes: time goes by in its products alone. Without rounds there is no
    memory."""

    float32, bfloat16 = "float32", "bfloat16"

    def __init__(self, clock: list[float], *rounds: float) -> None:
        self.clock, self.rounds, self.products, self.waited = clock, rounds, 0, 0
        self.cuda = SimpleNamespace(synchronize=self._synchronize)
        self.asked: tuple[object, ...] = ()

    def _synchronize(self) -> None:
        self.waited += 1

    def full(self, shape: tuple[int, int], value: float, device: object, dtype: str) -> Torch:
        if not self.rounds:
            raise RuntimeError("CUDA out of memory")
        self.asked = (shape, value, device, dtype)
        return self

    def __matmul__(self, other: Torch) -> Torch:
        assert other is self
        self.clock[0] += self.rounds[self.products // 32 % len(self.rounds)]
        self.products += 1
        return self


def test_a_rank_times_its_own_work_beside_the_steps(
    reports: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, told = [100.0], []
    fake = SimpleNamespace(perf_counter=lambda: clock[0], monotonic=lambda: clock[0], time=lambda: clock[0])
    monkeypatch.setattr(reports, "time", fake)
    cpu, gpu, neuron = (SimpleNamespace(type=kind) for kind in ("cpu", "cuda", "xla"))
    # The first round, which loads libraries, is none of the three of which the fastest counts.
    quick, slow, short = Torch(clock, 1, 4, 3, 5), Torch(clock, 1, 40, 30, 50), Torch(clock)
    for rank, (torch, device) in enumerate(((quick, cpu), (slow, gpu), (short, gpu))):
        report = reports.Report(rank, {"HYPERPOD_TRAINING_REPORTS": str(tmp_path)})
        report.begin()
        report.alone(torch, device)
        report.step(1, 10)
        told.append(json.loads((tmp_path / f"rank-{rank}.json").read_text()).get("compute_seconds"))
    assert told == [3 * 32, 30 * 32, None]
    assert quick.asked == ((128, 128), 1 / 128, cpu, "float32")
    assert slow.asked == ((2048, 2048), 1 / 2048, gpu, "bfloat16")
    # A GPU has done its work only when it says so, and XLA begins only when it is told to.
    assert (quick.waited, slow.waited) == (0, 4)
    marked: list[str] = []
    xm = SimpleNamespace(mark_step=lambda: marked.append("mark"), wait_device_ops=lambda: marked.append("wait"))
    report = reports.Report(3, {"HYPERPOD_TRAINING_REPORTS": str(tmp_path)})
    for rounds in (4, 7):
        report.alone(Torch(clock, 1), neuron, xm)
        assert marked == ["mark", "wait"] * rounds
    # Nobody reads it: no work.
    reports.Report(0, {}).alone(None, None)


def test_a_rank_is_done_with_its_own_part_once_its_gpu_is_and_tells_every_two_seconds(
    reports: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    fake = SimpleNamespace(perf_counter=lambda: clock[0], monotonic=lambda: clock[0], time=lambda: 1e9 + clock[0])
    monkeypatch.setattr(reports, "time", fake)

    def passes(seconds: float) -> None:
        clock[0] += seconds

    report = reports.Report(7, {"HYPERPOD_TRAINING_REPORTS": str(tmp_path)})
    cuda = SimpleNamespace(is_available=lambda: True, synchronize=lambda: passes(0.25))
    report.begin()
    passes(0.5)
    report.computed(SimpleNamespace(cuda=cuda))
    passes(0.25)
    assert report.step(5, 1000, 2.5, steps=2) == 0.5
    first = {
        "compute_seconds": 0.75, "step": 5, "step_seconds": 0.5, "updated_time_seconds": 1e9 + 101,
        "tokens_per_second": 2000.0, "loss": 2.5,
    }  # fmt: skip

    def told() -> dict[str, float]:
        found: dict[str, float] = json.loads((tmp_path / "rank-7.json").read_text())
        return found

    assert told() == first
    report.begin()
    passes(1.875)
    report.computed(SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    report.step(6, 1000)
    assert told() == first
    report.begin()
    passes(0.125)
    report.step(7, 1000)
    assert told() == {
        **first, "compute_seconds": 1.875, "step": 7, "step_seconds": 0.125, "updated_time_seconds": 1e9 + 103,
        "tokens_per_second": 8000.0,
    }  # fmt: skip
    # A checkpoint is told at once.
    with report.checkpoint():
        passes(0.5)
    assert {name: told()[name] for name in ("checkpoint_seconds", "checkpoint_time_seconds")} == {
        "checkpoint_seconds": 0.5,
        "checkpoint_time_seconds": 1e9 + 103.5,
    }
    report.begin()
    passes(0.1)
    report.step(8, 1000)
    assert told()["step"] == 7


def test_it_runs_on_the_python_that_trains_whatever_that_has(tmp_path: Path) -> None:
    said = "from training_report import Report; Report(0).step(1, 1)"
    assert subprocess.run([sys.executable, "-S", "-c", said], cwd=FILE.parent, check=False).returncode == 0
