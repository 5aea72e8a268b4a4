"""What to do about a failure: the step that its text asks for."""

from __future__ import annotations

import re

# What AWS's and Pulumi's messages contain, and what helps. The first that matches is taken.
_STEPS: tuple[tuple[str, str], ...] = (
    (
        r"LifecycleScriptFailed|[Ll]ifecycle script",
        "the last line of the node's log names the step that failed; mend lifecycle/ or the network, then deploy again",
    ),
    (
        r"ResourceLimitExceeded|LimitExceeded|quota|service limit|MaximumNumberOf",
        "python -m operations quotas {stack}    # what is too small, and the request to make",
    ),
    (
        r"InsufficientInstanceCapacity|InsufficientCapacity|[Ii]nsufficient capacity|capacity-error",
        "AWS has no such instances now: another zone (hyperpod:availabilityZoneId), a training plan, "
        "or hyperpod:nodeProvisioning Continuous, which starts with what there is",
    ),
    (
        r"EFA health checks? did not run|efa.*health",
        "the nodes' security group must allow all traffic from and to itself",
    ),
    (
        r"AccessDenied|UnauthorizedOperation|not authorized to perform|is not authorized",
        "let this principal do what the message names, then deploy again",
    ),
    (r"ExpiredToken|InvalidClientTokenId|NoCredentials|no EC2 IMDS role", "log in to AWS again, then deploy again"),
    (r"Throttling|Rate exceeded|TooManyRequests", "wait a few minutes, then deploy again: it goes on where it stopped"),
    (r"protect", "pulumi config set hyperpod:protect false, deploy, then destroy"),
    (r"problems? in the configuration", "mend the configuration: pulumi config set KEY VALUE"),
    (r"BucketNotEmpty", "empty the bucket, then destroy again"),
    (
        r"DependencyViolation|has dependencies|is in use|still (?:uses|in use)",
        "python -m operations errors {stack}    # what is in the way",
    ),
    (
        r"AlreadyExists|already exists|ResourceInUse",
        "something of that name is there already: another stack's, or the remains of one that was not destroyed",
    ),
)
_OTHERWISE = (
    "python -m operations errors {stack}    # every cause, newest first; deploying again goes on where it stopped"
)


def next_step(text: str, stack: str, otherwise: str = _OTHERWISE) -> str:
    """What to do about a failure with this text; ``otherwise`` where nothing is known about it."""
    for pattern, step in _STEPS:
        if re.search(pattern, text):
            return step.format(stack=stack)
    return otherwise.format(stack=stack)
