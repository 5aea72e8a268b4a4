"""The parts of Pulumi's protocol that the embedded engine and the embedded provider share."""

from collections.abc import Callable, Mapping
from functools import partial
from string import ascii_lowercase
from typing import Any

from google.protobuf import json_format
from pulumi.runtime import rpc
from pulumi.runtime.sync_await import _ensure_event_loop

from components.catalogue.regions import REGIONS
from operations.engine.state import HYPERPOD_CLUSTER

from ..account import Account, Refused
from ..account.keys import key_of

# Computed parts of outputs that otherwise equal an input: unknown until AWS has created the resource.
_COMPUTED = {"aws:eks/cluster:Cluster": {"vpcConfig": ("clusterSecurityGroupId", "vpcId")}}


def serialize(values: Mapping[str, Any]) -> Any:
    """Values as a protobuf struct."""
    _ensure_event_loop()
    # Plain values wait for nothing, so the first step is the last; an event loop takes ten times as long.
    try:
        rpc.serialize_properties(values, {}).send(None)
    except StopIteration as end:
        return end.value
    raise TypeError("only plain values can be serialized here")


def deserialize(struct: Any) -> tuple[dict[str, Any], set[str]]:
    """A struct's values without secret wrappers, and the top-level names that contained one."""
    _ensure_event_loop()
    return plain(rpc.deserialize_properties(struct, keep_unknowns=True))


def secret(value: Any) -> dict[str, Any]:
    """A value wrapped as a secret in Pulumi's wire format."""
    return {rpc._special_sig_key: rpc._special_secret_sig, "value": value}  # type: ignore[attr-defined]


def plain(values: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Values without secret wrappers, and the top-level names that contained one."""
    found, secrets = {}, set()
    for key, value in values.items():
        found[key], is_secret = _unwrapped(value)
        if is_secret:
            secrets.add(key)
    return found, secrets


def _unwrapped(value: Any) -> tuple[Any, bool]:
    if rpc.is_rpc_secret(value):
        return _unwrapped(value["value"])[0], True
    if isinstance(value, dict):
        pairs = {key: _unwrapped(item) for key, item in value.items()}
        return {key: pair[0] for key, pair in pairs.items()}, any(pair[1] for pair in pairs.values())
    if isinstance(value, list):
        items = [_unwrapped(item) for item in value]
        return [item[0] for item in items], any(item[1] for item in items)
    return value, False


# Resource options that the engine handles, apart from those with a field in the state.
_OPTIONS = (
    "aliases",
    "customTimeouts",
    "hideDiffs",
    "importId",
    "replaceOnChanges",
    "replace_with",
)


def options(request: Any) -> dict[str, Any]:
    """The resource options of a registration that are set."""
    given = json_format.MessageToDict(request, preserving_proto_field_name=True)
    return {key: given[key] for key in _OPTIONS if given.get(key)}


def planned(type_token: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a preview knows about a resource to be created: its inputs, with the computed parts unknown."""
    known = dict(inputs)
    for key, names in _COMPUTED.get(type_token, {}).items():
        if isinstance(known.get(key), Mapping):
            known[key] = {**known[key], **dict.fromkeys(names, rpc.UNKNOWN)}
    return known


def invoke(account: Account, token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The account's answer to a provider function. Raises LookupError for an unknown function."""
    answer = _ANSWERS.get(token)
    if answer is None:
        raise LookupError(f"the embedded account does not answer {token}")
    return answer(account, arguments)


def _caller(account: Account, _: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "accountId": account.account_id,
        "arn": account.arn("iam", "user/rehearsal", region=""),
        "id": account.account_id,
        "userId": "AIDAREHEARSAL",
    }


def _session_context(_: Account, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The role behind a session's ARN. For a user's ARN it is the ARN itself, as in the provider."""
    arn = str(arguments["arn"])
    if ":assumed-role/" not in arn:
        return {"arn": arn, "id": arn, "issuerArn": arn, "issuerId": "", "issuerName": "", "sessionName": ""}
    start, rest = arn.split(":assumed-role/", 1)
    role, session = rest.split("/", 1)
    issuer = f"{start.replace(':sts:', ':iam:')}:role/{role}"
    return {
        "arn": arn,
        "id": arn,
        "issuerArn": issuer,
        "issuerId": "AROAREHEARSAL",
        "issuerName": role,
        "sessionName": session,
    }


def _partition(account: Account, _: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": account.partition,
        "partition": account.partition,
        "dnsSuffix": "amazonaws.com",
        "reverseDnsPrefix": "com.amazonaws",
    }


def _subnets(account: Account, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """DescribeSubnets with tag filters, all of which must match."""
    wanted = {one["name"].removeprefix("tag:"): one["values"] for one in arguments.get("filters") or []}
    found = [
        live.id
        for live in account.find(_SUBNET)
        if all((live.inputs.get("tagsAll") or {}).get(key) in values for key, values in wanted.items())
    ]
    return {"id": account.region, "ids": found, "region": account.region}


def _endpoint_service(account: Account, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """DescribeVpcEndpointServices: a service of AWS's, as every one is whose guide has an example of a policy."""
    name, zones = arguments["serviceName"], _zones(account, {})["names"]
    found = {"id": name, "serviceName": name, "region": account.region, "vpcEndpointPolicySupported": True}
    return {**found, "availabilityZones": zones}


def _zones(account: Account, _: Mapping[str, Any]) -> dict[str, Any]:
    """DescribeAvailabilityZones. Which name an account has for which zone is its own affair."""
    ids = REGIONS[account.region].zone_ids
    names = [f"{account.region}{letter}" for letter, _ in zip(ascii_lowercase, ids, strict=False)]
    return {"id": account.region, "names": names, "zoneIds": list(ids), "region": account.region}


def _bucket(account: Account, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """HeadBucket. The account has buckets of one region."""
    name = arguments["bucket"]
    if ("aws:s3/bucket:Bucket", name) not in account.live:
        raise Refused("NotFound", f"reading S3 Bucket ({name}): couldn't find resource")
    return {"id": name, "bucket": name, "bucketRegion": account.region, "region": account.region}


def _key(account: Account, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """DescribeKey. Keys that the account was given are symmetric and enabled."""
    found = key_of(account, arguments["keyId"])
    if found is None:
        raise Refused("NotFoundException", f"Key '{arguments['keyId']}' does not exist")
    usable = {"keyManager": "CUSTOMER", "keyState": "Enabled", "keyUsage": "ENCRYPT_DECRYPT"}
    answer = {**usable, "customerMasterKeySpec": "SYMMETRIC_DEFAULT", **found.inputs.get("described", {})}
    return {"id": found.id, "arn": found.outputs["arn"], "enabled": answer["keyState"] == "Enabled", **answer}


def _workspace(account: Account, arguments: Mapping[str, Any], token: str) -> dict[str, Any]:
    """DescribeWorkspace, of Prometheus or Grafana. Workspaces that the account was given are active."""
    found = account.live.get((token, arguments["workspaceId"]))
    if found is None:
        raise Refused("ResourceNotFoundException", f"Workspace {arguments['workspaceId']} not found")
    return {"status": "ACTIVE", **found.outputs, "id": found.id, "workspaceId": found.id}


def _topic(account: Account, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """ListTopics, of which the provider takes the one with this name."""
    arn = account.arn("sns", arguments["name"])
    if ("aws:sns/topic:Topic", arn) not in account.live:
        raise Refused("NotFound", f"no matching SNS Topic found: {arguments['name']}")
    return {"id": arn, "arn": arn, "name": arguments["name"]}


def _hyperpod_cluster(account: Account, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """DescribeCluster."""
    return account.read(HYPERPOD_CLUSTER, arguments["clusterArn"])


def _subnet(account: Account, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return account.read(_SUBNET, arguments["id"])


_SUBNET = "aws:ec2/subnet:Subnet"
_ANSWERS: Mapping[str, Callable[[Account, Mapping[str, Any]], dict[str, Any]]] = {
    "aws:index/getCallerIdentity:getCallerIdentity": _caller,
    # pulumi-eks calls it.
    "aws:index/getPartition:getPartition": _partition,
    "aws:iam/getSessionContext:getSessionContext": _session_context,
    "aws:ec2/getSubnets:getSubnets": _subnets,
    "aws:ec2/getSubnet:getSubnet": _subnet,
    "aws:ec2/getVpcEndpointService:getVpcEndpointService": _endpoint_service,
    "aws:index/getAvailabilityZones:getAvailabilityZones": _zones,
    "aws-native:sagemaker:getCluster": _hyperpod_cluster,
    "aws:s3/getBucket:getBucket": _bucket,
    "aws:kms/getKey:getKey": _key,
    "aws:sns/getTopic:getTopic": _topic,
    **{
        f"aws:{service}/getWorkspace:getWorkspace": partial(_workspace, token=f"aws:{service}/workspace:Workspace")
        for service in ("amp", "grafana")
    },
}
