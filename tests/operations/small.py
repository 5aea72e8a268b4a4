"""A small stack for the tests of deployments: two log groups, in a project with a good configuration."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operations import target
from operations.aws import Aws
from operations.engine.pulumi_cli import CommandRun
from operations.target import Target
from tests.support import ROOT

LOGS = "aws:cloudwatch/logGroup:LogGroup"
needs_cli = pytest.mark.skipif(shutil.which("pulumi") is None, reason="there is no Pulumi CLI on PATH")
# Two groups, the second after the first; the configuration decides the second's retention.
PROGRAM = """
import pulumi
import pulumi_aws as aws
days = len(pulumi.Config("hyperpod").require_object("workers")[0]["name"])
first = aws.cloudwatch.LogGroup("first", name="a")
later = aws.cloudwatch.LogGroup("later", name="b", retention_in_days={days}, tags={{"of": first.arn}})
pulumi.export("name", later.name)
pulumi.export("password", pulumi.Output.secret("hunter2"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Target]:
    """A stack of a small program, with a configuration that the verbs accept."""

    def make(text: str = PROGRAM.format(days=7)) -> Target:
        for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
            shutil.copy(ROOT / name, tmp_path / name)
        (tmp_path / "__main__.py").write_text(text)
        return replace(target.load("dev", root=tmp_path), aws=Aws("us-west-2"))

    return make


class Planning:
    """An engine that plans one change, does what it is told, and notes it."""

    title = "planning"

    def __init__(self, **ends: Any) -> None:
        self.did: list[str] = []
        self._ends = ends

    def execute(self, command: str, *_: object) -> CommandRun:
        self.did.append(command)
        return CommandRun(counts={"update": 1}, changed=["hyperpod-cluster (update)"], **self._ends)

    def unsure(self) -> list[str]:
        return []

    def half_made(self) -> list[Any]:
        return []

    def outputs(self) -> dict[str, Any]:
        return {}

    def cancel(self) -> None: ...

    def configure(self, values: dict[str, str]) -> None:
        self.did.append(f"configure {values}")

    def restore(self) -> None:
        self.did.append("restore")
