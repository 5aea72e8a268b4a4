"""Physical names for resources that were given none, as Pulumi's providers make them."""

from __future__ import annotations

import secrets
from typing import Any

from .state import ResourceState

# Types that need a name in AWS and get one from their provider when the program leaves it out.
_NAMED = {
    "aws:ec2/securityGroup:SecurityGroup": "name",
    "aws:iam/role:Role": "name",
    "aws:iam/rolePolicy:RolePolicy": "name",
    "aws:s3/bucket:Bucket": "bucket",
    "aws:cloudwatch/logGroup:LogGroup": "name",
    "aws:cloudwatch/eventRule:EventRule": "name",
    "aws:ssm/parameter:Parameter": "name",
    "aws:ssm/document:Document": "name",
    "aws:eks/cluster:Cluster": "name",
}


def with_names(resource: ResourceState, old: ResourceState | None) -> dict[str, Any]:
    """The resource's inputs with its name: as given, as it was before, or the logical name and seven random digits."""
    key = _NAMED.get(resource.type)
    if key is None or resource.inputs.get(key):
        return resource.inputs
    before = old.inputs.get(key) if old else None
    return {**resource.inputs, key: before or f"{resource.name}-{secrets.token_hex(4)[:7]}"}
