"""Fixtures of the verbs' tests."""

from pathlib import Path

import pytest

from tests.operations.aws import aws, kubernetes, on, plugin, refusing
from tests.operations.small import project
from tests.operations.workspace import workspace

__all__ = ["aws", "kubernetes", "on", "plugin", "project", "refusing", "workspace"]


@pytest.fixture(autouse=True)
def records_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the verbs' records out of the checkout, where `hyperpod errors` would tell of them."""
    monkeypatch.setattr("operations.records.FOLDER", str(tmp_path / "records"))
