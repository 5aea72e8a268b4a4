"""``run-nccl-test`` and ``run-nccom-test`` inside their allocation: what they start, and what they say at the end."""

import json
import sys
from types import ModuleType
from unittest.mock import Mock

import pytest
from hyperpod_commands import nccl_test, nccom_test
from hyperpod_commands.cluster import Trouble, Workers
from hyperpod_node.facts.model import Group

from tests.lifecycle.commands.test_commands import NCCL, NCCOM, fact
from tests.lifecycle.rig import record

Started = list[tuple[list[str], float]]


def inside(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, workers: Workers, arguments: list[str], *said: str
) -> Started:
    """In an allocation of these workers, whose tests print this one after the other. What is started, and how long."""
    started, texts = Started(), list(said)
    own = record(Group(**{**workers.first["group"], "role": "worker"}))

    def ask(nodes: int) -> Workers:
        assert nodes == len(workers.facts)
        return workers

    def run_test(command: list[str], timeout: float) -> tuple[int, str]:
        started.append((command, timeout))
        return 0, f"{' '.join(command)}\n{texts.pop(0)}"

    monkeypatch.setenv("HYPERPOD_INSIDE", "1")
    monkeypatch.setattr(module, "record", lambda: own)
    names = {nccl_test: "run-nccl-test", nccom_test: "run-nccom-test"}
    monkeypatch.setattr(module, "as_person", {names[module]: None}.__getitem__)
    monkeypatch.setattr(module, "ask_workers", ask)
    monkeypatch.setattr(module, "run_test", run_test)
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    return started


def p5() -> Workers:
    return Workers([fact("n1"), fact("n2", devices=7)])


def trn1() -> Workers:
    return Workers([fact(name, "ml.trn1.32xlarge", nccom_test="/opt/nccom-test") for name in ("n1", "n2")])


def test_nccl_runs_with_every_gpu_of_the_workers_and_says_all_it_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = NCCL.replace("48.30", "300.5")
    started = inside(monkeypatch, nccl_test, p5(), ["2", "--json", "--timeout", "60"], fast)
    assert nccl_test.main() == 0
    options = nccl_test.parser().parse_args(["2"])
    assert started == [(nccl_test.mpirun(options, p5(), 8), 60)]
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert shown.out == json.dumps(document, indent=2, sort_keys=True) + "\n"
    assert [row["busbw"] for row in document.pop("rows")] == [0.0, 300.5]
    assert document == {
        "test": "nccl", "collective": "all_reduce", "backend": "nccl", "transport": "efa-rdma",
        "nodes": ["n1", "n2"], "ranks_per_node": 8, "instance_type": "ml.p5.48xlarge",
        "warnings": ["n2 has 7 of 8 devices"], "average": 24.105, "peak": 300.5, "threshold": pytest.approx(280),
        "wrong": 0, "reasons": [], "passed": True,
    }  # fmt: skip
    assert shown.err.splitlines() == [
        "all_reduce, 2 nodes x 8, nccl over efa-rdma, ['n1', 'n2']",
        "WARNING: n2 has 7 of 8 devices",
    ]


@pytest.mark.parametrize(
    ("arguments", "passed", "needed"),
    [
        (["2"], False, "280.00 GB/s"),
        # Half of the GPUs use half of the wire.
        (["2", "4"], False, "140.00 GB/s"),
        (["2", "--threshold", "40"], True, "40.00 GB/s"),
        (["2", "--threshold", "0"], True, "none (only correctness is rated)"),
    ],
)
def test_people_are_told_the_verdict_and_scripts_by_the_exit_status(
    arguments: list[str],
    passed: bool,
    needed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started = inside(monkeypatch, nccl_test, p5(), arguments, NCCL)
    assert nccl_test.main() == int(not passed)
    lines = capsys.readouterr().out.splitlines()
    assert f"Threshold:             {needed}" in lines
    assert lines[-1] == ("PASS" if passed else "FAIL")
    assert ("Look at:" in lines) is not passed
    command, timeout = started[0]
    assert command[command.index("-np") + 1] == ("8" if "4" in arguments else "16")
    assert timeout == 1800


def test_an_nccl_test_that_ends_with_an_error_fails_whatever_it_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inside(monkeypatch, nccl_test, p5(), ["2", "--json", "--threshold", "0"], NCCL)
    monkeypatch.setattr(nccl_test, "run_test", lambda *_: (3, f"{NCCL}\nmpirun: lost n2"))
    assert nccl_test.main() == 1
    assert json.loads(capsys.readouterr().out)["reasons"] == ["the test ended with status 3: mpirun: lost n2"]


def test_on_ethernet_one_process_a_node_runs_gloo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = Workers([fact(name, "ml.g5.16xlarge", "tcp", nccl_tests="") for name in ("n1", "n2")])
    started = inside(monkeypatch, nccl_test, workers, ["2", "--json"], NCCL)
    assert nccl_test.main() == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["backend"], document["ranks_per_node"], document["threshold"]) == ("gloo", 1, 0.625)
    assert [command for command, _ in started] == [[
        "srun", "--mpi=none", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--gres=none", "--overlap",
        "--nodelist=n1,n2", "--kill-on-bad-exit=1", "/usr/bin/python3", "/opt/hyperpod/lib/training/gloo_sweep.py",
        "all_reduce", "--min", "8", "--max", "32M", "--master", "10.1.0.12",
    ]]  # fmt: skip


def test_nccom_measures_in_one_run_and_checks_values_in_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = inside(monkeypatch, nccom_test, trn1(), ["2", "--json", "--timeout", "60"], NCCOM, NCCOM)
    assert nccom_test.main() == 0
    options = nccom_test.parser().parse_args(["2"])
    assert started == [
        (nccom_test.command(options, trn1(), 32, sizes), 60) for sizes in (nccom_test.SWEEP, nccom_test.CHECK)
    ]
    shown = capsys.readouterr()
    assert shown.err == "all_reduce, 2 nodes x 32 NeuronCores, efa-rdma, ['n1', 'n2']\n"
    document = json.loads(shown.out)
    assert shown.out == json.dumps(document, indent=2, sort_keys=True) + "\n"
    assert len(document.pop("rows")) == 4
    assert document == {
        "test": "nccom", "collective": "all_reduce", "transport": "efa-rdma", "nodes": ["n1", "n2"],
        "ranks_per_node": 32, "instance_type": "ml.trn1.32xlarge", "warnings": [], "average": 13.29, "peak": 37.01,
        "threshold": pytest.approx(35), "wrong": 0, "reasons": [], "passed": True,
    }  # fmt: skip


def test_nccom_uses_the_cores_that_the_workers_let_jobs_see_or_fewer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = [fact("n1", "ml.trn1.32xlarge"), fact("n2", "ml.trn1.32xlarge")]
    for number, one in zip(("32", "16"), facts, strict=True):
        one["environment"]["NEURON_RT_NUM_CORES"] = number
    for arguments, cores, needed in ((["2"], 16, 35.0), (["2", "8"], 8, 17.5)):
        started = inside(monkeypatch, nccom_test, Workers(facts), [*arguments, "--json"], NCCOM, NCCOM)
        nccom_test.main()
        command = started[0][0]
        assert command[command.index("--nworkers") + 1] == str(2 * cores)
        assert json.loads(capsys.readouterr().out)["threshold"] == pytest.approx(needed)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        pytest.param([(1, "nccom-test\nno device")], "no device", id="a failed measurement is not checked"),
        pytest.param([(0, NCCOM), (1, "check failed")], "check failed", id="wrong values of the check fail"),
    ],
)
def test_either_run_of_nccom_that_fails_is_the_verdict(
    answers: list[tuple[int, str]], reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inside(monkeypatch, nccom_test, trn1(), ["2"])
    monkeypatch.setattr(nccom_test, "run_test", lambda *_: answers.pop(0))
    assert nccom_test.main() == 1
    assert answers == []
    out = capsys.readouterr().out.splitlines()
    assert f"  the test ended with status 1: {reason}" in out
    assert out[-1] == "FAIL"


def test_gpus_are_no_neuron_cores(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    inside(monkeypatch, nccom_test, p5(), ["2"])
    assert nccom_test.entry() == 2
    assert capsys.readouterr().err == (
        "run-nccom-test: the workers are ml.p5.48xlarge, without NeuronCores; run-nccl-test is for GPUs\n"
    )


def test_trouble_of_the_nccl_test_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nccl_test, "main", Mock(side_effect=Trouble("no workers")))
    assert nccl_test.entry() == 2
    assert capsys.readouterr().err == "run-nccl-test: no workers\n"


@pytest.mark.parametrize(
    ("arguments", "passed", "needed"),
    [
        (["2"], True, "35.00 GB/s"),
        (["2", "--threshold", "38"], False, "38.00 GB/s"),
        (["2", "--threshold", "0"], True, "none (only correctness is rated)"),
        # A rank has a 32nd of the wire, and 32 of the 63 others are on the other node.
        (["2", "32", "alltoall"], True, "2.15 GB/s"),
        # One node has no wire.
        (["1"], True, "none (only correctness is rated)"),
    ],
)
def test_nccom_tells_people_the_verdict_too(
    arguments: list[str],
    passed: bool,
    needed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = [fact("n1", "ml.trn1.32xlarge", devices=15), fact("n2", "ml.trn1.32xlarge")]
    inside(monkeypatch, nccom_test, Workers(facts[: int(arguments[0])]), arguments, NCCOM, NCCOM)
    assert nccom_test.main() == int(not passed)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "WARNING: n1 has 15 of 16 devices"
    assert f"Threshold:             {needed}" in lines
    assert ("  - all nodes must be in one Availability Zone: EFA traffic cannot leave it" in lines) is not passed
    assert lines[-1] == ("PASS" if passed else "FAIL")
