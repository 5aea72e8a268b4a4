"""The customer key: one KMS key for everything that a stack stores, created by the stack or given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pulumi_aws as aws
from pulumi import ComponentResource, Output, ResourceOptions

from ..common.context import Context
from ..common.names import events_log_group, log_group
from ..common.policies import Statement, allow, document
from ..schema.problems import Problem

KEY = "hyperpod:security.kmsKey"
CREATE = "create"
# KMS, ScheduleKeyDeletion: 7 to 30 days, in which a deletion can be cancelled. Backups that people made of the file
# system outlive the stack, and are lost with the key. A key that is pending deletion costs nothing.
_WINDOW_DAYS = 30
# KMS's answer for a suitable key (DescribeKey, KeyMetadata).
_USABLE = {
    "key_manager": ("CUSTOMER", "is managed by AWS", "a key of your own"),
    "key_state": ("Enabled", "is not enabled", "enable it: aws kms enable-key"),
    "key_usage": ("ENCRYPT_DECRYPT", "does not encrypt", "a key for encryption and decryption"),
    "customer_master_key_spec": ("SYMMETRIC_DEFAULT", "is not symmetric", "a symmetric key"),
}
# Grants that services of AWS make, and no others.
_GRANTS_OF_AWS = {"Bool": {"kms:GrantIsForAWSResource": "true"}}


@dataclass(frozen=True, kw_only=True)
class EncryptionArgs:
    """Inputs of the key. ``retained``: a resource that outlives the stack needs it; ``notified``: services publish to
    the stack's encrypted topic.
    """

    context: Context
    retained: bool
    notified: bool


def customer_key(chosen: str | None, args: EncryptionArgs, opts: ResourceOptions) -> Output[str] | None:
    """Return the ARN of the stack's key or of the given one; None if none is configured."""
    if chosen == CREATE:
        return Encryption("encryption", args, opts).key
    return Output.from_input(chosen) if chosen else None


class Encryption(ComponentResource):
    """Owns the key that the stack creates, with rotation.

    It encrypts volumes of nodes and pods, file systems, the lifecycle bucket, log groups, images, workspaces,
    Kubernetes secrets, and the database of Slurm's accounting with its password. Deliberately absent: a key for each
    instance group, which SageMaker recommends for revoking the grants of single groups, and an alias.
    """

    key: Output[str]

    def __init__(self, name: str, args: EncryptionArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Encryption", name, None, opts)
        context = args.context
        self.key = aws.kms.Key(
            f"{name}-key",
            description=f"Everything that {context.names.cluster} stores",
            enable_key_rotation=True,
            deletion_window_in_days=_WINDOW_DAYS,
            policy=key_policy(context, notified=args.notified),
            # Data that outlives the stack is unreadable without it.
            opts=ResourceOptions(parent=self, protect=context.protect, retain_on_delete=args.retained),
        ).arn
        self.register_outputs({"key": self.key})


def key_policy(context: Context, *, notified: bool) -> str:
    """Return the key's policy: the account decides by its IAM policies who uses the key, as with every key whose policy
    AWS writes; CloudWatch Logs, which has no identity in the account, may use it for this stack's log groups.

    SageMaker Developer Guide, "Customer managed AWS KMS key encryption for SageMaker HyperPod"; CloudWatch Logs User
    Guide, "Encrypt log data in CloudWatch Logs using AWS KMS".
    """
    cluster = context.names.cluster
    groups = (log_group(cluster, "*"), f"/aws/eks/{cluster}/*", events_log_group(cluster))
    own = [context.arn("logs", f"log-group:{group}") for group in groups]
    use = ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
    context_of_logs = {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": own}}
    account = {"AWS": f"arn:{context.partition}:iam::{context.account}:root"}
    logs = {"Service": f"logs.{context.region.name}.{context.region.dns_suffix}"}
    # Amazon SNS Developer Guide, "Amazon SNS key management": publishers to an encrypted topic use its key, and
    # EventBridge sends no condition keys.
    publish, here = ["kms:Decrypt", "kms:GenerateDataKey*"], {"StringEquals": {"aws:SourceAccount": context.account}}
    alerts = [
        {"Sid": "Alerts", "Principal": _services("aps", "cloudwatch"), **allow(publish, ["*"], here)},
        {"Sid": "Events", "Principal": _services("events"), **allow(publish, ["*"])},
    ]
    return document(
        [
            {"Sid": "Account", "Principal": account, **allow(["kms:*"], ["*"])},
            {"Sid": "Logs", "Principal": logs, **allow(use, ["*"], context_of_logs)},
            # No encryption context comes with this one (Service Authorization Reference, AWS KMS).
            {"Sid": "LogsFindIt", "Principal": logs, **allow(["kms:DescribeKey"], ["*"])},
            *(alerts if notified else ()),
        ]
    )


def _services(*names: str) -> dict[str, list[str]]:
    return {"Service": [f"{name}.amazonaws.com" for name in names]}


def use_through(context: Context, key: str, service: str) -> list[Statement]:
    """Allow a role to have a service encrypt with the key on its behalf, and nothing else.

    AWS KMS Developer Guide, "kms:ViaService" and "kms:GrantIsForAWSResource".
    """
    via = _via(context, service)
    return [
        allow(["kms:DescribeKey"], [key]),
        allow(["kms:CreateGrant"], [key], via | _GRANTS_OF_AWS),
        allow(["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"], [key], via),
    ]


def decrypt_through(context: Context, key: str, service: str) -> list[Statement]:
    """Allow a role to read data that a service has encrypted with the key."""
    return [allow(["kms:Decrypt"], [key], _via(context, service))]


def node_statements(context: Context, key: str, *, sessions: bool) -> list[Statement]:
    """Return a node role's permissions on the key: HyperPod's grants for its volumes, the scripts in the bucket, and
    with ``sessions`` their log group.

    SageMaker Developer Guide, "Customer managed AWS KMS key encryption for SageMaker HyperPod".
    """
    sagemaker = _via(context, "sagemaker")
    return [
        allow(["kms:CreateGrant"], [key], sagemaker | _GRANTS_OF_AWS),
        allow(["kms:DescribeKey"], [key], sagemaker),
        *decrypt_through(context, key, "s3"),
        *(log_statements(context, key) if sessions else ()),
    ]


def log_statements(context: Context, key: str) -> list[Statement]:
    """Allow a role to write or read log groups that are encrypted with the key: CloudWatch Logs uses it in the caller's
    name, in addition to its own.

    CloudWatch Logs User Guide, "Encrypt log data in CloudWatch Logs using AWS KMS": permissions on the calling IAM
    principal, for reading and writing encrypted log data.
    """
    use = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
    return [allow(use, [key], _via(context, "logs"))]


def workspace_statements(context: Context, key: str | None) -> list[Statement]:
    """Allow a role to write to, or query, the Prometheus workspace that the stack encrypts with the key; nothing for an
    existing workspace, whose key is not known.

    Amazon Managed Service for Prometheus User Guide, "Encryption at rest", step 3: readers of its data use the key, and
    the statement for principals of the account.
    """
    if key is None or context.prometheus is None or not context.prometheus.own:
        return []
    return [allow(["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey*"], [key], _via(context, "aps"))]


def _via(context: Context, service: str) -> dict[str, dict[str, str]]:
    """Require that a service uses the key for the caller."""
    return {"StringEquals": {"kms:ViaService": f"{service}.{context.region.name}.{context.region.dns_suffix}"}}


def key_problems(arn: str | None, account: str) -> Iterator[Problem]:
    """Report what makes a given key unusable, as far as KMS says before anything is encrypted. It does not check its
    policy.
    """
    if not arn or arn == CREATE:
        return
    if (owner := arn.split(":")[4]) != account:
        yield Problem(key=KEY, what=f"the key is of account {owner}", fix=f"a key of {account}, where the stack is")
        return
    try:
        found = aws.kms.get_key(key_id=arn)
    except Exception as refused:  # Any error: there is no such key, or no permission to look at it.
        yield Problem(key=KEY, what=f"KMS does not describe {arn}: {refused}", fix="an existing key's ARN, or create")
        return
    for field, (wanted, what, fix) in _USABLE.items():
        if (value := getattr(found, field)) != wanted:
            yield Problem(key=KEY, what=f"the key {what} ({value})", fix=fix)
