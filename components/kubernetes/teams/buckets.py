"""A team's rights on AWS: the role of its pods, and the claims by which they mount its S3 buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pulumi_aws as aws
import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, Input, ResourceOptions

from ...common.context import Context
from ...common.policies import document
from ...observability.mlflow import job_statements
from ..keys import Team, TeamBucket
from ..pod_identity import pod_role
from ..static_volumes import StaticVolume
from ..storage import bucket_claim, bucket_rights

core = kubernetes.core.v1

_DRIVER = "s3.csi.aws.com"
# The service account of every pod that names none.
_SERVICE_ACCOUNT = "default"
# A volume must have a capacity, and the driver ignores it (its docs/CONFIGURATION.md, "Static Provisioning").
_CAPACITY = {"storage": "1Gi"}


@dataclass(frozen=True, kw_only=True)
class TeamBucketsArgs:
    """Inputs of a team's role and buckets. ``namespace`` is the team's, and ``cluster_name`` the EKS cluster's."""

    context: Context
    cluster_name: Input[str]
    namespace: kubernetes.core.v1.Namespace
    namespace_name: str
    team: Team


class TeamBuckets(ComponentResource):
    """Owns the role of a team's pods, which reaches the team's buckets, the stack's MLflow App, and nothing else, and a
    claim for each bucket.

    The driver mounts a bucket with the role of the pod that asks for it, so that another team's pods cannot (the
    driver's docs/CONFIGURATION.md, "Pod-Level Credentials"). Deliberately absent: the buckets themselves, and their
    KMS keys, whose policies decide who may use them.
    """

    def __init__(self, name: str, args: TeamBucketsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:TeamBuckets", name, None, opts)
        context, namespace, team = args.context, args.namespace_name, args.team
        child = ResourceOptions(parent=self)
        role = pod_role(f"{name}-role", context.names.team_role(team.uid), context, child)
        buckets = [
            right
            for bucket in team.buckets
            for right in bucket_rights(context.partition, bucket.name, bucket.prefix, writes=not bucket.read_only)
        ]
        tracking = context.tracking
        policy: Input[str] = document(buckets)
        if tracking:
            policy = tracking.arn.apply(lambda app: document([*buckets, *job_statements(context, app)]))
        rights = aws.iam.RolePolicy(f"{name}-role", role=role.name, policy=policy, opts=child)
        given = aws.eks.PodIdentityAssociation(
            f"{name}-role",
            cluster_name=args.cluster_name,
            namespace=namespace,
            service_account=_SERVICE_ACCOUNT,
            role_arn=role.arn,
            # A pod that starts without credentials does not get them later.
            opts=ResourceOptions(parent=self, depends_on=[rights]),
        )
        inside = ResourceOptions(parent=self, depends_on=[args.namespace, given], deleted_with=args.namespace)
        for bucket in team.buckets:
            _volume(namespace, bucket, team.uid).create(f"{name}-{bucket.name}", self, inside)
        self.register_outputs({})


def _volume(namespace: str, bucket: TeamBucket, uid: int) -> StaticVolume:
    claim = bucket_claim(bucket.name)
    return StaticVolume(
        namespace=namespace,
        volume=f"{namespace}-{claim}",
        claim=claim,
        capacity=_CAPACITY,
        modes=["ReadWriteMany"],
        mount_options=list(_mount_options(bucket, uid)),
        source=core.CSIPersistentVolumeSourceArgs(
            driver=_DRIVER,
            volume_handle=f"{namespace}-{claim}",
            volume_attributes={"bucketName": bucket.name, "authenticationSource": "pod"},
        ),
    )


def _mount_options(bucket: TeamBucket, uid: int) -> Iterator[str]:
    """Yield Mountpoint's options (its doc/CONFIGURATION.md, "File system configuration"): the team's user owns all."""
    yield from ("allow-other", f"uid={uid}", f"gid={uid}")
    if bucket.prefix:
        yield f"prefix {bucket.prefix}"
    yield from ("read-only",) if bucket.read_only else ("allow-delete", "allow-overwrite")
