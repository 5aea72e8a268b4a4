"""Whether a host's role may make a call: evaluates the role's and the bucket's policies like IAM.

The Service Authorization Reference says which action an API operation needs, and on which resources.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from operations.engine.state import tags_of

from ..account import Account
from ..account.endpoints import blocks
from ..account.grants import Statement, asked_about, granted, role_statements
from ..account.policies import listed
from ..account.requests import action_of

# AWS STS API Reference, GetCallerIdentity: no permissions are required.
_FREE = ("sts:GetCallerIdentity",)
# Parts of ARNs whose name in the reference differs from the request's.
_PARTS = {
    "BucketName": "Bucket",
    "ObjectName": "Key",
    "ParameterNameWithoutLeadingSlash": "Name",
}


def denied(account: Account, role_arn: str, service: str, operation: str, request: Mapping[str, Any]) -> str | None:
    """Why the role may not make this request, in AWS's words, or None if it may.

    ``service`` is botocore's name. A role that was not created in this account may do everything.
    """
    action = action_of(service, operation)
    role = role_arn.rsplit("/", 1)[-1]
    if action.name in _FREE or not any(account.find("aws:iam/role:Role", name=role)):
        return None
    statements = list(role_statements(account, role))
    for resource in asked_about(action, _values(account, request)):
        context = _context(account, role_arn, resource, request)
        if not granted(statements, _bucket_statements(account, request), action.name, resource, context):
            return f"User: {role_arn} is not authorized to perform: {action.name} on resource: {resource}"
        if blocks(account, action.name, resource, context):
            return (
                f"User: {role_arn} is not authorized to perform: {action.name} on resource: {resource} because no VPC "
                f"endpoint policy allows the {action.name} action"
            )
    return None


def _bucket_statements(account: Account, request: Mapping[str, Any]) -> Iterator[Statement]:
    for policy in account.find("aws:s3/bucketPolicy:BucketPolicy", bucket=request.get("Bucket")):
        yield from listed(json.loads(policy.inputs["policy"])["Statement"])


def _values(account: Account, request: Mapping[str, Any]) -> dict[str, str]:
    """The parts of ARNs that a request reveals."""
    named = {key[0].upper() + key[1:]: value for key, value in request.items() if isinstance(value, str)}
    values = {**named, "Partition": account.partition, "Region": account.region, "Account": account.account_id}
    for part, key in _PARTS.items():
        if key in named:
            values[part] = named[key].removeprefix("/") if key == "Name" else named[key]
    # Images may be in another account's registry.
    if registry := named.get("RegistryId"):
        values["Account"] = registry
    if role := named.get("RoleArn"):
        values["RoleNameWithPath"] = role.partition(":role/")[2]
    if secret := named.get("SecretId"):
        # Secrets Manager appends six random characters to a secret's ARN.
        values["SecretId"] = secret.split(":secret:")[-1] if secret.startswith("arn:") else f"{secret}-AbCdEf"
    return values


def _context(account: Account, role_arn: str, resource: str, request: Mapping[str, Any]) -> dict[str, str]:
    """The condition keys that a request reveals."""
    context = {
        "aws:PrincipalAccount": account.account_id,
        "aws:PrincipalArn": role_arn,
        "aws:RequestedRegion": account.region,
        "aws:SecureTransport": "true",
        "ec2:Region": account.region,
    }
    if "Namespace" in request:
        context["cloudwatch:namespace"] = str(request["Namespace"])
    for live in account.live.values():
        if resource in live.identifiers:
            context |= {f"aws:ResourceTag/{key}": str(value) for key, value in tags_of(live.inputs).items()}
    return context
