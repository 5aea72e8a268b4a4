"""Access to an EKS cluster: access entries of either provider, and access policies, as records."""

from collections.abc import Iterator
from typing import Any

from .books import Books, Inputs, Live, Refused
from .eks import in_cluster
from .kinds import Kind, register
from .records import record

ACCESS_ENTRY = "aws:eks/accessEntry:AccessEntry"
NATIVE_ACCESS_ENTRY = "aws-native:eks:AccessEntry"
_SCHEMA = "AWS::EKS::AccessEntry"
_STANDARD = "STANDARD"
# Amazon EKS API Reference, CreateAccessEntry, type.
_TYPES = (_STANDARD, "FARGATE_LINUX", "EC2_LINUX", "EC2_WINDOWS", "EC2", "HYBRID_LINUX", "HYPERPOD_LINUX")
# terraform-provider-aws, internal/service/eks/consts.go, accessEntryType_Values: access_entry.go checks the type
# against this list before any request. pulumi-aws is built from it.
_PROVIDER_TYPES = ("EC2", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "HYBRID_LINUX", _STANDARD)


def _check_type(i: Inputs) -> list[str]:
    given = i.get("type", _STANDARD)
    if given in _PROVIDER_TYPES:
        return []
    known = " ".join(f'"{one}"' for one in _PROVIDER_TYPES)
    return [f"expected type to be one of [{known}], got {given}"]


def _properties(i: Inputs) -> dict[str, Any]:
    keys = {
        "clusterName": "ClusterName",
        "principalArn": "PrincipalArn",
        "type": "Type",
        "kubernetesGroups": "KubernetesGroups",
    }
    return {name: i[key] for key, name in keys.items() if i.get(key)}


def _create(account: Books, i: Inputs) -> dict[str, Any]:
    cluster = in_cluster(account, i)
    if (cluster.inputs.get("accessConfig") or {}).get("authenticationMode") == "CONFIG_MAP":
        raise Refused("InvalidRequestException", "the cluster's authentication mode does not allow access entries")
    if i.get("type", _STANDARD) not in _TYPES:
        raise Refused("InvalidParameterException", f"AccessEntry type must be one of [{', '.join(_TYPES)}]")
    if any(_entries(account, i)):
        raise Refused("ResourceInUseException", f"the specified access entry already exists: {i['principalArn']}")
    _check_groups(i)
    return {"accessEntryArn": account.arn("eks", f"access-entry/{i['clusterName']}/{account.new_id('e')[2:]}")}


def _check_groups(i: Inputs) -> None:
    """Amazon EKS User Guide, "Create access entries": a node's entry takes no Kubernetes groups."""
    if i.get("type", _STANDARD) != _STANDARD and i.get("kubernetesGroups"):
        raise Refused("InvalidParameterException", f"kubernetesGroups cannot be specified for type {i['type']}")


def _entry(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    return f"{i['clusterName']}:{i['principalArn']}", _create(account, i)


def _native_entry(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    """Cloud Control names a resource by its primary identifiers in the schema's order."""
    return f"{i['principalArn']}|{i['clusterName']}", _create(account, i)


def _entries(account: Books, i: Inputs) -> Iterator[Live]:
    for token in (ACCESS_ENTRY, NATIVE_ACCESS_ENTRY):
        yield from account.find(token, clusterName=i["clusterName"], principalArn=i["principalArn"])


def _policy(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    in_cluster(account, i)
    entry = next(_entries(account, i), None)
    if entry is None:
        raise Refused("ResourceNotFoundException", f"there is no access entry for {i['principalArn']}")
    # The same guide, "Associate access policies with access entries".
    if (given := entry.inputs.get("type", _STANDARD)) not in (_STANDARD, "EC2"):
        raise Refused("InvalidParameterException", f"an access entry of type {given} takes no access policy")
    kind, namespaces = i["accessScope"]["type"], i["accessScope"].get("namespaces")
    if kind not in ("cluster", "namespace") or (kind == "namespace") != bool(namespaces):
        raise Refused("InvalidParameterException", "an access scope is cluster, or namespace with namespaces")
    return f"{i['clusterName']}#{i['principalArn']}#{i['policyArn']}", {}


def _update(account: Books, live: Live, i: Inputs) -> None:
    _check_groups(i)


register(
    record(
        ACCESS_ENTRY,
        _SCHEMA,
        _entry,
        translate=_properties,
        on_update=_update,
        check=_check_type,
    )
)
register(record(NATIVE_ACCESS_ENTRY, _SCHEMA, _native_entry, on_update=_update))
register(Kind("aws:eks/accessPolicyAssociation:AccessPolicyAssociation", _policy, lambda account, live: None))
