"""Storage classes: volumes that pods request and drivers create."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ..common.policies import Statement, allow
from ..storage.file_systems import DEPLOYMENT_TYPE, LUSTRE_VERSION

# A team's claims: its own directory, and the contents of the linked bucket.
CLAIM_NAME, DATA_CLAIM = "fsx-claim", "fsx-data"
VOLUME_CLASS, LUSTRE_CLASS = "gp3", "fsx-lustre"
EBS_DRIVER, FSX_DRIVER = "ebs.csi.aws.com", "fsx.csi.aws.com"
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
# On file systems that claims make: the cluster id of their stack. It is not CLUSTER_ID_TAG, by which nodes find the
# stack's own file system, and which keeps the driver from deleting it.
VOLUMES_TAG = "hyperpod:volumes-of"


def bucket_claim(bucket: str) -> str:
    """Return the name of a team's claim to one of its buckets."""
    return f"s3-{bucket}"


def bucket_rights(partition: str, bucket: str, prefix: str = "", *, writes: bool = True) -> list[Statement]:
    """Return what Mountpoint needs (its doc/CONFIGURATION.md, "IAM permissions"), below the prefix only."""
    arn = f"arn:{partition}:s3:::{bucket}"
    only = {"StringLike": {"s3:prefix": f"{prefix}*"}} if prefix else None
    write = ("s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject") if writes else ()
    return [allow(["s3:ListBucket"], [arn], only), allow(["s3:GetObject", *write], [f"{arn}/{prefix}*"])]


@dataclass(frozen=True, kw_only=True)
class KubernetesStorageArgs:
    """Inputs of the classes: where new file systems go, their throughput in MB/s per TiB, the id with which they are
    tagged, and the ARN of the customer key.
    """

    cluster_id: str
    subnet_id: Input[str]
    security_group_ids: Sequence[Input[str]]
    throughput: int
    key: Input[str] | None = None


class KubernetesStorage(ComponentResource):
    """Owns the classes ``gp3`` (the default) and ``fsx-lustre``.

    The stack's own file system is a static volume in each training namespace. Local disks need no class: kubelet keeps
    its data there, including emptyDir volumes.
    """

    def __init__(self, name: str, args: KubernetesStorageArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:KubernetesStorage", name, None, opts)
        # Both drivers call the parameter alike (aws-ebs-csi-driver, docs/parameters.md; aws-fsx-csi-driver,
        # pkg/driver/controller.go).
        encrypted = {"kmsKeyId": args.key} if args.key is not None else {}
        kubernetes.storage.v1.StorageClass(
            f"{name}-gp3",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=VOLUME_CLASS, annotations={_DEFAULT: "true"}),
            provisioner=EBS_DRIVER,
            parameters={"type": "gp3", "encrypted": "true", **encrypted},
            # In the zone of the pod's node, once that is known.
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
            opts=ResourceOptions(parent=self),
        )
        kubernetes.storage.v1.StorageClass(
            f"{name}-fsx-lustre",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=LUSTRE_CLASS),
            provisioner=FSX_DRIVER,
            parameters={
                "subnetId": args.subnet_id,
                "securityGroupIds": Output.all(*args.security_group_ids).apply(",".join),
                "deploymentType": DEPLOYMENT_TYPE,
                "perUnitStorageThroughput": str(args.throughput),
                "dataCompressionType": "LZ4",
                "fileSystemTypeVersion": LUSTRE_VERSION,
                # aws-fsx-csi-driver, examples/kubernetes/dynamic_provisioning: alone it tags with the volume's name.
                "extraTags": f"{VOLUMES_TAG}={args.cluster_id}",
                **encrypted,
            },
            mount_options=["flock", "noatime"],
            volume_binding_mode="WaitForFirstConsumer",
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})
