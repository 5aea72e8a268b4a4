"""A question to a stack's Prometheus workspace: signed by the caller, and read as the register's rows say."""

import json

import pytest

from operations.assumptions import register
from operations.assumptions.probing import Stack
from tests.operations.aws import StubbedAws, stack
from tests.operations.workspace import ARN, Workspace

ROW = next(row for row in register() if row.id == "metrics-gpus")


def settled(aws: StubbedAws, workspace: Workspace) -> tuple[str, str]:
    """The result of the row, and what was seen."""
    workspace.described(aws)
    settings = "hyperpod:observability=" + json.dumps({"prometheus": ARN})
    found = Stack(stack(aws, "dev", settings)).ask(ROW)
    return found.result, found.seen


def test_labels_of_the_add_on_are_confirmed_or_refuted_by_a_signed_query(aws: StubbedAws, workspace: Workspace) -> None:
    workspace.metric = {"Hostname": "hyperpod-i-0123456789abcdef0"}
    assert settled(aws, workspace)[0] == "confirmed"
    workspace.metric = {"Hostname": "ip-10-1-2-3"}
    assert settled(aws, workspace) == ("refuted", '[{"Hostname": "ip-10-1-2-3"}]')
    workspace.metric = {}
    assert settled(aws, workspace)[0] == "refuted"
    # Nothing is measured, as without a running node: nothing is known.
    workspace.metric = None
    assert settled(aws, workspace) == ("unknown", "[]")
    (expression,) = set(workspace.asked)
    assert 'cluster_name="hyperpod-dev"' in expression


def test_a_query_that_is_refused_settles_nothing(
    aws: StubbedAws, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    result, seen = settled(aws, workspace)
    assert result == "unknown"
    assert "refused the query with 403" in seen
    workspace.url = "http://127.0.0.1:1/"
    result, seen = settled(aws, workspace)
    assert (result, "cannot be reached" in seen) == ("unknown", True)
