"""Checks an existing file system for /fsx before the first resource of a stack is created."""

from collections.abc import Iterator, Mapping
from typing import Any

from components.common.names import CLUSTER_ID_TAG
from components.network.security_groups import LUSTRE_PORTS
from components.storage.file_systems import LINK_PATH

from ..cluster.network_state import admits
from ..target import Target
from .lack import Lack

_KEY, _EFA = "hyperpod:fsx.fileSystemId", "hyperpod:fsx.efa"
_SERVING = ("AVAILABLE", "UPDATING")
# Scratch file systems lose files with a file server (FSx for Lustre User Guide, "Deployment and storage class
# options"). Intelligent-Tiering has no capacity that could run out, which the stack's alarms are about.
_TYPES, _STORAGE = ("PERSISTENT_1", "PERSISTENT_2"), ("SSD", "HDD")
# The nodes have Lustre 2.15's client (FSx for Lustre User Guide, "Lustre file system and client kernel compatibility").
_VERSIONS = ("2.12", "2.15")
_CHOICE = f"{_KEY}: another one, or leave it out for one that the stack makes"


def lacks(target: Target) -> Iterator[Lack]:
    """Why the nodes could not use the existing file system, or which one has been kept for this stack."""
    systems = {one["FileSystemId"]: one for one in target.aws.pages("fsx", "describe_file_systems", "FileSystems")}
    wanted = target.config.settings.fsx.file_system_id
    if wanted is None:
        yield from _kept(target, systems)
    elif wanted not in systems:
        there = [key for key, one in systems.items() if one["FileSystemType"] == "LUSTRE"]
        yield Lack(
            what=f"there is no file system {wanted} in {target.aws.region}",
            fix=f"{_KEY}: {'one of ' + ', '.join(there) if there else 'leave it out, for one that the stack makes'}",
        )
    elif (kind := systems[wanted]["FileSystemType"]) != "LUSTRE":
        yield Lack(what=f"{wanted} is a file system of type {kind}, and /fsx is Lustre", fix=_CHOICE)
    else:
        yield from _kind(target, systems[wanted])
        yield from _place(target, systems[wanted])
        yield from _links(target, wanted)


def _kept(target: Target, systems: Mapping[str, Mapping[str, Any]]) -> Iterator[Lack]:
    """The nodes take the one file system with the stack's tag. It may also be from a first deployment that failed,
    and which goes on with it: so this only warns."""
    tag = {"Key": CLUSTER_ID_TAG, "Value": target.names.cluster_id}
    for system, one in systems.items():
        if target.found_cluster is None and one["FileSystemType"] == "LUSTRE" and tag in one.get("Tags", []):
            yield Lack(
                what=f"{system} has this stack's tag already: if a destroy has kept it, nodes find two file systems "
                "with the tag, and do not boot",
                fix=f"{_KEY}: {system} takes it up; otherwise `aws fsx untag-resource --resource-arn "
                f"{one['ResourceARN']} --tag-keys {CLUSTER_ID_TAG}`",
                sure=False,
            )


def _kind(target: Target, system: Mapping[str, Any]) -> Iterator[Lack]:
    name, lustre = system["FileSystemId"], system["LustreConfiguration"]
    if (state := system["Lifecycle"]) not in _SERVING:
        yield Lack(what=f"{name} is {state}", fix=f"wait until it is AVAILABLE, or {_CHOICE}")
    kind, storage = lustre["DeploymentType"], system.get("StorageType", "SSD")
    if kind not in _TYPES or storage not in _STORAGE:
        yield Lack(what=f"{name} is {kind} on {storage}, and /fsx {' or '.join(_TYPES)} on disks", fix=_CHOICE)
    # FSx for Lustre, CreateFileSystem, FileSystemTypeVersion: 2.10 where none is said.
    if (version := system.get("FileSystemTypeVersion", "2.10")) not in _VERSIONS:
        yield Lack(
            what=f"{name} has Lustre {version}, which the nodes' client does not speak",
            fix=f"aws fsx update-file-system --file-system-id {name} --file-system-type-version {_VERSIONS[-1]}",
        )
    efa = bool(lustre.get("EfaEnabled"))
    if efa != target.config.settings.fsx.efa:
        yield Lack(what=f"{name} {'has' if efa else 'does not have'} EFA", fix=f"{_EFA}: {str(efa).lower()}")


def _place(target: Target, system: Mapping[str, Any]) -> Iterator[Lack]:
    """Check the network, the zone, and the groups on both sides."""
    name, network, client = system["FileSystemId"], target.config.settings.network, target.aws.client("ec2")
    if system["VpcId"] != network.vpc_id:
        yield Lack(what=f"{name} is in {system['VpcId']}, and the nodes in {network.vpc_id}", fix=_CHOICE)
        return
    (subnet,) = client.describe_subnets(SubnetIds=system["SubnetIds"][:1])["Subnets"]
    if (zone := subnet["AvailabilityZoneId"]) != target.config.zone_id:
        yield Lack(
            what=f"{name} is in {zone}, and the nodes in {target.config.zone_id}: traffic between zones is paid for",
            fix=f"hyperpod:availabilityZoneId: {zone}, with a private subnet there",
        )
    interfaces = client.describe_network_interfaces(NetworkInterfaceIds=system["NetworkInterfaceIds"][:1])
    (interface,) = interfaces["NetworkInterfaces"]
    own = [one["GroupId"] for one in interface["Groups"]]
    nodes = list(network.security_group_ids)
    found = {
        one["GroupId"]: one
        for one in client.describe_security_groups(GroupIds=sorted({*own, *nodes}))["SecurityGroups"]
    }
    (place,) = client.describe_subnets(SubnetIds=[network.private_subnet_id])["Subnets"]
    ways = (  # direction in EC2's words, whose groups, the other side's groups and address, what is said
        ("in", own, nodes, place["CidrBlock"].split("/")[0], "from the nodes"),
        ("out", nodes, own, interface["PrivateIpAddress"], "of the nodes to it"),
    )
    for direction, groups, peers, address, words in ways:
        shut = [
            f"{first}-{last}" if last > first else str(first)
            for first, last in LUSTRE_PORTS
            if not all(
                admits([found[one] for one in groups], direction, peers, port, address) for port in (first, last)
            )
        ]
        if shut:
            yield Lack(
                what=f"no group of {name if direction == 'in' else 'the nodes'} ({', '.join(groups)}) allows TCP "
                f"{' and '.join(shut)} {words}",
                fix=f"aws ec2 authorize-security-group-{'ingress' if direction == 'in' else 'egress'} "
                f"--group-id {groups[0]} --ip-permissions "
                f" 'IpProtocol=tcp,FromPort=988,ToPort=1023,UserIdGroupPairs=[{{GroupId={peers[0]}}}]'",
            )


def _links(target: Target, system: str) -> Iterator[Lack]:
    """FSx links a folder to one bucket (FSx for Lustre User Guide, "Overview of data repositories"). A link of the
    stack's own has its tag."""
    bucket = target.config.settings.fsx.linked_bucket
    if not bucket:
        return
    tag = {"Key": CLUSTER_ID_TAG, "Value": target.names.cluster_id}
    only = [{"Name": "file-system-id", "Values": [system]}]
    for one in target.aws.pages("fsx", "describe_data_repository_associations", "Associations", Filters=only):
        path = one.get("FileSystemPath", "/").rstrip("/")
        if tag not in one.get("Tags", []) and f"{LINK_PATH}/".startswith(f"{path}/"):
            yield Lack(
                what=f"{path or '/'} of {system} is linked to {one['DataRepositoryPath']} already",
                fix="leave hyperpod:fsx.linkedBucket out, which keeps that link; or `aws fsx "
                f"delete-data-repository-association --association-id {one['AssociationId']}`",
            )
