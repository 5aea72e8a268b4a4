"""What a destroyed stack left in the account: each service is searched by this stack's names and tags."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jmespath
from botocore.exceptions import BotoCoreError, ClientError

from components.common.names import CLUSTER_ID_TAG, ROLE_KINDS, events_log_group, log_group
from components.kubernetes.storage import VOLUMES_TAG

from ..aws import Aws
from ..cluster.node_logs import GROUP_PREFIX
from ..failures import Failure, is_missing, reason
from ..target import Target
from .tagged import Leftover, present


@dataclass
class Audit:
    """What was found. ``kept`` stays on purpose; ``unknown`` lists what could not be searched, and why."""

    leftovers: list[Leftover] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    @property
    def of_the_stack(self) -> list[Leftover]:
        """The stack's own resources, which destroy should have deleted."""
        return [one for one in self.leftovers if not one.by_aws]

    def add(self, found: Leftover) -> None:
        """Add a resource, unless another search has found it: the command that deletes it tells."""
        if found.command not in {one.command for one in self.leftovers}:
            self.leftovers.append(found)

    def add_unnamed(self, found: Iterable[str]) -> None:
        """Add what another search found, unless it is already known."""
        known = {one.id for one in self.leftovers}
        for text in found:
            if not known & set(text.split()):
                self.leftovers.append(Leftover(kind="unnamed", id=text, command=""))


INTERFACE = "network interface"
# What GuardDuty's Runtime Monitoring makes for an EKS cluster, and deletes only where it is disabled; its tag (Amazon
# GuardDuty User Guide, "Disabling, uninstalling, and cleaning up resources in Runtime Monitoring").
GUARDDUTY = ("GuardDuty's VPC endpoint", "GuardDuty's security group")
GUARDDUTY_TAG = ("GuardDutyManaged", "true")
_FILE_SYSTEM = "FSx file system"
# Those that FSx takes by itself go with the file system; those of people stay until they delete them (FSx for Lustre
# User Guide, "Protecting your data with backups").
_BACKUP = "FSx backup"
# What the VPC CNI puts on its interfaces (amazon-vpc-cni-k8s, README, "ENI tags related to Allocation").
_CNI_TAG = "cluster.k8s.amazonaws.com/name"
# EC2's kinds, found by the stack's tag: operation, where the ids are, and the command that deletes one.
_TAGGED = (
    ("subnet", "describe_subnets", "Subnets[].SubnetId", "delete-subnet --subnet-id"),
    ("NAT gateway", "describe_nat_gateways", "NatGateways[?!starts_with(State, 'delet')].NatGatewayId",
     "delete-nat-gateway --nat-gateway-id"),
    ("elastic IP", "describe_addresses", "Addresses[].AllocationId", "release-address --allocation-id"),
    ("internet gateway", "describe_internet_gateways", "InternetGateways[].InternetGatewayId",
     "delete-internet-gateway --internet-gateway-id"),
    ("route table", "describe_route_tables", "RouteTables[].RouteTableId", "delete-route-table --route-table-id"),
    ("VPC endpoint", "describe_vpc_endpoints", "VpcEndpoints[?!starts_with(State, 'delet')].VpcEndpointId",
     "delete-vpc-endpoints --vpc-endpoint-ids"),
    ("security group", "describe_security_groups", "SecurityGroups[].GroupId", "delete-security-group --group-id"),
)  # fmt: skip

# As long as the AWS provider waits for the end of an endpoint (terraform-provider-aws, internal/service/ec2).
_ENDPOINT_SECONDS, _AGAIN_SECONDS = 600.0, 10.0
_OF_OTHERS = ("describe_vpc_endpoints", "describe_security_groups")


class Searched(Target):
    """The stack during one search, which asks for its own VPC once."""

    @cached_property
    def own_vpcs(self) -> list[str]:
        """What has the stack's tag: one, or none where it is in a VPC of others."""
        return [one["VpcId"] for one in self.aws.pages("ec2", "describe_vpcs", "Vpcs", Filters=_ours(self))]


def audit(stack: Target) -> Audit:
    """Search for everything that the stack, or AWS on its behalf, may have left. Read-only."""
    found, target = Audit(), Searched(stack.project, stack.config, stack.aws)
    for what, look in _LOOKS:
        try:
            for one in look(target):
                found.add(one)
        except Failure as failure:
            found.unknown.append(f"{what}: {failure.message}")
        except (ClientError, BotoCoreError) as error:
            if not (isinstance(error, ClientError) and is_missing(error)):
                found.unknown.append(f"{what}: {reason(error)}")
    _set_kept_apart(target, found)
    return found


def remove(target: Target, found: Audit) -> None:
    """Delete what AWS itself created: log groups, what GuardDuty has in the stack's VPC, and network interfaces that
    nothing uses any more."""
    for one in [one for one in found.leftovers if one.by_aws]:
        try:
            _delete(target.aws, one)
        except ClientError as error:
            if not is_missing(error):
                found.unknown.append(f"{one.kind} {one.id} was not removed: {error}")
                continue
        found.leftovers.remove(one)
        found.removed.append(f"{one.kind} {one.id}")


def _delete(aws: Aws, one: Leftover) -> None:
    """Delete what AWS created. Raises ClientError."""
    if one.kind == "log group":
        aws.client("logs").delete_log_group(logGroupName=one.id)
        return
    ec2 = aws.client("ec2")
    if one.kind == INTERFACE:
        ec2.delete_network_interface(NetworkInterfaceId=one.id)
    elif one.kind == GUARDDUTY[0]:
        ec2.delete_vpc_endpoints(VpcEndpointIds=[one.id])
    else:
        # The endpoint's interfaces, which use it, go some minutes after the endpoint was asked to.
        ends = time.monotonic() + _ENDPOINT_SECONDS
        while True:
            try:
                ec2.delete_security_group(GroupId=one.id)
                return
            except ClientError as error:
                if error.response["Error"]["Code"] != "DependencyViolation" or time.monotonic() > ends:
                    raise
            time.sleep(_AGAIN_SECONDS)


def _set_kept_apart(target: Target, found: Audit) -> None:
    """People's backups, with hyperpod:fsx.retainOnDelete the file system (in an existing VPC), and the one of
    hyperpod:fsx.fileSystemId, which has the stack's tag if the stack once made it."""
    fsx = target.config.settings.fsx
    stays = {_BACKUP, *([_FILE_SYSTEM] if fsx.retain_on_delete else [])}
    kept = [one for one in found.leftovers if one.kind in stays or one.id == fsx.file_system_id]
    found.kept = [f"{one.kind} {one.id}" for one in kept]
    found.leftovers = [one for one in found.leftovers if one not in kept]


def _ours(target: Target) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{CLUSTER_ID_TAG}", "Values": [target.names.cluster_id]}]


def _network(target: Searched) -> Iterator[Leftover]:
    for one in target.own_vpcs:
        yield Leftover(kind="VPC", id=one, command=f"aws ec2 delete-vpc --vpc-id {one}")
    for kind, operation, path, command in _TAGGED:
        key = "Filter" if operation == "describe_nat_gateways" else "Filters"
        for page in _pages(target.aws, "ec2", operation, {key: _ours(target)}):
            for one in jmespath.search(path, page) or []:
                yield Leftover(kind=kind, id=one, command=f"aws ec2 {command} {one}")


def _interfaces(target: Searched) -> Iterator[Leftover]:
    """Interfaces that AWS creates for nodes, endpoints and file systems, and sometimes leaves behind."""
    net = target.config.settings.network
    if net.private_subnet_id:
        filters = [
            {"Name": "subnet-id", "Values": [net.private_subnet_id, *net.eks_subnet_ids]},
            {"Name": "status", "Values": ["available"]},
        ]
    else:
        if not target.own_vpcs:
            return
        filters = [{"Name": "vpc-id", "Values": target.own_vpcs}]
    for page in _pages(target.aws, "ec2", "describe_network_interfaces", {"Filters": filters}):
        for one in page["NetworkInterfaces"]:
            if net.private_subnet_id and not _names_cluster(one, target.cluster_name):
                continue
            if one.get("Description", "").startswith("VPC Endpoint Interface "):
                continue  # It goes with its endpoint, which is looked for as well.
            eni = one["NetworkInterfaceId"]
            yield Leftover(
                kind=INTERFACE,
                id=eni,
                by_aws=one.get("Status") == "available",
                command=f"aws ec2 delete-network-interface --network-interface-id {eni}",
            )


def _others_in_vpc(target: Searched) -> Iterator[Leftover]:
    """What others put into the stack's own VPC, which holds on to it: such as GuardDuty's endpoint and its security
    group."""
    if target.config.settings.network.private_subnet_id or not target.own_vpcs:
        return
    for kind, operation, path, command in _TAGGED:
        if operation not in _OF_OTHERS:
            continue
        for page in _pages(target.aws, "ec2", operation, {"Filters": [{"Name": "vpc-id", "Values": target.own_vpcs}]}):
            key = path.split("[")[0]
            foreign = [
                one
                for one in page[key]
                if not _tagged_as(one, CLUSTER_ID_TAG, target.names.cluster_id) and one.get("GroupName") != "default"
            ]
            for resource in foreign:
                by_aws = _tagged_as(resource, *GUARDDUTY_TAG)
                whose = f"GuardDuty's {kind}" if by_aws else f"{kind} of others"
                for one in jmespath.search(path, {key: [resource]}) or []:
                    yield Leftover(kind=whose, id=one, by_aws=by_aws, command=f"aws ec2 {command} {one}")


def _tagged_as(resource: dict[str, Any], key: str, value: str) -> bool:
    return {"Key": key, "Value": value} in (resource.get("Tags") or [])


def _names_cluster(interface: dict[str, Any], cluster: str) -> bool:
    """Whether its description does, as of those of EKS's control plane, or the tag of the VPC CNI. Another cluster's
    name may begin or end with this one's."""
    tags = {tag["Key"]: tag["Value"] for tag in interface.get("TagSet") or []}
    whole = rf"(?<![\w-]){re.escape(cluster)}(?![\w-])"
    return bool(re.search(whole, interface.get("Description", ""))) or tags.get(_CNI_TAG) == cluster


def _log_groups(target: Target) -> Iterator[Leftover]:
    name = target.cluster_name
    # The stack's own groups are deleted with it, but AWS recreates one if something still writes to it.
    prefixes = (
        f"{GROUP_PREFIX}{name}/",
        f"/aws/eks/{name}/",
        f"/aws/containerinsights/{name}/",
        log_group(name, ""),
        events_log_group(name),
    )
    for prefix in prefixes:
        for group in target.aws.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=prefix):
            one = str(group["logGroupName"])
            if prefix.endswith("/") or one == prefix:
                yield Leftover(
                    kind="log group", id=one, by_aws=True, command=f"aws logs delete-log-group --log-group-name {one}"
                )


def _clusters(target: Target) -> Iterator[Leftover]:
    name = target.cluster_name
    if any(one["ClusterName"] == name for one in target.aws.pages("sagemaker", "list_clusters", "ClusterSummaries")):
        yield Leftover(kind="HyperPod cluster", id=name, command=f"aws sagemaker delete-cluster --cluster-name {name}")


def _kubernetes(target: Target) -> Iterator[Leftover]:
    name = target.cluster_name
    if target.on_eks and name in target.aws.pages("eks", "list_clusters", "clusters"):
        yield Leftover(kind="EKS cluster", id=name, command=f"aws eks delete-cluster --name {name}")


def _file_systems(target: Target) -> Iterator[Leftover]:
    """The stack's own, and those that claims made: their interfaces hold on to the subnet."""
    kinds = {CLUSTER_ID_TAG: _FILE_SYSTEM, VOLUMES_TAG: f"{_FILE_SYSTEM} of a claim"}
    for one in target.aws.pages("fsx", "describe_file_systems", "FileSystems"):
        tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}
        kind = next((kind for key, kind in kinds.items() if tags.get(key) == target.names.cluster_id), None)
        if kind and one.get("Lifecycle") != "DELETING":
            system = one["FileSystemId"]
            command = f"aws fsx delete-file-system --file-system-id {system}    # and its data"
            yield Leftover(kind=kind, id=system, command=command)


def _buckets(target: Target) -> Iterator[Leftover]:
    ours = {target.names.bucket, target.names.artifacts}
    for name in sorted(ours & {one["Name"] for one in target.aws.client("s3").list_buckets()["Buckets"]}):
        yield Leftover(kind="bucket", id=name, command=f"aws s3 rb --force s3://{name}")


def _roles(target: Target) -> Iterator[Leftover]:
    for kind in ROLE_KINDS:
        name = target.names.role(kind)
        try:
            target.aws.client("iam").get_role(RoleName=name)
        except ClientError as error:
            if not is_missing(error):
                raise
        else:
            yield Leftover(kind="role", id=name, command=f"aws iam delete-role --role-name {name}")


def _documents(target: Target) -> Iterator[Leftover]:
    prefix = target.names.document("")
    filters = [{"Key": "Name", "Values": [prefix]}]
    for one in target.aws.pages("ssm", "list_documents", "DocumentIdentifiers", Filters=filters):
        name = one["Name"]
        if name.startswith(prefix):
            yield Leftover(kind="SSM document", id=name, command=f"aws ssm delete-document --name {name}")


def _dashboards(target: Target) -> Iterator[Leftover]:
    """CloudWatch's dashboards have no tags."""
    if not target.config.settings.alerts.wanted:
        return
    name = target.names.cluster_id
    for one in target.aws.pages("cloudwatch", "list_dashboards", "DashboardEntries", DashboardNamePrefix=name):
        if one["DashboardName"] == name:
            command = f"aws cloudwatch delete-dashboards --dashboard-names {name}"
            yield Leftover(kind="CloudWatch dashboard", id=name, command=command)


def _pages(aws: Aws, service: str, operation: str, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    client = aws.client(service)
    if client.can_paginate(operation):
        yield from client.get_paginator(operation).paginate(**arguments)
    else:
        yield getattr(client, operation)(**arguments)


_LOOKS: tuple[tuple[str, Callable[[Searched], Iterator[Leftover]]], ...] = (
    ("HyperPod", _clusters),
    ("EKS", _kubernetes),
    ("FSx", _file_systems),
    ("network interfaces", _interfaces),
    ("network", _network),
    ("the stack's VPC", _others_in_vpc),
    ("S3", _buckets),
    ("IAM", _roles),
    ("SSM", _documents),
    ("CloudWatch", _dashboards),
    ("tagged resources", present),
    ("logs", _log_groups),
)
