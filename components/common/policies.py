"""IAM policy documents, as JSON text with sorted keys so that an unchanged policy never shows up as a change."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Statement = Mapping[str, Any]


def document(statements: Sequence[Statement]) -> str:
    """Return a policy document with these statements."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)}, sort_keys=True)


def allow(actions: Sequence[str], resources: Sequence[str], condition: Mapping[str, Any] | None = None) -> Statement:
    """Return an Allow statement."""
    statement: dict[str, Any] = {"Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
    if condition:
        statement["Condition"] = condition
    return statement


def deny(actions: Sequence[str], resources: Sequence[str], condition: Mapping[str, Any] | None = None) -> Statement:
    """Return a Deny statement, which no Allow overrules."""
    statement = {"Effect": "Deny", "Action": list(actions), "Resource": list(resources)}
    return {**statement, "Condition": condition} if condition else statement


def assume_role(service: str, account: str | None = None) -> str:
    """Return a trust policy for one AWS service; with ``account``, only on behalf of that account."""
    statement: dict[str, Any] = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    if account:
        statement["Condition"] = {"StringEquals": {"aws:SourceAccount": account}}
    return document([statement])
