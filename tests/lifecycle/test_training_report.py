"""What ranks tell of their training is what the node understands, and telling it never ends the training."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
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
    seconds = report.step(5, 1000, 2.5)
    with report.checkpoint():
        pass
    assert [path.name for path in folder.iterdir()] == ["rank-3.json"]
    told = json.loads((folder / "rank-3.json").read_text())
    assert set(told) == set(training.FIELDS)
    assert (told["step"], told["loss"], told["step_seconds"]) == (5, 2.5, seconds)
    assert told["tokens_per_second"] == pytest.approx(1000 / seconds)
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
        rank.step(5, 1000, 2.5)
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


class Torch:
    """As much of PyTorch as a rank's own work takes: each product costs this many seconds, or memory is short."""

    float32 = bfloat16 = None

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def full(self, *_: object, **__: object) -> Torch:
        if self.seconds < 0:
            raise RuntimeError("CUDA out of memory")
        return self

    def __matmul__(self, _: Torch) -> Torch:
        time.sleep(self.seconds)
        return self


def test_a_rank_times_its_own_work_beside_the_steps(reports: ModuleType, tmp_path: Path) -> None:
    cpu, told = SimpleNamespace(type="cpu"), []
    for rank, seconds in enumerate((0.0002, 0.002, -1)):
        report = reports.Report(rank, {"HYPERPOD_TRAINING_REPORTS": str(tmp_path)})
        report.begin()
        report.alone(Torch(seconds), cpu)
        report.step(1, 10)
        told.append(json.loads((tmp_path / f"rank-{rank}.json").read_text()).get("compute_seconds"))
    quick, slow, short = told
    assert slow > 32 * 0.002 > 1.2 * quick
    assert short is None
    # Nobody reads it: no work.
    reports.Report(0, {}).alone(None, None)


def test_it_runs_on_the_python_that_trains_whatever_that_has(tmp_path: Path) -> None:
    said = "from training_report import Report; Report(0).step(1, 1)"
    assert subprocess.run([sys.executable, "-S", "-c", said], cwd=FILE.parent, check=False).returncode == 0
