"""Workspaces and topics that are there already are looked at before anything is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest

from components.observability.existing_workspaces import existing_problems
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from tests.golden.stacks import TOPIC, WORKSPACE
from tests.rows import each
from tests.support import config, project

GIVEN = {"observability": {"prometheus": WORKSPACE, "grafana": "g-0123456789"}, "alerts": {"topicArn": TOPIC}}
# The account, what AWS answers of workspaces and of the topic, and what is said.
BAD: dict[str, tuple[tuple[str, str, Exception | None], list[str]]] = {
    "workspaces that go": (
        ("123456789012", "DELETING", None),
        [
            f"hyperpod:observability.prometheus: {WORKSPACE} is not active (DELETING)",
            "hyperpod:observability.grafana: g-0123456789 is not active (DELETING)",
        ],
    ),
    "no topic": (
        ("123456789012", "ACTIVE", LookupError("no matching SNS Topic found: pages")),
        [f"hyperpod:alerts.topicArn: AWS does not describe {TOPIC}: no matching SNS Topic found: pages"],
    ),
    "those of another account": (
        ("210987654321", "ACTIVE", None),
        [
            f"hyperpod:observability.prometheus: {WORKSPACE} is of account 123456789012; one of 210987654321",
            f"hyperpod:alerts.topicArn: {TOPIC} is of account 123456789012; one of 210987654321",
        ],
    ),
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


@each(BAD)
def test_what_is_given_and_cannot_be_used_is_refused(answers: Any, said: list[str]) -> None:
    found = told(answers)
    assert len(found) == len(said)
    assert all(problem.startswith(start) for problem, start in zip(found, said, strict=True)), found


def test_what_is_given_and_there_is_taken() -> None:
    assert told(("123456789012", "ACTIVE", None)) == []


def test_what_is_given_and_not_there_stops_the_program() -> None:
    given = {"observability": GIVEN["observability"]}
    with Account("us-west-2") as account, pytest.raises(Exception, match="AWS does not describe arn:aws:aps:us-west-2"):
        up(project("dev", **given), account, preview=True)
