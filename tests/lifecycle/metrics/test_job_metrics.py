"""What a job's prolog and epilog do for metrics: its GPUs are known, its ranks may tell of themselves."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lifecycle.boot.test_planted import as_root
from tests.lifecycle.test_scripts import run

Hook = Callable[..., None]


@pytest.fixture
def hook(tmp_path: Path) -> Hook:
    for name in ("metrics", "training"):
        (tmp_path / name).mkdir()

    def call(what: str, job: int | str, gpus: str = "", user: int | None = None) -> None:
        done = subprocess.run(
            ["bash", str(Path(__file__).parents[3] / "lifecycle/slurm/job-metrics.sh"), what],
            env={
                "PATH": os.environ["PATH"],
                "HYPERPOD_METRICS": str(tmp_path / "metrics"),
                "HYPERPOD_TRAINING": str(tmp_path / "training"),
                "HYPERPOD_GPU_JOBS": str(tmp_path / "gpus"),
                "SLURM_JOB_ID": str(job),
                "SLURM_JOB_UID": str(os.getuid() if user is None else user),
                "SLURM_JOB_GPUS": gpus,
            },
            check=False,
        )
        assert done.returncode == 0, "a prolog that fails drains the node"

    return call


def mapped(tmp_path: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (tmp_path / "gpus").iterdir()}


def test_each_gpu_says_which_jobs_have_it_until_they_end(tmp_path: Path, hook: Hook) -> None:
    hook("begin", 7, "0,2-3")
    hook("begin", 8, "3")
    hook("begin", 7, "0,2-3")
    assert mapped(tmp_path) == {"0": "7\n", "2": "7\n", "3": "8\n7\n"}
    hook("end", 7)
    assert mapped(tmp_path) == {"3": "8\n"}
    hook("end", 8)
    assert mapped(tmp_path) == {}


@pytest.mark.parametrize("gpus", ["../../etc/x", "0;reboot", "a", "0-", "99999999999999999999"])
def test_a_gpu_is_a_small_number(tmp_path: Path, hook: Hook, gpus: str) -> None:
    hook("begin", 7, gpus)
    assert mapped(tmp_path) == {}


def test_a_job_has_a_folder_of_its_own_for_its_ranks_until_it_ends(tmp_path: Path, hook: Hook) -> None:
    hook("begin", 7)
    folder = tmp_path / "training/7"
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "rank-0.json").touch()
    hook("begin", 7)
    assert list(folder.iterdir()) == [], "what it told before it was requeued is old"
    hook("end", 7)
    assert not folder.exists()


@as_root
def test_the_folder_belongs_to_the_jobs_user(tmp_path: Path, hook: Hook) -> None:
    hook("begin", 7, user=1234)
    assert (tmp_path / "training/7").stat().st_uid == 1234


def test_an_end_deletes_nothing_behind_a_link(tmp_path: Path, hook: Hook) -> None:
    hook("begin", 7)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/data").touch()
    (tmp_path / "training/7/link").symlink_to(tmp_path / "victim")
    hook("end", 7)
    (tmp_path / "training/8").symlink_to(tmp_path / "victim")
    hook("begin", 8)
    assert (tmp_path / "victim/data").exists()
    assert not (tmp_path / "training/8").is_symlink()


@pytest.mark.parametrize("job", ["", "7/../..", "7 8"])
def test_what_is_no_job_changes_nothing(tmp_path: Path, hook: Hook, job: str) -> None:
    hook("begin", job, "0")
    hook("end", job)
    assert list((tmp_path / "training").iterdir()) == []
    assert not (tmp_path / "gpus").exists()


def test_a_node_without_metrics_keeps_no_account_of_jobs(tmp_path: Path, hook: Hook) -> None:
    (tmp_path / "metrics").rmdir()
    hook("begin", 7, "0")
    assert not (tmp_path / "gpus").exists()
    assert not (tmp_path / "training/7").exists()


def test_ranks_know_their_folder_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    said = [
        run("task-prolog.sh", HYPERPOD_TASK_ENV="/none", HYPERPOD_TRAINING=str(tmp_path), SLURM_JOB_ID=job).stdout
        for job in ("7", "8")
    ]
    assert f"export HYPERPOD_TRAINING_REPORTS={tmp_path}/7\n" in said[0]
    assert "HYPERPOD_TRAINING_REPORTS" not in said[1]


@pytest.mark.parametrize(("script", "what"), [("prolog.sh", "begin"), ("epilog.sh", "end")])
def test_slurms_hooks_call_it_and_do_not_fail_with_it(tmp_path: Path, script: str, what: str) -> None:
    hooks = Path(__file__).parents[3] / "lifecycle/slurm"
    (tmp_path / "hook").write_text((hooks / script).read_text())
    ours = tmp_path / "hyperpod-job-metrics"
    ours.write_text(f'#!/bin/sh\necho "$1" >{tmp_path}/called\nexit 1\n')
    ours.chmod(0o755)
    given = {"PATH": os.environ["PATH"], "HYPERPOD_STATE": str(tmp_path), "SLURM_JOB_ID": "7"}
    assert subprocess.run(["bash", str(tmp_path / "hook")], env=given, check=False).returncode == 0
    assert (tmp_path / "called").read_text() == f"{what}\n"
