"""``run-nccl-test`` and ``run-nccom-test`` inside their allocation: what they run, what they say, how they end."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hyperpod_commands import nccl_test, nccom_test
from hyperpod_commands.cluster import Trouble, Workers

from tests.lifecycle.commands.test_commands import NCCL, NCCOM, fact, options
from tests.lifecycle.rig import group

Ran = list[list[str]]


def runner(*ends: tuple[int, str]) -> tuple[Ran, Callable[..., tuple[int, str]]]:
    """What takes the place of a test: it notes the command, and ends as it is told to."""
    ran: Ran = []

    def run_test(command: Sequence[str], timeout: float, *_: Any) -> tuple[int, str]:
        assert timeout == 1800
        ran.append(list(command))
        code, text = ends[len(ran) - 1]
        return code, f"the command\n{text}"

    return ran, run_test


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Two healthy workers with eight GPUs each."""
    workers = [fact("n1"), fact("n2")]
    # Everything but the record goes to stderr then.
    monkeypatch.setattr(sys, "argv", ["run-nccl-test", "--json"])
    monkeypatch.setattr(nccl_test, "ask_workers", lambda nodes: Workers(workers[:nodes]))
    return workers


def test_a_healthy_pair_passes_and_its_record_says_what_ran_where(
    gpus: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran, run_test = runner((0, NCCL))
    monkeypatch.setattr(nccl_test, "run_test", run_test)
    assert nccl_test.measure(options(json=True, threshold=40.0), 8) == 0
    told = json.loads(capsys.readouterr().out)
    known = ("test", "collective", "backend", "transport", "nodes", "ranks_per_node", "instance_type", "warnings")
    assert [told[key] for key in known] == [
        "nccl", "all_reduce", "nccl", "efa-rdma", ["n1", "n2"], 8, "ml.p5.48xlarge", [],
    ]  # fmt: skip
    assert told["passed"]
    assert len(ran) == 1
    assert "all_reduce_perf" in " ".join(ran[0])


@pytest.mark.parametrize(
    ("threshold", "passed"),
    [(None, False), (0.0, True), (48.3, True), (48.4, False)],
    ids=["by-type", "none", "reached", "missed"],
)
def test_the_threshold_is_the_types_unless_another_is_asked_for(
    gpus: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, threshold: float | None, passed: bool
) -> None:
    monkeypatch.setattr(nccl_test, "run_test", runner((0, NCCL))[1])
    assert nccl_test.measure(options(threshold=threshold), 8) == (0 if passed else 1)


def test_a_test_that_ends_with_an_error_fails_whatever_it_printed(
    gpus: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nccl_test, "run_test", runner((3, f"{NCCL}\nmpirun: lost n2"))[1])
    assert nccl_test.measure(options(json=True, threshold=0.0), 8) == 1
    assert json.loads(capsys.readouterr().out)["reasons"] == ["the test ended with status 3: mpirun: lost n2"]


def test_a_worker_that_has_lost_a_gpu_is_warned_of(
    gpus: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus[1]["devices"] = 7
    monkeypatch.setattr(nccl_test, "run_test", runner((0, NCCL))[1])
    nccl_test.measure(options(json=True, threshold=0.0), 8)
    shown = capsys.readouterr()
    assert any("n2" in line for line in json.loads(shown.out)["warnings"])
    assert "WARNING: " in shown.err


def test_gloo_runs_one_process_a_node(gpus: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    ran, run_test = runner((0, NCCL))
    monkeypatch.setattr(nccl_test, "run_test", run_test)
    assert nccl_test.measure(options(backend="gloo", threshold=0.0), 8) == 0
    assert "--ntasks-per-node=1" in ran[0]
    assert ran[0][ran[0].index("--master") + 1] == "10.1.0.12"


@pytest.fixture
def trainium(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Two healthy workers with 32 NeuronCores each, in their allocation."""
    workers = [fact(name, "ml.trn1.32xlarge") for name in ("n1", "n2")]
    for one in workers:
        one["environment"]["NEURON_RT_NUM_CORES"] = "32"
    own = group("workers", "ml.trn1.32xlarge")
    monkeypatch.setenv("HYPERPOD_INSIDE", "1")
    monkeypatch.setattr(sys, "argv", ["run-nccom-test", "--json"])
    monkeypatch.setattr(nccom_test, "as_person", lambda name: None)
    monkeypatch.setattr(nccom_test, "record", dict)
    monkeypatch.setattr(nccom_test, "worker_group", lambda record, partition: own)
    monkeypatch.setattr(nccom_test, "ask_workers", lambda nodes: Workers(workers[:nodes]))
    return workers


def test_neuron_cores_are_measured_and_their_values_checked_in_a_second_run(
    trainium: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran, run_test = runner((0, NCCOM), (0, ""))
    monkeypatch.setattr(nccom_test, "run_test", run_test)
    assert nccom_test.entry() == 0
    told = json.loads(capsys.readouterr().out)
    known = ("test", "collective", "transport", "nodes", "ranks_per_node", "instance_type", "warnings", "passed")
    assert [told[key] for key in known] == [
        "nccom", "all_reduce", "efa-rdma", ["n1", "n2"], 32, "ml.trn1.32xlarge", [], True,
    ]  # fmt: skip
    assert ["--check" in command for command in ran] == [False, True]
    assert all(command[command.index("--nworkers") + 1] == "64" for command in ran)


def test_a_failed_measurement_is_not_checked(
    trainium: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran, run_test = runner((nccl_test.TIMED_OUT, "nothing more"))
    monkeypatch.setattr(nccom_test, "run_test", run_test)
    assert nccom_test.entry() == 1
    assert len(ran) == 1
    assert json.loads(capsys.readouterr().out)["reasons"][-1] == "the test timed out: nothing more"


def test_wrong_values_of_the_second_run_fail(
    trainium: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nccom_test, "run_test", runner((0, NCCOM), (1, "check failed"))[1])
    assert nccom_test.entry() == 1
    assert json.loads(capsys.readouterr().out)["reasons"][-1] == "the test ended with status 1: check failed"


def test_fewer_cores_than_a_node_has_are_used_where_asked(
    trainium: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, run_test = runner((0, NCCOM), (0, ""))
    monkeypatch.setattr(nccom_test, "run_test", run_test)
    monkeypatch.setattr(sys, "argv", ["run-nccom-test", "2", "8", "--threshold", "20"])
    assert nccom_test.entry() == 0
    assert ran[0][ran[0].index("--nworkers") + 1] == "16"


def test_gpus_are_no_neuron_cores(
    trainium: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = group("workers", "ml.p5.48xlarge")
    monkeypatch.setattr(nccom_test, "worker_group", lambda record, partition: own)
    assert nccom_test.entry() == 2
    assert capsys.readouterr().err == (
        "run-nccom-test: the workers are ml.p5.48xlarge, without NeuronCores; run-nccl-test is for GPUs\n"
    )


def test_trouble_of_the_nccl_test_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> int:
        raise Trouble("no workers")

    monkeypatch.setattr(nccl_test, "main", main)
    assert nccl_test.entry() == 2
    assert capsys.readouterr().err == "run-nccl-test: no workers\n"
