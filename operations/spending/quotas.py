"""``quotas``: every service quota that a stack needs, compared with its limit and the account's other use."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from components.common.names import CLUSTER_ID_TAG
from components.estimates.quotas import Quota, counted, needed

from ..aws import Aws
from ..failures import NO_CREDENTIALS, reason
from ..target import Target

Result = Literal["PASS", "FAIL", "UNKNOWN"]
_ENIS = "L-DF5E4CA3"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One quota. ``used`` is the use by everything except this stack; ``limit`` and ``used`` are None if unknown."""

    service: str
    name: str
    code: str
    unit: str
    needed: float
    used: float | None
    limit: float | None
    result: Result
    why: str = ""
    request: str = ""


def check(target: Target, wanted: Sequence[Quota] | None = None) -> list[Check]:
    """Every quota that the stack needs, or those ``wanted``. What cannot be asked is UNKNOWN, and says why."""
    limits, usage = _Limits(target.aws), _Usage(target)
    asked = needed(target.config) if wanted is None else wanted
    return [_check(target, quota, limits.find(quota), usage.of(quota)) for quota in asked]


def unasked(target: Target) -> list[Check]:
    """The same without an account: what the stack needs, and nothing of limits."""
    return [_check(target, quota, (quota.code, None, ""), (None, "")) for quota in needed(target.config)]


def _check(
    target: Target, quota: Quota, limited: tuple[str, float | None, str], use: tuple[float | None, str]
) -> Check:
    (code, limit, why), (used, unseen) = limited, use
    result: Result = "UNKNOWN"
    if limit is not None and limit < quota.needed + (used or 0):
        result = "FAIL"
    elif limit is not None and used is not None:
        result = "PASS"
    return Check(
        service=quota.service,
        name=quota.name,
        code=code,
        unit=quota.unit,
        needed=quota.needed,
        used=used,
        limit=limit,
        result=result,
        why=why or unseen,
        request=_request(target, quota, code, used or 0) if result == "FAIL" else "",
    )


def _request(target: Target, quota: Quota, code: str, used: float) -> str:
    return (
        f"aws service-quotas request-service-quota-increase --region {target.aws.region} --service-code {quota.service}"
        f" --quota-code {code or '?'} --desired-value {quota.needed + used:g}"
    )


def _plain(name: str) -> str:
    """A quota's name however it writes an instance type: that of reserved ml.trn1.32xlarge has hyphens (SageMaker
    Developer Guide, "View SageMaker training plans quotas using the AWS management console")."""
    return name.replace(".", "-")


class _Limits:
    """What the account may use: the values applied to it, and AWS's defaults where none is."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._listed: dict[tuple[str, str], tuple[list[dict[str, Any]], str]] = {}

    def find(self, quota: Quota) -> tuple[str, float | None, str]:
        """Code, limit, and why it is unknown."""
        why = ""
        # Applied values first. The defaults, 30 pages for SageMaker, are read only where one is not among those.
        for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
            listed, refused = self._of(quota.service, operation)
            why = why or refused
            for one in listed:
                same = (
                    _plain(quota.name) == _plain(one["QuotaName"]) if quota.of_type else quota.code == one["QuotaCode"]
                )
                if same:
                    return str(one["QuotaCode"]), float(one["Value"]), ""
        return quota.code, None, why or "Service Quotas does not list it in this region"

    def _of(self, service: str, operation: str) -> tuple[list[dict[str, Any]], str]:
        if (service, operation) not in self._listed:
            self._listed[service, operation] = self._list(service, operation)
        return self._listed[service, operation]

    def _list(self, service: str, operation: str) -> tuple[list[dict[str, Any]], str]:
        try:
            quotas = self._aws.pages("service-quotas", operation, "Quotas", ServiceCode=service)
            return [one for one in quotas if "Value" in one], ""
        except ClientError as error:
            return [], reason(error)


class _Usage:
    """The use of each quota by everything except this stack. Each service is asked once."""

    def __init__(self, target: Target) -> None:
        self._target, self._aws = target, target.aws

    def of(self, quota: Quota) -> tuple[float | None, str]:
        """The use, or None and why it is unknown: a service may not be there in the stack's region."""
        try:
            return self._measure(quota), ""
        except NO_CREDENTIALS:
            raise
        except (ClientError, BotoCoreError) as error:
            return None, reason(error)

    def _measure(self, quota: Quota) -> float:
        if quota.of_type:
            return self._instances[quota.name]
        if quota.code in _OF_ONE:
            return 0.0
        return _MEASURES[quota.code](self)

    @cached_property
    def _instances(self) -> Counter[str]:
        """Instances of the other HyperPod clusters, by the quota that they count against."""
        counts: Counter[str] = Counter()
        client = self._aws.client("sagemaker")
        for summary in self._aws.pages("sagemaker", "list_clusters", "ClusterSummaries"):
            if summary["ClusterName"] == self._target.cluster_name:
                continue
            for group in client.describe_cluster(ClusterName=summary["ClusterName"])["InstanceGroups"]:
                number = max(group.get("CurrentCount", 0), group.get("TargetCount", 0))
                spot = "Spot" in group.get("CapacityRequirements", {})
                for name in counted(spot=spot, plan=bool(group.get("TrainingPlanArn"))):
                    counts[name.format(type=group.get("InstanceType", ""))] += number
                counts["spot"] += number if spot else 0
                counts["all"] += number
        return counts

    @cached_property
    def _all_file_systems(self) -> list[dict[str, Any]]:
        return [one for one in self._aws.pages("fsx", "describe_file_systems", "FileSystems") if not self._ours(one)]

    @property
    def _file_systems(self) -> list[dict[str, Any]]:
        return [
            one
            for one in self._all_file_systems
            if one.get("LustreConfiguration", {}).get("DeploymentType") == "PERSISTENT_2"
        ]

    @property
    def _openzfs(self) -> list[dict[str, Any]]:
        return [one for one in self._all_file_systems if one.get("FileSystemType") == "OPENZFS"]

    def _count(self, operation: str, key: str, **arguments: Any) -> float:
        return sum(not self._ours(one) for one in self._aws.pages("ec2", operation, key, **arguments))

    @cached_property
    def _subnets(self) -> set[str]:
        """Those in the zone that the stack is in, or would be."""
        zone = [{"Name": "availability-zone-id", "Values": [self._target.config.zone_id]}]
        return {one["SubnetId"] for one in self._aws.pages("ec2", "describe_subnets", "Subnets", Filters=zone)}

    def _nat_gateways(self) -> float:
        """Those in the zone that count (VPC User Guide, "Amazon VPC quotas", gateways)."""
        states = [{"Name": "state", "Values": ["pending", "available", "deleting"]}]
        gateways = self._aws.pages("ec2", "describe_nat_gateways", "NatGateways", Filter=states)
        return sum(one["SubnetId"] in self._subnets and not self._ours(one) for one in gateways)

    def _interfaces(self) -> float:
        """Those in the zone: the limit "per Region" is each zone's (VPC User Guide, "Amazon VPC quotas")."""
        vpcs = {one["VpcId"] for one in self._aws.pages("ec2", "describe_vpcs", "Vpcs") if self._ours(one)}
        subnets = self._subnets
        interfaces = self._aws.pages("ec2", "describe_network_interfaces", "NetworkInterfaces")
        return sum(one.get("SubnetId") in subnets and one.get("VpcId") not in vpcs for one in interfaces)

    def _kubernetes(self) -> float:
        names: Iterator[str] = self._aws.pages("eks", "list_clusters", "clusters")
        return sum(name != self._target.cluster_name for name in names)

    def _databases(self) -> float:
        listed: Iterator[dict[str, Any]] = self._aws.pages("rds", "describe_db_instances", "DBInstances")
        return float(sum(one["DBInstanceIdentifier"] != self._target.names.database for one in listed))

    def _workspaces(self, service: str) -> float:
        listed = self._aws.pages(service, "list_workspaces", "workspaces")
        return float(sum(one.get("tags", {}).get(CLUSTER_ID_TAG) != self._target.names.cluster_id for one in listed))

    def _ours(self, resource: dict[str, Any]) -> bool:
        tags = {str(tag["Key"]): str(tag["Value"]) for tag in resource.get("Tags") or []}
        # The account's id is asked for only where there is something to compare with.
        return CLUSTER_ID_TAG in tags and tags[CLUSTER_ID_TAG] == self._target.names.cluster_id


# Limits of a single cluster, volume or VPC, which nothing else uses.
_OF_ONE = frozenset({"L-2CE978FC", "L-E13DF72A", "L-29B6F2EB"})
_GATEWAY_ENDPOINTS = [{"Name": "vpc-endpoint-type", "Values": ["Gateway"]}]
_MEASURES: dict[str, Callable[[_Usage], float]] = {
    "L-3308CCC7": lambda usage: usage._instances["all"],
    "L-97A2C724": lambda usage: usage._instances["spot"],
    "L-8F1B9C74": lambda usage: sum(one["StorageCapacity"] for one in usage._file_systems),
    "L-FD6F2F22": lambda usage: len(usage._file_systems),
    "L-59D0763F": lambda usage: len(usage._openzfs),
    "L-88479C21": lambda usage: sum(one["StorageCapacity"] for one in usage._openzfs),
    "L-4EDE4065": lambda usage: sum(one["OpenZFSConfiguration"]["ThroughputCapacity"] for one in usage._openzfs),
    "L-F678F1CE": lambda usage: usage._count("describe_vpcs", "Vpcs"),
    "L-1B52E74A": lambda usage: usage._count("describe_vpc_endpoints", "VpcEndpoints", Filters=_GATEWAY_ENDPOINTS),
    "L-A4707A72": lambda usage: usage._count("describe_internet_gateways", "InternetGateways"),
    "L-FE5A380F": _Usage._nat_gateways,
    "L-0263D0A3": lambda usage: usage._count("describe_addresses", "Addresses"),
    _ENIS: _Usage._interfaces,
    "L-1194D53C": _Usage._kubernetes,
    "L-7B6409FD": lambda usage: usage._databases(),
    "L-8873DB23": lambda usage: usage._workspaces("amp"),
    "L-2C2D5119": lambda usage: usage._workspaces("grafana"),
}


def requests(checks: list[Check]) -> Iterator[str]:
    """The commands that request what is missing."""
    return (one.request for one in checks if one.request)
