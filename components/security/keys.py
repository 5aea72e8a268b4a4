"""The keys of ``hyperpod:security``."""

from typing import Annotated, Literal

from pydantic import StrictBool

from ..schema.fields import AT_BOOT, IN_PLACE, NONE_IF_EMPTY, REFUSED, BucketName, Change, KmsKey, Model, WriterArn

PodSecurity = Literal["baseline", "restricted"]


class Security(Model):
    """Permissions that AWS's examples grant more widely than a cluster needs, and encryption."""

    lifecycle_writers: Annotated[
        tuple[WriterArn, ...], Change("in part", "in place; refused without the identity that deploys")
    ] = ()
    """ARNs of the IAM roles or users that may write to the lifecycle bucket, whose scripts run as root on the nodes;
    wildcards are allowed. Everybody who deploys or destroys the stack must be among them. Default: the identity of the
    first deployment."""
    node_permissions: Annotated[Literal["narrow", "published"], IN_PLACE] = "narrow"
    """narrow limits the nodes' roles to this stack's VPC, logs and bucket; published grants what the examples in the
    SageMaker Developer Guide grant."""
    pod_security: Annotated[PodSecurity, IN_PLACE] = "baseline"
    """Pod Security Standard of Kubernetes that the teams' namespaces enforce: baseline refuses access to the node,
    restricted also refuses root and capabilities. The project's own jobs pass both. EKS only."""
    worker_secrets: Annotated[StrictBool, IN_PLACE] = False
    """Let workers read secrets whose names begin with hyperpod/CLUSTER/."""
    access_log_bucket: Annotated[BucketName | None, NONE_IF_EMPTY, IN_PLACE] = None
    """Existing S3 bucket of this account and region for the access logs of the lifecycle bucket. Its policy must let
    logging.s3.amazonaws.com write, and a bucket for logs is encrypted with S3's own keys. Default: no access logs."""
    session_logs: Annotated[StrictBool, IN_PLACE] = False
    """Record the sessions that `hyperpod node connect` opens on nodes, in the log group /hyperpod/CLUSTER/sessions."""
    session_run_as: Annotated[StrictBool, IN_PLACE] = False
    """Start the sessions of `hyperpod node connect` as the account that the tag SSMSessionRunAs of the caller's IAM
    user or role names. Callers without the tag cannot open a session. Needs `sessionLogs`."""
    ssh_only_with_job: Annotated[StrictBool, AT_BOOT] = False
    """Refuse ssh to a worker without a job of the same user there (pam_slurm_adopt), except to root, ubuntu and people
    with sudo. docs/slurm-teams.md lists what the nodes need. Slurm only."""
    kms_key: Annotated[KmsKey | None, REFUSED] = None
    """KMS key that encrypts everything that the stack stores: the ARN of a symmetric key of this account and region, or
    create for the stack's own key. Needs `nodeProvisioning` Continuous. Default: AWS's keys."""
