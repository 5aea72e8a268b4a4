"""The embedded account as Pulumi providers, called by the real engine if there is a Pulumi CLI."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from operations.failures import Exit, Failure
from operations.project.loading import Project, load_project
from rehearsal.account import Account, Fault
from rehearsal.engines.real import EngineFailure, real_stack, rehearse_on_real_engine
from tests.support import READY_STACKS, ROOT, project

LOGS = "aws:cloudwatch/logGroup:LogGroup"


def test_without_a_cli_it_says_so_and_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with Account("us-west-2") as account, pytest.raises(Failure, match="there is no `pulumi` on PATH") as missing:
        rehearse_on_real_engine(project(), account, print)
    assert missing.value.code == Exit.CANNOT_KNOW


needs_cli = pytest.mark.skipif(shutil.which("pulumi") is None, reason="there is no Pulumi CLI on PATH")


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """Creates a project from a program's text."""

    def make(text: str) -> Project:
        (tmp_path / "Pulumi.yaml").write_text("name: probe\nruntime: python\n")
        (tmp_path / "Pulumi.test.yaml").write_text("config:\n  aws:region: us-west-2\n")
        (tmp_path / "__main__.py").write_text(f"import pulumi, pulumi_aws as aws\n{text}")
        return load_project(tmp_path, "test")

    return make


@pytest.mark.engine
@needs_cli
@pytest.mark.slow
@pytest.mark.parametrize("stack", READY_STACKS)
def test_every_ready_stack_comes_up_settles_refreshes_and_leaves_nothing(stack: str) -> None:
    loaded = project(stack)
    lines: list[str] = []
    before = (ROOT / f"Pulumi.{stack}.yaml").read_text()
    with Account(loaded.config["aws:region"]) as account:
        run = rehearse_on_real_engine(loaded, account, lines.append)
    assert run.failure == ""
    total = run.counts["up"]["create"]
    assert total > 80
    assert run.counts == {
        "preview": {"create": total},
        "up": {"create": total},
        "second preview": {"same": total},
        "second up": {"same": total},
        "refresh": {"same": total},
        "refreshed preview": {"same": total},
        "destroy": {"delete": total},
    }
    assert run.leftovers == []
    urns = [resource["urn"] for resource in run.state["resources"]]
    assert len(urns) == len(set(urns))
    assert run.outputs["clusterArn"].startswith("arn:aws:sagemaker:us-west-2:")
    assert (ROOT / f"Pulumi.{stack}.yaml").read_text() == before
    assert any(line.startswith("up: ") for line in lines)
    if loaded.config["hyperpod:orchestrator"] == "eks":
        assert run.secret_outputs == {"kubeconfig"}
        _assert_encrypted(run.state, "pulumi:pulumi:Stack", "outputs")
        _assert_encrypted(run.state, "eks-kubernetes", "inputs")
        _assert_encrypted(run.state, "eks-kubernetes", "outputs")


def _assert_encrypted(state: dict[str, Any], resource: str, part: str) -> None:
    found = [r for r in state["resources"] if resource in (r["type"], r["urn"].rsplit("::", 1)[1])]
    assert len(found) == 1
    assert "ciphertext" in found[0][part]["kubeconfig"]


@pytest.mark.engine
@needs_cli
@pytest.mark.slow
def test_an_edited_lifecycle_file_changes_its_own_object_and_nothing_else(tmp_path: Path) -> None:
    for name in ("components", "lifecycle"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__main__.py", "Pulumi.yaml", "Pulumi.dev.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    with Account("us-west-2") as account, real_stack(load_project(tmp_path, "dev"), account, print) as stack:
        total = stack.run("up")["create"]
        with (tmp_path / "lifecycle" / "on_create.sh").open("a") as script:
            script.write("# edited\n")
        assert stack.run("up") == {"update": 1, "same": total - 1}
        assert stack.changed == ["lifecycle-on_create.sh (update)"]
        stack.run("destroy")
        assert account.leftovers() == []


@pytest.mark.engine
@needs_cli
def test_a_failed_resource_is_named_with_its_cause_and_destroy_leaves_nothing(program: Any) -> None:
    text = "logs = aws.cloudwatch.LogGroup('logs', name='a')\naws.cloudwatch.LogGroup('later', name=logs.arn)\n"
    with Account("us-west-2", faults=[Fault(target="later")]) as account:
        run = rehearse_on_real_engine(program(text), account, print)
    assert run.failure == f"later ({LOGS}): {Fault().error()}"
    # The stack itself and the provider count as well as the one resource that came up.
    assert run.counts["destroy"] == {"delete": 2}
    assert run.leftovers == []


@pytest.mark.engine
@needs_cli
def test_a_program_that_stops_itself_says_why(program: Any) -> None:
    with Account("us-west-2") as account:
        run = rehearse_on_real_engine(program("raise pulumi.RunError('not today')\n"), account, print)
    assert run.failure == "not today"
    assert run.leftovers == []


@pytest.mark.engine
@needs_cli
def test_what_is_retained_on_delete_is_no_leftover_and_what_is_protected_is_refused(program: Any) -> None:
    text = "aws.cloudwatch.LogGroup('kept', name='kept', opts=pulumi.ResourceOptions(retain_on_delete=True))\n"
    with Account("us-west-2") as account:
        run = rehearse_on_real_engine(program(text), account, print)
        assert (run.failure, run.leftovers) == ("", [])
        assert (LOGS, "kept") in account.live
    text = "aws.cloudwatch.LogGroup('held', name='held', opts=pulumi.ResourceOptions(protect=True))\n"
    with Account("us-west-2") as account:
        run = rehearse_on_real_engine(program(text), account, print)
        assert run.failure.startswith(f"held ({LOGS}): ")
        assert "cannot be deleted" in run.failure
        assert run.leftovers


@pytest.mark.engine
@needs_cli
def test_two_resources_of_one_urn_are_refused(program: Any) -> None:
    text = "for _ in range(2): aws.cloudwatch.LogGroup('logs', name='a')\n"
    with (
        Account("us-west-2") as account,
        real_stack(program(text), account, print) as stack,
        pytest.raises(EngineFailure, match="Duplicate resource URN"),
    ):
        stack.run("preview")
