"""Whether a host's role may make a call: the Allow statements of the role's policies, by action and by resource.

A deliberately small part of IAM, enough to notice a lifecycle script that asks for more than its role has. Conditions
are not evaluated, and there are no Deny statements in the nodes' own policies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ..account import Account

# Where the permission is not named like the operation.
_ACTIONS = {
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:ListObjects": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "s3:HeadBucket": "s3:ListBucket",
}
# Anybody may.
_FREE = {"sts:GetCallerIdentity"}


def allows(account: Account, role_arn: str, action: str, request: Mapping[str, Any]) -> bool:
    """Whether the role may make this request. A role that is not of this account's making may everything."""
    action = _ACTIONS.get(action, action)
    role = role_arn.rsplit("/", 1)[-1]
    iam = account.client("iam")
    try:
        statements = list(_statements(iam, role))
    except iam.exceptions.NoSuchEntityException:
        return True
    resource = _resource(account, action, request)
    return action in _FREE or any(
        statement["Effect"] == "Allow"
        and _matches(statement.get("Action", []), action, fold=True)
        and (resource is None or _matches(statement.get("Resource", []), resource))
        for statement in statements
    )


def _statements(iam: Any, role: str) -> Iterator[Mapping[str, Any]]:
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        yield from _listed(iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]["Statement"])
    for attached in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        arn = attached["PolicyArn"]
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
        yield from _listed((json.loads(document) if isinstance(document, str) else document)["Statement"])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _matches(patterns: Any, text: str, *, fold: bool = False) -> bool:
    return any(
        fnmatchcase(text.lower() if fold else text, pattern.lower() if fold else pattern)
        for pattern in _listed(patterns)
    )


def _resource(account: Account, action: str, request: Mapping[str, Any]) -> str | None:
    """The ARN that the request is about, where it is one of those that the nodes' policies name; None otherwise."""
    service = action.split(":")[0]
    if service == "s3" and "Bucket" in request:
        key = f"/{request['Key']}" if "Key" in request else ""
        return f"arn:{account.partition}:s3:::{request['Bucket']}{key}"
    if service == "ssm" and "Name" in request:
        return account.arn("ssm", f"parameter/{request['Name'].lstrip('/')}")
    if service == "secretsmanager" and "SecretId" in request:
        name = request["SecretId"]
        return str(name) if name.startswith("arn:") else account.arn("secretsmanager", f"secret:{name}-AbCdEf")
    if service == "logs" and "logGroupName" in request:
        stream = f":log-stream:{request['logStreamName']}" if "logStreamName" in request else ""
        return account.arn("logs", f"log-group:{request['logGroupName']}{stream}")
    return None
