"""Resources with a stack's tags, from the Resource Groups Tagging API, and which of them still exist."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jmespath
from botocore.exceptions import BotoCoreError, ClientError

from components.catalogue.rows import table
from components.common.names import CLUSTER_ID_TAG

from ..failures import cannot_know, is_missing, reason
from ..target import Target


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One resource that still exists. ``command`` deletes it. ``by_aws``: AWS itself created it."""

    kind: str
    id: str
    command: str
    by_aws: bool = False


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A type of ARNs (Service Authorization Reference), and how to look a resource up in its own service.

    ``argument`` takes what ``given`` says. ``there`` (JMESPath) matches the response while it exists.
    """

    type: str
    name: str
    service: str
    operation: str
    argument: str
    given: Literal["id", "ids", "arn", "arns"]
    there: str
    command: str

    def arguments(self, arn: str, name: str) -> dict[str, Any]:
        """The operation's, for a resource."""
        one = arn if self.given.startswith("arn") else name
        return {self.argument: [one] if self.given.endswith("s") else one}


@cache
def _kinds() -> Mapping[str, _Kind]:
    return table(Path(__file__).with_suffix(".csv"), _Kind, "type")


# What leftovers.py searches itself, or what is deleted with something else.
_ELSEWHERE = frozenset(
    {
        "ec2", "eks", "fsx", "s3", "iam", "logs", "sagemaker", "ssm:document", "aps:rulegroupsnamespace",
        "elasticloadbalancing:listener", "elasticloadbalancing:listener-rule",
    }
)  # fmt: skip


def arns(target: Target, key: str = CLUSTER_ID_TAG, value: str = "") -> Iterator[str]:
    """ARNs of resources with this tag, by default the stack's own. The API lags and may list deleted resources."""
    wanted = [{"Key": key, "Values": [value or target.names.cluster_id]}]
    for one in target.aws.pages(
        "resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", TagFilters=wanted
    ):
        yield str(one["ResourceARN"])


def present(target: Target) -> Iterator[Leftover]:
    """Resources with the stack's tag, or with the tags of Kubernetes drivers, that exist according to their service.

    Raises Failure at the end with those that may exist: their type is unknown here, or their service did not answer.
    """
    own = dict.fromkeys(arns(target))
    # leftovers.py has the groups with the stack's tag.
    found = {arn: None for arn in own if _parts(arn)[0] != "ec2:security-group"}
    if target.on_eks:
        cluster = target.cluster_name
        # Volumes and snapshots (aws-ebs-csi-driver, docs/tagging.md), the load balancers of Kubernetes itself, and the
        # group that EKS makes for the cluster (Amazon EKS User Guide, "View Amazon EKS security group requirements").
        found |= dict.fromkeys(arns(target, f"kubernetes.io/cluster/{cluster}", "owned"))
        # Volumes of newer drivers (AWS managed policy AmazonEBSCSIDriverEKSClusterScopedPolicy).
        found |= dict.fromkeys(arns(target, "ebs.csi.aws.com/cluster-name", cluster))
        # What the AWS Load Balancer Controller creates, with the security groups (its guide, "Security Groups").
        found |= dict.fromkeys(arns(target, "elbv2.k8s.aws/cluster", cluster))
    unsure = []
    for arn in found:
        key, name = _parts(arn)
        kind = _kinds().get(key)
        if kind is None:
            if key not in _ELSEWHERE and key.split(":")[0] not in _ELSEWHERE:
                unsure.append(arn)
            continue
        try:
            there = _there(target, kind, arn, name)
        except (ClientError, BotoCoreError) as error:
            unsure.append(f"{arn} ({reason(error)})")
            continue
        if there:
            yield Leftover(kind=kind.name, id=name, command=kind.command.format(id=name, arn=arn))
    if unsure:
        raise cannot_know(f"these may still exist: {', '.join(unsure)}")


def _parts(arn: str) -> tuple[str, str]:
    """Service with type, and the id in an ARN: ``arn:aws:kms:REGION:ACCOUNT:key/ID``."""
    _, _, service, _, _, resource = arn.split(":", 5)
    kind, _, name = resource.lstrip("/").replace(":", "/", 1).partition("/")
    if service == "sns":
        return "sns:topic", resource
    key = f"{service}:{kind}"
    if key == "elasticloadbalancing:loadbalancer" and "/" not in name:
        key += " classic"
    # A hierarchical parameter name begins with a slash, which its ARN does not repeat.
    return key, f"/{name}" if key == "ssm:parameter" and "/" in name else name


def _there(target: Target, kind: _Kind, arn: str, name: str) -> bool:
    try:
        answer = getattr(target.aws.client(kind.service), kind.operation)(**kind.arguments(arn, name))
    except ClientError as error:
        if is_missing(error):
            return False
        raise
    return bool(jmespath.search(kind.there, answer))
