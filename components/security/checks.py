"""Checks of the keys of security."""

from collections.abc import Iterator

from ..catalogue.regions import Region
from ..common.names import LIFECYCLE_BUCKET
from ..schema.arns import partition_problems
from ..schema.problems import Problem
from .keys import Security


def security_problems(
    chosen: Security, region: Region | None, *, orchestrator: str, own_roles: bool, continuous: bool
) -> Iterator[Problem]:
    """Yield every problem of the keys of security. ``own_roles``: the stack creates the nodes' roles."""
    for number, arn in enumerate(chosen.lifecycle_writers):
        yield from partition_problems(f"hyperpod:security.lifecycleWriters[{number}]", arn, region)
    yield from _kms_key(chosen.kms_key, region, continuous=continuous)
    if chosen.session_run_as and not chosen.session_logs:
        yield Problem(
            key="hyperpod:security.sessionRunAs",
            what="is part of the document by which sessions are recorded",
            fix="set hyperpod:security.sessionLogs too",
        )
    if chosen.ssh_only_with_job and orchestrator == "eks":
        yield Problem(
            key="hyperpod:security.sshOnlyWithJob",
            what="is for Slurm: nobody logs in to EKS nodes by ssh",
            fix="leave it out with orchestrator eks",
        )
    if (logs := chosen.access_log_bucket) and LIFECYCLE_BUCKET.fullmatch(logs):
        yield Problem(
            key="hyperpod:security.accessLogBucket",
            what=f'"{logs}" has a stack\'s lifecycle scripts, and goes with that stack',
            fix="a bucket for logs, which outlives the stack",
        )
    if not own_roles and chosen.node_permissions != "narrow":
        yield Problem(
            key="hyperpod:security.nodePermissions",
            what="the stack creates no roles with existingRoleArn",
            fix="leave one of the two out",
        )


def _kms_key(key: str | None, region: Region | None, *, continuous: bool) -> Iterator[Problem]:
    if key and key != "create" and region and key.split(":")[1:4:2] != [region.partition, region.name]:
        yield Problem(
            key="hyperpod:security.kmsKey",
            what=f"the key is in {key.split(':')[3]}",
            fix=f"a key in {region.name}, or create",
        )
    if key and not continuous:
        # SageMaker Developer Guide, "Customer managed AWS KMS key encryption for SageMaker HyperPod".
        yield Problem(
            key="hyperpod:nodeProvisioning",
            what="HyperPod encrypts volumes with a customer key (security.kmsKey) only in this mode",
            fix="set it to Continuous",
        )
