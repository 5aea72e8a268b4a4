"""What ranks tell of their training is what the node understands, and telling it never ends the training."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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


def test_it_runs_on_the_python_that_trains_whatever_that_has(tmp_path: Path) -> None:
    said = "from training_report import Report; Report(0).step(1, 1)"
    assert subprocess.run([sys.executable, "-S", "-c", said], cwd=FILE.parent, check=False).returncode == 0
