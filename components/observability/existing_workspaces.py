"""Checks existing workspaces and topics before anything is created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pulumi_aws as aws

from ..schema.problems import Problem
from .keys import Observability

_WORKSPACES, _TOPIC = "hyperpod:observability", "hyperpod:alerts.topicArn"
_ACTIVE = "ACTIVE"


def existing_problems(chosen: Observability, topic: str | None, account: str) -> Iterator[Problem]:
    """Report given resources of another account, or that do not exist in this region, or are not active."""
    if arn := chosen.existing_prometheus:
        workspace = arn.rsplit("/", 1)[1]
        yield from _unusable(
            f"{_WORKSPACES}.prometheus", arn, account, lambda: aws.amp.get_workspace(workspace_id=workspace).status
        )
    if grafana := chosen.existing_grafana:
        yield from _unusable(
            f"{_WORKSPACES}.grafana", grafana, account, lambda: aws.grafana.get_workspace(workspace_id=grafana).status
        )
    if topic:
        name = topic.rsplit(":", 1)[1]
        yield from _unusable(_TOPIC, topic, account, lambda: aws.sns.get_topic(name=name) and _ACTIVE)


def _unusable(key: str, what: str, account: str, status: Callable[[], Any]) -> Iterator[Problem]:
    """Report an unusable resource; ``what`` is an ARN, or the id of a resource of this account."""
    owner = what.split(":")[4] if what.startswith("arn:") else account
    if owner != account:
        yield Problem(key=key, what=f"{what} is of account {owner}", fix=f"one of {account}, where the stack is")
        return
    try:
        found = status()
    except Exception as refused:  # Any error: it does not exist, or the caller may not look at it.
        yield Problem(key=key, what=f"AWS does not describe {what}: {refused}", fix="one that exists, or leave it out")
        return
    if found != _ACTIVE:
        yield Problem(key=key, what=f"{what} is not active ({found})", fix="an active one, or leave it out")
