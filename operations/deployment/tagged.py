"""Resources with a stack's tags, from the Resource Groups Tagging API, and which of them still exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jmespath
from botocore.exceptions import BotoCoreError, ClientError

from components.common.names import CLUSTER_ID_TAG

from ..failures import cannot_know, is_missing, reason
from ..target import Target


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """One existing resource. ``command`` deletes it."""

    kind: str
    id: str
    command: str


@dataclass(frozen=True)
class _Kind:
    """How to look a resource up in its own service: ``there`` (JMESPath) matches the response while it exists."""

    name: str
    service: str
    operation: str
    arguments: Callable[[str, str], dict[str, Any]]  # of the ARN and the id in it
    there: str
    command: str


# By service and resource type, as in ARNs (Service Authorization Reference, resource types).
_KINDS = {
    "aps:workspace": _Kind(
        "Prometheus workspace", "amp", "describe_workspace", lambda arn, one: {"workspaceId": one},
        "workspace.status.statusCode != 'DELETING'", "aws amp delete-workspace --workspace-id {id}",
    ),
    "aps:scraper": _Kind(
        "Prometheus collector", "amp", "describe_scraper", lambda arn, one: {"scraperId": one},
        "scraper.status.statusCode != 'DELETING'", "aws amp delete-scraper --scraper-id {id}",
    ),
    "grafana:workspaces": _Kind(
        "Grafana workspace", "grafana", "describe_workspace", lambda arn, one: {"workspaceId": one},
        "workspace.status != 'DELETING'", "aws grafana delete-workspace --workspace-id {id}",
    ),
    "kms:key": _Kind(
        "KMS key", "kms", "describe_key", lambda arn, one: {"KeyId": one},
        "KeyMetadata.KeyState != 'PendingDeletion'",
        "aws kms schedule-key-deletion --key-id {id}",
    ),
    "ecr:repository": _Kind(
        "ECR repository", "ecr", "describe_repositories", lambda arn, one: {"repositoryNames": [one]},
        "repositories", "aws ecr delete-repository --force --repository-name {id}",
    ),
    "events:rule": _Kind(
        "EventBridge rule", "events", "describe_rule", lambda arn, one: {"Name": one},
        "Name", "aws events delete-rule --name {id}    # after its targets: aws events remove-targets",
    ),
    "sns:topic": _Kind(
        "SNS topic", "sns", "get_topic_attributes", lambda arn, one: {"TopicArn": arn},
        "Attributes", "aws sns delete-topic --topic-arn {arn}",
    ),
    "cloudwatch:alarm": _Kind(
        "CloudWatch alarm", "cloudwatch", "describe_alarms", lambda arn, one: {"AlarmNames": [one]},
        "MetricAlarms", "aws cloudwatch delete-alarms --alarm-names {id}",
    ),
    "ssm:parameter": _Kind(
        "SSM parameter", "ssm", "get_parameter", lambda arn, one: {"Name": one},
        "Parameter", "aws ssm delete-parameter --name {id}",
    ),
    "rds:db": _Kind(
        "database", "rds", "describe_db_instances", lambda arn, one: {"DBInstanceIdentifier": one},
        "DBInstances[?DBInstanceStatus != 'deleting']",
        "aws rds delete-db-instance --skip-final-snapshot --db-instance-identifier {id}    # and its data",
    ),
    "rds:subgrp": _Kind(
        "DB subnet group", "rds", "describe_db_subnet_groups", lambda arn, one: {"DBSubnetGroupName": one},
        "DBSubnetGroups", "aws rds delete-db-subnet-group --db-subnet-group-name {id}",
    ),
    "rds:pg": _Kind(
        "DB parameter group", "rds", "describe_db_parameter_groups", lambda arn, one: {"DBParameterGroupName": one},
        "DBParameterGroups", "aws rds delete-db-parameter-group --db-parameter-group-name {id}",
    ),
    "ec2:volume": _Kind(
        "EBS volume", "ec2", "describe_volumes", lambda arn, one: {"VolumeIds": [one]},
        "Volumes[?State != 'deleting']", "aws ec2 delete-volume --volume-id {id}    # and its data",
    ),
    "ec2:snapshot": _Kind(
        "EBS snapshot", "ec2", "describe_snapshots", lambda arn, one: {"SnapshotIds": [one]},
        "Snapshots", "aws ec2 delete-snapshot --snapshot-id {id}    # and its data",
    ),
    "ec2:security-group": _Kind(
        "security group", "ec2", "describe_security_groups", lambda arn, one: {"GroupIds": [one]},
        "SecurityGroups", "aws ec2 delete-security-group --group-id {id}",
    ),
    "fsx:backup": _Kind(
        "FSx backup", "fsx", "describe_backups", lambda arn, one: {"BackupIds": [one]},
        "Backups[?Lifecycle != 'DELETED']", "aws fsx delete-backup --backup-id {id}    # and its data",
    ),
    "elasticloadbalancing:loadbalancer": _Kind(
        "load balancer", "elbv2", "describe_load_balancers", lambda arn, one: {"LoadBalancerArns": [arn]},
        "LoadBalancers", "aws elbv2 delete-load-balancer --load-balancer-arn {arn}",
    ),
    "elasticloadbalancing:loadbalancer classic": _Kind(
        "load balancer", "elb", "describe_load_balancers", lambda arn, one: {"LoadBalancerNames": [one]},
        "LoadBalancerDescriptions", "aws elb delete-load-balancer --load-balancer-name {id}",
    ),
    "elasticloadbalancing:targetgroup": _Kind(
        "target group", "elbv2", "describe_target_groups", lambda arn, one: {"TargetGroupArns": [arn]},
        "TargetGroups", "aws elbv2 delete-target-group --target-group-arn {arn}",
    ),
}  # fmt: skip
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


def present(target: Target) -> Iterator[Tagged]:
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
        kind = _KINDS.get(key)
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
            yield Tagged(kind=kind.name, id=name, command=kind.command.format(id=name, arn=arn))
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
