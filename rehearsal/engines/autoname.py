"""Physical names for resources without one, generated the way Pulumi's providers do."""

import secrets
from collections.abc import Mapping
from typing import Any

from operations.engine.state import HYPERPOD_CLUSTER, ResourceState

# Types that need a name in AWS. Their provider generates one if the program sets none.
NAMED = {
    "aws:ec2/securityGroup:SecurityGroup": "name",
    "aws:iam/role:Role": "name",
    "aws:iam/rolePolicy:RolePolicy": "name",
    "aws:s3/bucket:Bucket": "bucket",
    "aws:cloudwatch/logGroup:LogGroup": "name",
    "aws:cloudwatch/eventRule:EventRule": "name",
    "aws:ssm/parameter:Parameter": "name",
    "aws:ssm/document:Document": "name",
    "aws:eks/cluster:Cluster": "name",
    HYPERPOD_CLUSTER: "clusterName",
}


def with_names(resource: ResourceState, old: ResourceState | None) -> dict[str, Any]:
    """The resource's inputs, including its name."""
    return named(resource.type, resource.name, resource.inputs, old.inputs if old else {})


def named(type_token: str, name: str, inputs: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with the given name, the name from ``before``, or the logical name with seven random digits."""
    key = NAMED.get(type_token)
    if key is None or inputs.get(key):
        return inputs
    return {**inputs, key: before.get(key) or f"{name}-{secrets.token_hex(4)[:7]}"}


def keeps_name(type_token: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a resource and its replacement have the same name, so that the old one must be deleted first.

    The providers do the same: pulumi-terraform-bridge (``nameRequiresDeleteBeforeReplace``), and pulumi-kubernetes for
    objects whose name the program chose.
    """
    if type_token.startswith("kubernetes:"):
        before, after = (inputs.get("metadata") or inputs for inputs in (old, new))
        return all(before.get(key) == after.get(key) for key in ("name", "namespace"))
    key = NAMED.get(type_token, "name")
    return old.get(key) is not None and old.get(key) == new.get(key)
