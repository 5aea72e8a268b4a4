"""An update that AWS refuses: the state that Pulumi keeps, on both engines, and how a refresh repairs it."""

from pathlib import Path

import pytest
from pulumi.runtime.proto import provider_pb2

from operations.engine.state import State
from operations.project.loading import Project
from rehearsal.account import Account
from rehearsal.engines.deployment import destroy, refresh, up
from rehearsal.engines.provider import EmbeddedProvider
from tests.rehearsal.test_provider import LOGS, Aborted, account, ask, aws, values

__all__ = ["account", "aws"]
LOG_GROUP = "import pulumi_aws as aws\naws.cloudwatch.LogGroup('logs', name='kept', retention_in_days={days})\n"


def test_a_refused_update_leaves_what_was_wanted_in_the_engines_state_until_a_refresh(aws: EmbeddedProvider) -> None:
    inputs = ask(aws, "Check", LOGS, "refused", news={"retentionInDays": 30}).inputs
    created = ask(aws, "Create", LOGS, "refused", properties=inputs)
    news = {**values(inputs), "retentionInDays": 31}
    one = {"id": created.id, "old_inputs": inputs}
    with pytest.raises(Aborted, match="31 days is not a retention") as aborted:
        ask(aws, "Update", LOGS, olds=created.properties, news=news, **one)
    (detail,) = aborted.value.status.details
    failed = provider_pb2.ErrorResourceInitFailed()
    assert detail.Unpack(failed)
    assert (failed.id, values(failed.properties)["retentionInDays"]) == (created.id, 31)
    assert values(failed.properties)["arn"] == values(created.properties)["arn"]
    # The same values again are no change and succeed without a call to AWS; the old values are a change.
    assert list(ask(aws, "Diff", LOGS, news=news, **one).diffs) == []
    again = ask(aws, "Update", LOGS, olds=failed.properties, news=news, **one)
    assert values(again.properties)["retentionInDays"] == 31
    assert list(ask(aws, "Diff", LOGS, news=inputs, **one).diffs) == ["retentionInDays"]
    read = ask(aws, "Read", LOGS, id=created.id, inputs=inputs, properties=failed.properties)
    assert values(read.properties)["retentionInDays"] == 30
    assert list(ask(aws, "Diff", LOGS, news=inputs, **one).diffs) == []


def test_the_embedded_engine_keeps_desired_values_as_actual_ones_until_a_refresh(
    account: Account, tmp_path: Path
) -> None:
    main = tmp_path / "__main__.py"
    project = Project(tmp_path, "small", "test", main, {"aws:region": "us-west-2"})

    state: State = {}

    def deploy(days: int, preview: bool = False) -> list[str]:
        nonlocal state
        main.write_text(LOG_GROUP.format(days=days))
        deployment = up(project, account, old=state, preview=preview)
        state = state if preview else deployment.state
        return [deployment.failure] if deployment.failure else [str(one) for one in deployment.changes.values()]

    def days() -> list[int]:
        groups = account.client("logs").describe_log_groups(logGroupNamePrefix="kept")["logGroups"]
        return [group["retentionInDays"] for group in groups]

    assert deploy(30) == ["create"]
    assert "31 days is not a retention" in deploy(31)[0]
    # The same values again succeed as an update without changes, which hides the failure.
    assert deploy(31, preview=True) == ["update"]
    assert deploy(30, preview=True) == ["update"]
    assert deploy(31) == ["update"]
    assert deploy(31) == []
    assert days() == [30]
    assert list(refresh(state, account).values()) == ["update"]
    assert deploy(30, preview=True) == []
    assert destroy(state, account) == []
