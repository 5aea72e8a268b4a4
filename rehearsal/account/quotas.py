"""Service quotas of the embedded account: AWS's defaults where they limit a stack, and what a rehearsal sets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .books import Books, Inputs, Refused
from .provisioning import types_of


class Counted(NamedTuple):
    """How many of a type there can be: the quota's name here, its default, and AWS's code of the refusal."""

    name: str
    default: int
    code: str


# Service Quotas console, defaults of a new account.
COUNTED = {
    "aws:ec2/vpc:Vpc": Counted("vpcs", 5, "VpcLimitExceeded"),
    "aws:ec2/eip:Eip": Counted("elastic-ips", 5, "AddressLimitExceeded"),
    "aws:ec2/internetGateway:InternetGateway": Counted("internet-gateways", 5, "InternetGatewayLimitExceeded"),
    "aws:ec2/natGateway:NatGateway": Counted("nat-gateways", 5, "NatGatewayLimitExceeded"),
    "aws:fsx/lustreFileSystem:LustreFileSystem": Counted("lustre-file-systems", 100, "ServiceLimitExceeded"),
    "aws:eks/cluster:Cluster": Counted("eks-clusters", 100, "ResourceLimitExceededException"),
    "aws:amp/workspace:Workspace": Counted("prometheus-workspaces", 25, "ServiceQuotaExceededException"),
    # Amazon Managed Service for Prometheus User Guide, "Scraper limitations".
    "aws:amp/scraper:Scraper": Counted("prometheus-scrapers", 10, "ServiceQuotaExceededException"),
    "aws:grafana/workspace:Workspace": Counted("grafana-workspaces", 5, "ServiceQuotaExceededException"),
}
# EC2 API Reference, "Error codes for the Amazon EC2 API".
_WORDS = {"vpcs": "VPCs", "elastic-ips": "addresses", "lustre-file-systems": "Lustre file systems"}


def parse_quota(text: str) -> tuple[str, int]:
    """``NAME=N``. Raises ValueError."""
    name, _, number = text.partition("=")
    if not name or not number.isdecimal():
        raise ValueError(f'--quota {text}: "{number}" is not a whole number from 0; NAME=N, as in vpcs=5')
    return name, int(number)


def check_quota(account: Books, type_token: str, inputs: Inputs) -> None:
    """Raise Refused where one more of this type is too many."""
    if type_token not in COUNTED:
        return
    name, default, code = COUNTED[type_token]
    limit = account.quotas.get(name, default)
    if sum(1 for live in account.live.values() if live.type == type_token) >= limit:
        raise Refused(code, f"The maximum number of {_WORDS.get(name, name.replace('-', ' '))} has been reached.")


def check_instances(account: Books, groups: Sequence[Mapping[str, Any]]) -> None:
    """Raise Refused where an instance type's quota for cluster usage, as set, is too small."""
    wanted: Counter[str] = Counter()
    for group in groups:
        # Each of a flexible group's types may have to provide all nodes.
        wanted.update({name: int(group["instanceCount"]) for name in types_of(group)})
    for instance_type, count in wanted.items():
        limit = account.quotas.get(instance_type)
        if limit is not None and count > limit:
            raise Refused(
                "ResourceLimitExceeded",
                f"The account-level service limit '{instance_type} for cluster usage' is {limit} Instances, with "
                f"current utilization of 0 Instances and a request delta of {count} Instances. Please use AWS Service "
                "Quotas to request an increase for this quota.",
            )
