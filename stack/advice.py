"""What to do about a failure, chosen by its text."""

from __future__ import annotations

import re

# Patterns in AWS's and Pulumi's messages, and what helps. The first match wins.
_STEPS: tuple[tuple[str, str], ...] = (
    (
        r"s3:(?:Put|Delete)\w+[^\n]*sagemaker-[^\n]*explicit deny",
        "only the identities in hyperpod:security.lifecycleWriters may write to the bucket with the scripts: deploy or "
        "destroy as one of them, or ask one of them to add you",
    ),
    # A refused or throttled call may concern any resource, so these come before the patterns for resources.
    (
        r"\bAccessDenied|\bUnauthorizedOperation\b|\bAuthorizationError\b|not authorized to perform|is not authorized",
        "allow this principal the action in the message, then deploy again",
    ),
    (
        r"\b(?:ExpiredToken|InvalidClientTokenId|NoCredential)|no EC2 IMDS role",
        "log in to AWS again, then deploy again",
    ),
    (
        r"\b(?:Throttling|RequestLimitExceeded|TooManyRequests|SlowDown)|\b[Rr]ate exceeded",
        "wait a few minutes, then deploy again: it continues where it stopped",
    ),
    (
        r"Kubernetes cluster is unreachable|due to unreachable cluster",
        "the Kubernetes API answers inside the VPC, and addresses in hyperpod:kubernetesApiCidrs: go on from one of "
        "them, or add yours; if the cluster itself is gone, set PULUMI_K8S_DELETE_UNREACHABLE=true and repeat",
    ),
    (
        r"\bLifecycleScriptFailed\b|\b[Ll]ifecycle scripts?\b",
        "the last line of the node's log names the step that failed; fix lifecycle/ or the network, then deploy again: "
        "it deletes the failed cluster first",
    ),
    (
        r"\b\w*(?:LimitExceeded|QuotaExceeded)(?:Exception)?\b|\bMaximumNumberOf|\bquotas?\b|\bservice limit",
        "hyperpod quotas {stack}    # which quota is too small, and how to request more",
    ),
    (
        r"\bInsufficient(?:Instance)?Capacity|\b[Ii]nsufficient capacity\b|\bcapacity-error\b",
        "AWS has no such instances in this zone now: deploy again later, use a training plan (trainingPlanArn), or set "
        "hyperpod:nodeProvisioning to Continuous, which starts with the available instances; for another zone, destroy "
        "the stack first: hyperpod destroy {stack}; pulumi config set hyperpod:availabilityZoneId ZONE",
    ),
    (
        r"instance type.*cannot be (?:changed|updated)|must match the instance type",
        "an instance group keeps its type: give the group in hyperpod:workers another name with the new type",
    ),
    (
        r"EFA health checks? did not run|efa.*health",
        "the nodes' security group must allow all traffic from and to itself",
    ),
    # Pulumi's words (pkg/resource/deploy), and the embedded engine's.
    (
        r"because it is protected|marked for protection|is protected; set hyperpod:protect",
        "pulumi config set hyperpod:protect false, deploy, then destroy",
    ),
    (r"problems? in the configuration", "fix the configuration: pulumi config set KEY VALUE"),
    (r"\bBucketNotEmpty\b", "empty the bucket, then destroy again"),
    (
        r"\bDependencyViolation\b|has dependencies|is in use|still (?:uses|in use)",
        "hyperpod errors {stack}    # what still uses it",
    ),
    # Slurm's words on a node or in a job's log, and this project's own (lifecycle/).
    (
        r"No space left on device|SlurmdSpoolDir is full|I/O error writing script",
        "make space there; then `scontrol update NodeName=NODE State=RESUME` and `scontrol release JOB` take back "
        "what Slurm has drained and held, and a training job that is submitted again resumes from its checkpoint",
    ),
    (
        r"\bSlurmctld\b.* is DOWN\b",
        "hyperpod nodes {stack}    # is the controller there? Running jobs go on",
    ),
    (
        r"hyperpod-requeue: no answer",
        "nothing: the job resumes from its checkpoint as soon as the node, another or a replacement is there",
    ),
    # The embedded engine's words, and those of pulumi-aws ("updating urn:... : operation error ..., NotFound").
    (
        r"(?:update failed|\bupdating )[^\n]*(?:NotFound|NoSuch|does not exist)",
        "somebody has deleted it: pulumi refresh --stack {stack}, then deploy again, which makes it anew",
    ),
    (
        r"\bNotStabilized\b|did not become available",
        "`hyperpod errors {stack}` has AWS's reason; if it still does not work, deploy with --lose and its "
        "name, which deletes it and makes it anew",
    ),
    (
        r"AlreadyExists|already exists|\bResourceInUse",
        "the name is taken by another stack, or by a leftover of one that was not destroyed completely",
    ),
)
_OTHERWISE = "hyperpod errors {stack}    # every cause, newest first; deploying again continues where it stopped"


# The same of a rehearsal, of which `hyperpod errors` knows nothing.
REHEARSE_AGAIN = "mend what the message names, then rehearse again"


def next_step(text: str, stack: str, otherwise: str = _OTHERWISE) -> str:
    """What to do about a failure with this text; ``otherwise`` if no pattern matches."""
    for pattern, step in _STEPS:
        if re.search(pattern, text):
            return step.format(stack=stack)
    return otherwise.format(stack=stack)
