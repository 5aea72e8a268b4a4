"""What the hosts need to know about the stack in the embedded account."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.config import Config
from operations.engine.state import HYPERPOD_CLUSTER
from operations.project.loading import Project

from ..account import Account
from ..engines.deployment import Deployment, up
from ..existing import prepare


class StackError(Exception):
    """The stack did not come up, or has no Slurm nodes to rehearse."""


@dataclass(frozen=True)
class Stack:
    """A deployed stack."""

    account: Account
    config: Config
    cluster_name: str
    cluster_arn: str
    file_system: str
    bucket: str
    prefix: str
    cidr: str
    zone: str
    zone_id: str
    groups: Mapping[str, Mapping[str, Any]]

    def lifecycle_files(self) -> dict[str, bytes]:
        """The files that HyperPod downloads: every object under the cluster's source URI, by its path below it."""
        s3 = self.account.client("s3")
        found: dict[str, bytes] = {}
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix):
            for entry in page.get("Contents", []):
                content = s3.get_object(Bucket=self.bucket, Key=entry["Key"])["Body"].read()
                found[entry["Key"][len(self.prefix) :].lstrip("/")] = content
        return found


def bring_up(project: Project, config: Config, account: Account, *, eks: bool = False) -> Stack:
    """Deploy, and look up what the hosts need. Raises StackError, also for an EKS stack unless one is asked for."""
    if config.settings.orchestrator != "slurm" and not eks:
        raise StackError(f"stack {project.stack} runs EKS; only Slurm nodes can be rehearsed")
    prepare(account, config)
    deployment = up(project, account)
    if deployment.failure:
        raise StackError(f"the stack did not come up: {deployment.failure}")
    return _describe(deployment, config, account)


def _describe(deployment: Deployment, config: Config, account: Account) -> Stack:
    outputs = deployment.outputs
    cluster = next(account.find(HYPERPOD_CLUSTER))
    groups = {group["instanceGroupName"]: group for group in cluster.inputs["instanceGroups"]}
    source = next(iter(groups.values()))["lifeCycleConfig"]["sourceS3Uri"]
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    subnets = account.client("ec2").describe_subnets(SubnetIds=[str(outputs["privateSubnetId"])])["Subnets"]
    return Stack(
        account=account,
        config=config,
        cluster_name=str(outputs["clusterName"]),
        cluster_arn=str(outputs["clusterArn"]),
        file_system=str(outputs["fsxId"]),
        bucket=bucket,
        prefix=prefix,
        cidr=subnets[0]["CidrBlock"],
        zone=subnets[0]["AvailabilityZone"],
        zone_id=subnets[0]["AvailabilityZoneId"],
        groups=groups,
    )
