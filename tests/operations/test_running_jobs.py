"""Jobs that are submitted are listed, read and cancelled by the name under which they were run."""

import json
from pathlib import Path
from typing import Any

import pytest

from operations import cli
from operations.failures import Exit
from operations.jobs.kubernetes_api import KubernetesApi
from operations.jobs.render import render
from tests.operations.test_job_run import NAMESPACE, FakeApi
from tests.support import config


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeApi, list[str]]:
    """A cluster that runs nanogpt and nothing else, and the options that lead to it."""
    file = tmp_path / "kubeconfig"
    file.write_text("{}")
    api = FakeApi(
        NAMESPACE, render("nanogpt", config("eks-gpu"))[-1], says="iter 10: loss 2.5, 3 ms\niter 20: loss 2.4"
    )
    monkeypatch.setattr(KubernetesApi, "of", lambda _: api)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return api, ["--kubeconfig", str(file)]


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(words)
    return code, *capsys.readouterr()


def test_only_jobs_that_are_there_are_listed(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    api, where = cluster
    code, out, _ = ran(capsys, "job", "list", "eks-gpu", *where, "--json")
    assert code == Exit.GOOD
    assert json.loads(out) == [{"job": "nanogpt", "namespace": "training", "state": "1 of 1 pods run"}]
    api.heard = True
    assert "nanogpt  training   succeeded" in ran(capsys, "job", "list", "eks-gpu", *where)[1]
    api.there.clear()
    assert "hyperpod job run eks-gpu JOB" in ran(capsys, "job", "list", "eks-gpu", *where)[2]


@pytest.mark.parametrize("options", [(), ("--follow",)])
def test_the_log_is_what_the_job_said(
    options: tuple[str, ...], cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    _, where = cluster
    code, out, _ = ran(capsys, "job", "logs", "eks-gpu", "nanogpt", *options, *where)
    assert (code, out) == (Exit.GOOD, "iter 10: loss 2.5, 3 ms\niter 20: loss 2.4\n")


def test_a_job_is_cancelled_only_when_that_is_confirmed(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    api, where = cluster
    code, _, err = ran(capsys, "job", "cancel", "eks-gpu", "nanogpt", *where)
    assert (code, "Delete nanogpt (1 of 1 pods run)?" in err, api.deleted) == (Exit.BAD_INPUT, True, [])
    assert ran(capsys, "job", "cancel", "eks-gpu", "nanogpt", "--yes", *where)[0] == Exit.GOOD
    assert api.deleted == ["PyTorchJob", "ConfigMap"]


@pytest.mark.parametrize("verb", ["logs", "cancel"])
def test_a_job_that_is_not_there_is_said(verb: str, cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ran(capsys, "job", verb, "eks-gpu", "fsdp-llama", *cluster[1])
    assert code == Exit.BAD_INPUT
    assert "there is no job fsdp-llama\nNext: hyperpod job list eks-gpu" in err
