"""What is wrong with the keys of security."""

from __future__ import annotations

from collections.abc import Iterator

from ..catalogue.regions import Region
from ..common.names import LIFECYCLE_BUCKET
from ..config.model import Settings
from ..identity.checks import partition_problems
from ..schema.problems import Problem


def security_problems(settings: Settings, region: Region | None) -> Iterator[Problem]:
    for number, arn in enumerate(settings.security.lifecycle_writers):
        yield from partition_problems(f"hyperpod:security.lifecycleWriters[{number}]", arn, region)
    yield from _kms_key(settings, region)
    if settings.security.session_run_as and not settings.security.session_logs:
        yield Problem(
            key="hyperpod:security.sessionRunAs",
            what="is part of the document by which sessions are recorded",
            fix="set hyperpod:security.sessionLogs too",
        )
    if settings.security.ssh_only_with_job and settings.orchestrator == "eks":
        yield Problem(
            key="hyperpod:security.sshOnlyWithJob",
            what="is for Slurm: nobody logs in to EKS nodes by ssh",
            fix="leave it out with orchestrator eks",
        )
    if (logs := settings.security.access_log_bucket) and LIFECYCLE_BUCKET.fullmatch(logs):
        yield Problem(
            key="hyperpod:security.accessLogBucket",
            what=f'"{logs}" has a stack\'s lifecycle scripts, and goes with that stack',
            fix="a bucket for logs, which outlives the stack",
        )
    if settings.existing_role_arn and settings.security.node_permissions != "narrow":
        yield Problem(
            key="hyperpod:security.nodePermissions",
            what="the stack creates no roles with existingRoleArn",
            fix="leave one of the two out",
        )


def _kms_key(settings: Settings, region: Region | None) -> Iterator[Problem]:
    key = settings.security.kms_key
    if key and key != "create" and region and key.split(":")[1:4:2] != [region.partition, region.name]:
        yield Problem(
            key="hyperpod:security.kmsKey",
            what=f"the key is in {key.split(':')[3]}",
            fix=f"a key in {region.name}, or create",
        )
    if key and settings.node_provisioning != "Continuous":
        # SageMaker Developer Guide, "Customer managed AWS KMS key encryption for SageMaker HyperPod".
        yield Problem(
            key="hyperpod:nodeProvisioning",
            what="HyperPod encrypts volumes with a customer key (security.kmsKey) only in this mode",
            fix="set it to Continuous",
        )
