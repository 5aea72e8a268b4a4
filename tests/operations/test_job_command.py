"""``job run``: what its options do, and how a job is followed where it ends or hangs."""

from pathlib import Path
from typing import Any

import pytest

from operations import cli
from operations.failures import Exit
from operations.jobs import run as job_run
from operations.jobs.kubernetes_api import KubernetesApi
from operations.jobs.render import render
from operations.jobs.specs import JOBS
from tests.operations.aws import ended
from tests.operations.test_job_run import NAMESPACE, NCCL, FakeApi, Recovering, pod, run
from tests.support import config


class Noting(FakeApi):
    """Keeps what it was given."""

    def apply(self, document: dict[str, Any], *, dry_run: bool = False) -> None:
        super().apply(document, dry_run=dry_run)
        self.last = document


def command(monkeypatch: pytest.MonkeyPatch, folder: Path, api: FakeApi, *words: str) -> int:
    file = folder / "kubeconfig"
    file.write_text("{}")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(KubernetesApi, "of", lambda _: api)
    return cli.main(["job", "run", "eks-gpu", *words, "--kubeconfig", str(file)])


@pytest.mark.parametrize("name", ["", "run", "print"])
def test_help_has_an_example_and_no_title_is_cut(name: str) -> None:
    said = " ".join(ended(Exit.GOOD, "job", *filter(None, [name]), "--help")[0].split())
    assert f"hyperpod job {name or 'run'} eks-gpu nanogpt" in said
    if not name:
        assert all(job.title in said for job in JOBS.values())


def test_what_is_kept_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    api = Noting(NAMESPACE, says="iter 10: loss 2.5, 3 ms")
    assert command(monkeypatch, tmp_path, api, "nanogpt", "--keep") == Exit.GOOD
    assert api.deleted == []


@pytest.mark.parametrize(
    ("name", "charts", "told"),
    [
        ("nanogpt", {}, True),
        ("nanogpt", {"queues": "task-governance"}, False),
        ("nanogpt", {"jobAutoRestart": False}, False),
        ("nccl-tests", {}, False),
    ],
)
def test_it_is_told_where_hyperpod_does_not_resume_a_job(
    name: str,
    charts: dict[str, object],
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SageMaker Developer Guide, "Running jobs using the SageMaker HyperPod CLI", on auto-resume."""
    monkeypatch.setattr("operations.target.checked", lambda values: config("eks-gpu", charts=charts))
    where = {**NAMESPACE, "metadata": {"name": "hyperpod-ns-training"}} if "queues" in charts else NAMESPACE
    assert command(monkeypatch, tmp_path, Noting(where), name, "--no-wait") == Exit.GOOD
    assert ("HyperPod resumes jobs only" in " ".join(capsys.readouterr().err.split())) is told


def test_a_test_that_nobody_waits_for_has_its_own_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for wait, seconds in (("--no-wait", 3600), ("--wait", 5)):
        api = Noting(NAMESPACE, says=NCCL.format(busbw=380.0))
        assert command(monkeypatch, tmp_path, api, "nccl-tests", wait, "--timeout", "5") == Exit.GOOD
        assert api.last["spec"]["runPolicy"]["activeDeadlineSeconds"] == seconds


def test_a_job_is_judged_by_the_group_it_ran_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    types = {"hopper": "ml.p5.48xlarge", "ampere": "ml.g5.48xlarge"}
    workers = [{"name": name, "instanceType": kind, "count": 2 + (name == "ampere")} for name, kind in types.items()]
    monkeypatch.setattr("operations.target.checked", lambda values: config("eks-gpu", workers=workers))
    api = Noting(NAMESPACE, says="PASS\nPASS", condition="Complete")
    assert command(monkeypatch, tmp_path, api, "device-check", "--group", "ampere") == Exit.FAILED
    assert "2 of 3 nodes see all of their devices" in capsys.readouterr().err


def test_a_bandwidth_test_that_failed_fails_whatever_it_measured() -> None:
    result = run("nccl-tests", NCCL.format(busbw=380.0) + "out of memory\n", "Failed")
    assert (result.passed, result.reasons) == (False, ("the job failed: out of memory",))


def test_what_a_job_said_in_the_end_is_heard_though_it_has_ended() -> None:
    objects, api = render("nanogpt", config("eks-gpu")), FakeApi(NAMESPACE, says="iter 10: loss 2.5, 3 ms")
    job_run.submit(api, objects)
    api.heard = True
    assert job_run.follow(api, objects, lambda _: None, lambda _: None, 10, pause=0) == (True, api.says)


def test_a_log_is_read_again_some_seconds_back_so_that_no_line_is_missed() -> None:
    objects, api = render("nanogpt", config("eks-gpu")), Recovering()
    job_run.submit(api, objects)
    job_run.follow(api, objects, lambda _: None, lambda _: None, 10, pause=0)
    assert min(seconds for seconds in api.asked if seconds is not None) >= 10


def test_a_job_waits_for_nodes_only_where_none_of_its_pods_has_one() -> None:
    unplaced, placed = pod("a", {}), pod("b", {})
    unplaced["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "Insufficient nvidia.com/gpu"}],
    }
    done = {**placed, "status": {"phase": "Succeeded"}}
    assert job_run._queued([])
    assert job_run._queued([unplaced, done])
    assert not job_run._queued([unplaced, placed])
    assert not job_run._queued([done])
