"""A stack of the Pulumi CLI, without the CLI: what is shown of it, and what becomes of its file."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pulumi import automation

from operations.deployment.engines import PulumiEngine
from operations.engine.pulumi_cli import CommandRun, note


class Stack:
    """A stack of the Automation API that has outputs and a file."""

    name = "dev"

    def __init__(self, folder: Path) -> None:
        self.workspace = SimpleNamespace(work_dir=folder)
        self.file = folder / "Pulumi.dev.yaml"
        self.file.write_text("config:\n  # mine\n  hyperpod:size: small\n")

    def outputs(self) -> dict[str, automation.OutputValue]:
        return {"vpcId": automation.OutputValue("vpc-1", False), "kubeconfig": automation.OutputValue("token", True)}

    def set_all_config(self, values: dict[str, automation.ConfigValue], path: bool) -> None:
        assert path
        self.file.write_text("".join(f"{key}={one.value}\n" for key, one in values.items()))

    def export_stack(self) -> automation.Deployment:
        urn = (
            "urn:pulumi:dev::hyperpod::hyperpod:index:Storage$aws:fsx/lustreFileSystem:LustreFileSystem::storage-lustre"
        )
        resources = [{"urn": urn, "initErrors": ["BadRequest"]}, {"urn": urn.replace("lustre", "kept")}]
        return automation.Deployment(3, {"resources": resources})


def engine(stack: Any) -> PulumiEngine:
    cli: Any = SimpleNamespace(version="3.0.0", interrupt=lambda: None)
    return PulumiEngine(stack, cli)


def test_secret_outputs_are_never_shown(tmp_path: Path) -> None:
    assert engine(Stack(tmp_path)).outputs() == {"kubeconfig": "[secret]", "vpcId": "vpc-1"}


def test_what_pulumi_is_unsure_of_is_what_it_keeps_an_error_of(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    assert engine(stack).unsure() == ["storage-lustre"]
    stack.export_stack = lambda: automation.Deployment(3, None)  # type: ignore[method-assign]
    assert engine(stack).unsure() == [], "a stack that is new"


def test_a_change_that_is_taken_back_leaves_the_stacks_file_as_it_was(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    before, found = stack.file.read_text(), engine(stack)
    found.configure({"hyperpod:workers[0].count": "4"})
    assert stack.file.read_text() == "hyperpod:workers[0].count=4\n"
    found.restore()
    assert stack.file.read_text() == before


def test_what_was_never_changed_is_not_written(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    found = engine(stack)
    stack.file.unlink()
    found.restore()
    assert not stack.file.exists()


def test_only_causes_count_and_not_what_the_engine_says_after_them() -> None:
    run = CommandRun()
    for text in (
        "the bucket name is taken",
        "update failed",
        "Resource monitor has terminated, shutting down",  # Pulumi 3.274
        "resource monitor shut down while waiting on step's done channel",
        "rpc error: code = Canceled desc = grpc: the client connection is closing",
    ):
        note(run, SimpleNamespace(severity="error", message=f"error: {text}", urn=""))
    assert [cause.text for cause in run.causes] == ["the bucket name is taken"]
