"""`hyperpod rehearse`: exit codes, messages and files as users see them."""

import json
import os
import signal
from pathlib import Path

import pytest
import typer

from operations.failures import Exit
from operations.terminal.command_line import called
from operations.terminal.interrupts import Interrupted
from rehearsal.account.faults import NO_CAPACITY
from rehearsal.checks import Findings
from rehearsal.commands import end
from tests.operations.aws import ended
from tests.support import few_files


def test_all_good_is_0_and_writes_both_files_with_the_documented_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, result = tmp_path / "r.html", tmp_path / "r.json"
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with few_files():
        printed, beside = ended(Exit.GOOD, "rehearse", "dev", "--report", str(page), "--open", "--write", str(result))
    assert opened == [page.as_uri()]
    found = json.loads(result.read_text())
    assert found["passed"] is True
    assert found["leftovers"] == []
    documented = {
        "variant",
        "title",
        "resources",
        "critical_path",
        "total_seconds",
        "cluster",
        "after_cluster",
        "cost",
        "quotas",
        "outputs",
        "destroyed",
        "leftovers",
    }
    assert documented <= set(found)
    assert {"urn", "type", "name", "parent", "dependencies", "start", "finish"} == set(found["resources"][0])
    assert found["cost"]["hourly_usd"] == pytest.approx(sum(found["cost"]["parts"].values()), abs=0.01)
    assert page.read_text().lower().startswith("<!doctype html>")
    assert "There is no browser here" in beside, "webbrowser.open returned nothing"
    assert "Rehearsing dev: Slurm with GPUs in us-west-2" in printed, "not the name of another stack"
    for text in (
        "Critical path",
        "until the cluster is up; workers follow",
        "18:13",
        "an hour",
        "Quotas needed",
        "Outputs",
        "nothing is left in the account",
    ):
        assert text in printed
    said, following = printed.splitlines()[-2:]
    assert said.startswith("dev is good: up in 19 minutes on AWS, $11.37 an hour; quotas to have: 2 x ml.g5.16xlarge")
    assert following == f"Next: {called()} quotas dev"
    # Only later deployments read it.
    assert "deployedWith" in found["outputs"]
    assert "deployedWith" not in printed + page.read_text()


def test_a_failed_deployment_is_1_and_names_resource_and_cause(tmp_path: Path) -> None:
    page, result = tmp_path / "r.html", tmp_path / "r.json"
    files = ["--report", str(page), "--write", str(result)]
    with few_files():
        printed, _ = ended(Exit.FAILED, "rehearse", "dev", "--fail", "hyperpod-cluster=controller-capacity", *files)
    found = json.loads(result.read_text())
    assert [(one["name"], one["operation"]) for one in found["failed"]] == [("hyperpod-cluster", "create")]
    assert NO_CAPACITY in found["cause"]
    assert found["next_step"].startswith("AWS has no such instances")
    assert found["next_step"] in page.read_text()
    assert "hyperpod-cluster (aws-native:sagemaker:Cluster): create failed: NotStabilized: We currently" in printed
    assert "  Next: AWS has no such instances in this zone now. Workers: HyperPod" in printed
    assert "nothing is left in the account" in printed
    assert "is good" not in printed


def test_a_cluster_without_its_accelerators_is_up_and_says_what_is_missing(tmp_path: Path) -> None:
    with few_files():
        out, _ = ended(
            Exit.GOOD, "rehearse", "dev", "--fail", "hyperpod-cluster=capacity", "--write", str(tmp_path / "r.json")
        )
    said = "hyperpod-cluster is InService without 2 of 2 instances of workers"
    assert any(one.startswith(said) for one in json.loads((tmp_path / "r.json").read_text())["warnings"])
    assert said in " ".join(out.split())


@pytest.mark.slow
def test_a_group_whose_first_type_aws_lacks_comes_as_its_second(tmp_path: Path) -> None:
    several = [
        {"name": "workers", "instanceType": "ml.p5.48xlarge", "fallbackTypes": ["ml.p5en.48xlarge"], "count": 2},
        {"name": "system", "instanceType": "ml.m5.xlarge", "count": 3},
    ]
    keys = f"--config=hyperpod:workers={json.dumps(several)}"
    with few_files():
        out, _ = ended(
            *(Exit.GOOD, "rehearse", "eks-gpu", "--fail", "ml.p5.48xlarge=capacity", keys),
            *("--write", str(tmp_path / "r.json")),
        )
    found = json.loads((tmp_path / "r.json").read_text())
    said = "hyperpod-cluster has ml.p5en.48xlarge in workers: AWS lacks ml.p5.48xlarge, which is tried first"
    assert said in found["warnings"]
    assert said in " ".join(out.split())


def test_an_interrupted_run_says_so_and_that_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rehearsal.outcome.rehearse", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    assert "ended by SIGINT: the embedded account" in ended(Exit.CANCELLED, "rehearse", "dev")[1]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("signalled", "said"), [("SIGINT", "Cancelled."), ("SIGTERM", "Ended by SIGTERM.")])
def test_an_interrupted_drill_says_so_in_one_sentence(
    signalled: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rehearsal.drills.show.hold", lambda *_: os.kill(os.getpid(), signal.Signals[signalled]))
    assert ended(Exit.CANCELLED, "rehearse", "drill", "dev")[1] == f"{said}\n"


def test_a_run_that_somebody_ended_is_cancelled_and_not_failed() -> None:
    outcome = Findings(stack="dev")
    outcome.cancel(Interrupted("SIGINT"))
    with pytest.raises(typer.Exit) as ended:
        end(outcome)
    assert (ended.value.exit_code, outcome.failure) == (130, "ended by SIGINT")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere"], "stacks here: dev, eks-gpu"),
        (["--config", "hyperpod:size=huge"], "hyperpod:size"),
        (["--config", "hyperpod:protect=perhaps"], "'perhaps' is not a boolean; true or false"),
        (["--config", "size"], "key=value"),
        (["--config", "hyperpod:workers=[{"], "not JSON"),
        (["--config", "hyperpod:workers=many"], "'many' is not an array"),
        (["--fail", "x=explosion"], "one of error, throttling"),
        (["--fail", "=capacity"], "not TARGET=KIND"),
        (
            ["eks-gpu", "--fail", "hyperpod-cluster=controller-capacity"],
            "stack eks-gpu has no Slurm controller",
        ),
        (["--quota", "vpcs=many"], '"many" is not a whole number from 0; NAME=N, as in vpcs=5'),
        (["--quota", "vpcs=-1"], '"-1" is not a whole number'),
        (["--quota", "=5"], "NAME=N, as in vpcs=5"),
        (["--quota", "ml.g99.xlarge=0"], "did you mean ml.g5.16xlarge?"),
        (["--open"], "add --report report.html"),
        (["--config", "a=1"], "hyperpod:a: unknown key"),
        (["--then", "size=medium protect=perhaps"], "hyperpod:protect"),
        (["--then", "size=medium", "--then", "protect=perhaps"], "hyperpod:protect"),
        (["--then"], "--then"),
        (["--nosuch"], "hyperpod rehearse deployment --help"),
        (["nosuch"], "nosuch"),
        (["dev", "nodes"], "unexpected extra argument(s) (nodes)"),
        (["nodes", "--slurm", "1"], "24.11"),
        (["eks", "--cycles", "0"], "hyperpod rehearse eks --help"),
        (["eks", "eks-gpu", "--config", "hyperpod:size=huge"], "hyperpod:size"),
    ],
)
def test_bad_input_is_2_with_the_reason_and_no_traceback(arguments: list[str], text: str) -> None:
    with few_files():
        out, err = ended(Exit.BAD_INPUT, "rehearse", *arguments)
    assert text in err
    assert "Traceback" not in err + out


def test_several_problems_are_all_printed() -> None:
    settings = ["clusterName=Bad-", "accelerator=trainium", "colour=red", "availabilityZoneId=use1-az1"]
    printed = ended(
        Exit.BAD_INPUT, "rehearse", *[part for setting in settings for part in ("--config", f"hyperpod:{setting}")]
    )[1]
    assert "4 problems in the configuration, nothing was created" in printed
    for key in ("clusterName", "workers[0].instanceType", "colour", "availabilityZoneId"):
        assert f"hyperpod:{key}:" in printed


@pytest.mark.slow
def test_a_quota_and_a_kept_stack() -> None:
    assert (
        "'ml.g5.16xlarge for cluster usage' is 1 Instances"
        in ended(Exit.FAILED, "rehearse", "--quota", "ml.g5.16xlarge=1")[0]
    )
    assert "Not destroyed, as requested" in ended(Exit.GOOD, "rehearse", "--keep-up")[0]


@pytest.mark.parametrize("command", [[], ["deployment"], ["nodes"], ["eks"], ["drill"]])
@pytest.mark.parametrize("asked", ["-h", "--help"])
def test_help_of_every_command_says_its_exit_codes(command: list[str], asked: str) -> None:
    said = ended(Exit.GOOD, "rehearse", *command, asked)[0]
    assert f"Usage: {' '.join(['hyperpod rehearse', *command])} " in said
    assert "Exit code: 0" in said
    assert max(map(len, said.splitlines())) <= 80
