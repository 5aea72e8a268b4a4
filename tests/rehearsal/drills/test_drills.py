"""Fault drills: what passes and what does not, what a machine cannot hold, and every drill of the deployment."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path

import pytest

from components.config import parse
from operations.engine.durations import clock
from operations.failures import Exit
from operations.failures.advice import matching
from rehearsal.account import Account, Refused
from rehearsal.checks import CheckFailed
from rehearsal.drills import run
from rehearsal.drills.deployer import Deployer, Ground
from rehearsal.drills.model import Drill, Finding
from rehearsal.kubernetes.elastic import with_sixteen_nodes
from tests.operations.aws import ended
from tests.support import ROOT, config, few_files, project

IN_ACCOUNT = {drill.name: drill for drill in run.IN_ACCOUNT}


@pytest.fixture(autouse=True)
def _few_files(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drills deploy again and again. One of them is about the nodes' files."""
    with nullcontext() if "scripts-changed" in request.node.name else few_files():
        yield


def drill(act: Callable[[str], Finding]) -> Drill[str]:
    return Drill("name", "what", "account", "the cause", act)


def test_a_drill_passes_if_its_user_is_told_and_nothing_is_lost_or_left() -> None:
    passed = drill(lambda site: Finding("the cause", seconds=7)).run("site", "dev")
    assert (passed.passed, passed.why, passed.seconds) == (True, "", 7)
    assert not drill(lambda site: Finding("another cause")).run("site", "dev").passed
    assert not drill(lambda site: Finding("the cause", lost=["a job"])).run("site", "dev").passed
    assert not drill(lambda site: Finding("the cause", left=["a role"])).run("site", "dev").passed


def test_a_drill_without_recovery_fails_with_the_reason() -> None:
    def act(site: str) -> Finding:
        raise CheckFailed(f"{site} is still down")

    failed = drill(act).run("the site", "dev")
    assert (failed.passed, failed.why) == (False, "it did not recover: the site is still down")


def test_what_is_seen_ends_with_the_next_step() -> None:
    result = drill(lambda site: Finding("the cause: Rate exceeded")).run("site", "dev")
    found = result.as_json()
    cause, step, more = found["seen"].splitlines()
    assert cause == "the cause: Rate exceeded"
    assert step.startswith("Next: wait a few minutes")
    assert (more, found["code"]) == ("More: hyperpod explain HP013, or docs/troubleshooting.md#hp013", "HP013")


def test_an_unknown_drill_is_refused_with_the_known_ones() -> None:
    said = ended(Exit.BAD_INPUT, "rehearse", "drill", "--only", "nosuch")[1]
    assert "there is no drill nosuch; there are capacity, controller-capacity, quota" in " ".join(said.split())


@pytest.mark.slow
def test_one_drill_by_name_prints_and_writes_what_its_user_saw(tmp_path: Path) -> None:
    found = tmp_path / "drills.json"
    said, _ = ended(Exit.GOOD, "rehearse", "drill", "--only", "quota", "--write", str(found))
    (result,) = json.loads(found.read_text())["drills"]
    assert set(result) >= {"name", "passed", "seen", "lost", "left", "seconds"}
    assert (result["name"], result["passed"], result["lost"], result["left"]) == ("quota", True, [], [])
    assert "ResourceLimitExceeded" in result["seen"]
    assert "hyperpod quotas dev" in result["seen"]
    assert max(len(line) for line in said.splitlines()) <= 80
    for words in ("quota: the account's quota", "✓ passed", "The drill passed."):
        assert words in said


@pytest.mark.parametrize(
    ("stack", "name", "why"),
    [
        ("eks-gpu", "partition", "the simulated nodes are Slurm's, and this stack runs EKS"),
        ("dev", "kubernetes-unreachable", "a Slurm stack has no Kubernetes API"),
        ("eks-gpu", "controller-capacity", "an EKS stack has no Slurm controller"),
    ],
)
def test_what_cannot_be_held_is_said_and_proves_nothing(stack: str, name: str, why: str, tmp_path: Path) -> None:
    found = tmp_path / "drills.json"
    out, _ = ended(Exit.FAILED, "rehearse", "drill", stack, "--only", name, "--write", str(found))
    assert json.loads(found.read_text()) == {"drills": [], "not_run": [{"name": name, "why": why}]}
    assert f"{name}: {why}" in out


ROWS = [line.split(" | ") for line in (ROOT / "docs/drills.md").read_text().splitlines() if line.startswith("| `")]


def test_the_elastic_job_has_its_nodes_in_a_stack_whose_own_follow_demand() -> None:
    spare = {"name": "spare", "instanceType": "ml.p5.48xlarge", "count": 2, "scaling": "demand"}
    system = {"name": "system", "instanceType": "ml.m5.4xlarge", "count": 2}
    follows = project("eks-gpu", workers=[spare, system], autoscaling={"enabled": True})
    assert [group.least for group in parse(with_sixteen_nodes(follows).config).training_groups] == [16]


def test_the_docs_page_has_a_row_for_each_drill_with_what_it_breaks() -> None:
    assert [(row[0].strip("| `"), row[1]) for row in ROWS] == [(one.name, one.breaks) for one in run.EVERY]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_docs_page_has_the_code_of_what_the_user_sees(row: list[str]) -> None:
    known = matching(row[2])
    code = f"[{known.code}](troubleshooting.md#{known.code.lower()})" if known else ""
    assert re.findall(r"\[HP.*?\)", row[2]) == ([code] if code else [])


# These try every type of resource in turn, so they take longest, and the smaller stack has most of the types.
_OF_EVERY_TYPE = {"throttling", "deleted-behind"}


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_ACCOUNT)
def test_a_deployment_survives(name: str) -> None:
    stack = "dev" if name in _OF_EVERY_TYPE or IN_ACCOUNT[name].unfit(config("eks-gpu")) else "eks-gpu"
    result = IN_ACCOUNT[name].run(Ground(project(stack), config(stack)), stack)
    assert result.passed, result.as_json()
    assert result.known or name in ("deleted-behind", "scripts-changed", "destroy-cut-short")
    ((seen, takes),) = ((row[2], row[-1].rstrip(" |")) for row in ROWS if row[0] == f"| `{name}`")
    assert re.findall(r"\[(HP\d+)\]", seen) == ([result.known.code] if result.known else [])
    # The page has dev's time, where it names no other stack.
    if stack == "dev" or stack in takes:
        assert takes.split()[0] == clock(result.seconds)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["controller-capacity", "script-on-all"])
def test_a_drill_fails_where_nobody_deletes_what_never_worked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deployer, "settle", lambda deployer: None)
    result = IN_ACCOUNT[name].run(Ground(project(), config()), "dev")
    assert "it did not recover: AWS reports the HyperPod cluster as Failed" in result.why


@pytest.mark.slow
def test_a_drill_fails_where_what_is_gone_cannot_be_deleted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    delete = Account.delete

    def refusing(account: Account, type_token: str, resource_id: str) -> None:
        if (type_token, resource_id) not in account.live:
            raise Refused("ResourceNotFoundException", f"{resource_id} does not exist")
        delete(account, type_token, resource_id)

    monkeypatch.setattr(Account, "delete", refusing)
    result = IN_ACCOUNT["deleted-unnoticed"].run(Ground(project(), config()), "dev")
    assert any("does not exist" in one for one in result.left)


@pytest.mark.slow
def test_a_drill_fails_where_data_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = count()
    monkeypatch.setattr(Deployer, "holdings", lambda deployer: {"storage-lustre": str(next(ids))})
    assert IN_ACCOUNT["quota"].run(Ground(project(), config()), "dev").lost
