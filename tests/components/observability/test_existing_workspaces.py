"""Workspaces and topics that are there already are looked at before anything is made."""

from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest

from components.observability.existing_workspaces import existing_problems
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from tests.golden.stacks import TOPIC, WORKSPACE
from tests.support import config, project

GIVEN = {"observability": {"prometheus": WORKSPACE, "grafana": "g-0123456789"}, "alerts": {"topicArn": TOPIC}}
# The account, what AWS answers of workspaces and of the topic, and what is said.
BAD: dict[str, tuple[str, str, Exception | None]] = {
    "workspaces that go": ("123456789012", "DELETING", None),
    "no topic": ("123456789012", "ACTIVE", LookupError("no matching SNS Topic found: pages")),
    "those of another account": ("210987654321", "ACTIVE", None),
}


def told(answers: tuple[str, str, Exception | None]) -> list[str]:
    """What is said where AWS answers that."""
    account, status, topic = answers
    there, given = SimpleNamespace(status=status), config("dev", **GIVEN).settings
    with (
        patch("pulumi_aws.amp.get_workspace", lambda *, workspace_id: there),
        patch("pulumi_aws.grafana.get_workspace", lambda *, workspace_id: there),
        patch("pulumi_aws.sns.get_topic", Mock(side_effect=topic)),
    ):
        return [str(problem) for problem in existing_problems(given.observability, given.alerts.topic_arn, account)]


def test_what_is_given_and_there_is_taken() -> None:
    assert told(("123456789012", "ACTIVE", None)) == []


def test_what_is_given_and_not_there_stops_the_program() -> None:
    given = {"observability": GIVEN["observability"]}
    with Account("us-west-2") as account, pytest.raises(Exception, match="AWS does not describe arn:aws:aps:us-west-2"):
        up(project("dev", **given), account, preview=True)
