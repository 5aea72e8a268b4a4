"""Finds which node this is: HyperPod's resource_config.json, matched by instance id and by address."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, List, Mapping, Tuple

from ..host.errors import NotYet, StepError
from ..host.host import Host
from ..host.imds import Imds, Unavailable
from .model import Group, Identity, Instance, Node


def run(node: Node) -> str:
    """Step ``identity``."""
    imds = Imds(node.host, node.parameters.imds_v1, node.timeout("imds"))
    instance_id, trouble = "", ""
    try:
        instance_id = imds.get("instance-id")
    except Unavailable as unavailable:
        trouble = str(unavailable)
    node.facts["imds_date"] = imds.date
    node.facts["imds_date_at"] = node.host.wall()
    # HyperPod's agent rewrites the file when nodes come and go: it may be incomplete, or lack this node.
    found, instances = node.host.poll(
        "the resource configuration did not name this node",
        lambda: _look(node, instance_id, trouble),
        node.timeout("resource-config"),
    )
    group = node.parameters.groups.get(found.group)
    if group is None:
        known = ", ".join(node.parameters.groups)
        raise StepError(
            f"this node is in group {found.group} by {node.host.settings.resource_config}, "
            f"and hyperpod_parameters.json has only {known}"
        )
    group = _of_own_type(node, group, imds)
    if trouble:
        node.warn(f"{trouble}; identified by its address {found.address} alone")
    node.identity_ = Identity(found, group, instances)
    return f"{group.role}, group {group.name}, {group.instance_type}, {found.instance_id}, {found.address}"


def _of_own_type(node: Node, group: Group, imds: Imds) -> Group:
    """Return a group's facts for this node's type, of which the group may have several. All later steps, services and
    commands then have these. Only the instance's metadata name the type of one node.
    """
    several = {one.instance_type: one for one in (group, *node.parameters.fallback_groups) if one.name == group.name}
    if len(several) == 1:
        return group
    try:
        kind = "ml." + imds.get("instance-type")
    except Unavailable as unavailable:
        raise StepError(f"group {group.name} has {', '.join(several)}, and {unavailable}") from None
    if kind not in several:
        raise StepError(f"this node is {kind}, and group {group.name} has {', '.join(several)}")
    groups = (one for one in node.parameters.instance_groups if one.name != group.name)
    node.parameters_ = dataclasses.replace(node.parameters, instance_groups=(*groups, several[kind]))
    return several[kind]


def _look(node: Node, instance_id: str, trouble: str) -> Tuple[Instance, Tuple[Instance, ...]]:
    """Return this node and all nodes, by the file's current content. Raises NotYet if that may change."""
    try:
        instances = read_instances(node.host)
    except StepError as error:
        raise NotYet(str(error)) from None
    own = node.host.addresses()
    by_id = [i for i in instances if instance_id and i.instance_id == instance_id]
    by_address = [i for i in instances if i.address in own]
    return _choose(node, by_id, by_address, instances, instance_id, own, trouble), instances


def _choose(
    node: Node,
    by_id: List[Instance],
    by_address: List[Instance],
    instances: Tuple[Instance, ...],
    instance_id: str,
    own: List[str],
    trouble: str,
) -> Instance:
    path = node.host.settings.resource_config
    if by_id and by_address and by_id[0] not in by_address:
        raise StepError(
            f"by its instance id {instance_id} this node is {by_id[0].name} of {path}, "
            f"by its address {by_address[0].address} it is {by_address[0].name}"
        )
    found = by_id or by_address
    if not found:
        looked = f"instance id {instance_id or f'unknown ({trouble})'}, addresses {', '.join(own) or 'none'}"
        listed = ", ".join(f"{i.name} {i.instance_id} {i.address}" for i in instances) or "no instance"
        raise NotYet(f"{path} does not have this node: {looked}; it has {listed}")
    if len(found) > 1:
        raise StepError(f"{path} has this node more than once: {', '.join(i.name for i in found)}")
    return found[0]


def read_instances(host: Host) -> Tuple[Instance, ...]:
    """Return the instances of resource_config.json. Raises StepError if it is missing or malformed."""
    path = host.settings.resource_config
    text = host.read(path)
    if text is None:
        raise StepError(f"no resource configuration at {path}")
    try:
        document = json.loads(text)
        return tuple(
            _instance(group, record) for group in document["InstanceGroups"] for record in group.get("Instances") or []
        )
    except KeyError as error:
        raise StepError(f"{path} lacks the key {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StepError(f"{path} is malformed: {error}") from None


def _instance(group: Mapping[str, Any], record: Mapping[str, Any]) -> Instance:
    # The customer's address is in the cluster's own VPC; the agent's belongs to SageMaker.
    address = next((key for key in ("CustomerIpAddress", "AgentIpAddress") if record.get(key)), None)
    return Instance(
        group=_word(group, "Name"),
        name=_word(record, "InstanceName" if record.get("InstanceName") else "InstanceId"),
        address=_word(record, address) if address else "",
        instance_id=_word(record, "InstanceId"),
    )


def _word(record: Mapping[str, Any], key: str) -> str:
    """Return a name, an id or an address: one word, which other files can have in a line."""
    value = record[key]
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]+", value):
        raise ValueError(f"{key} is {value!r}, and should be one word")
    return value
