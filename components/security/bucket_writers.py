"""Chooses the writers of the lifecycle bucket: the configured identities, or the first deployer of the stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import pulumi_aws as aws

from ..schema.problems import Problem

KEY = "hyperpod:security.lifecycleWriters"
OUTPUT = "lifecycleWriters"


def deployer(caller: str) -> str:
    """Return the deployer's ARN. For a role's session it is the role's ARN with its path, which policies compare."""
    return aws.iam.get_session_context(arn=caller).issuer_arn or caller


def writers(configured: Sequence[str], before: Mapping[str, Any], who: str) -> list[str]:
    """Return the configured writers; otherwise those in ``before``, the outputs of the last deployment; otherwise
    ``who``.
    """
    given = tuple(configured) or tuple(before.get(OUTPUT, ()))
    return sorted(given) or [who]


def require_writer(configured: Sequence[str], before: Mapping[str, Any], who: str) -> Iterator[Problem]:
    """Refuse a deployer who is not a writer: the bucket would refuse this deployment half-way, or the next one."""
    for title, patterns in (
        ("the deployed bucket lets", tuple(before.get(OUTPUT, ()))),
        ("this would let", tuple(configured)),
    ):
        if patterns and not any(fnmatchcase(who, pattern) for pattern in patterns):
            yield Problem(
                key=KEY,
                what=f"{title} only {', '.join(patterns)} write the scripts, and {who} deploys",
                fix=f"add {who}, and let one of those deploy that first",
            )
            return
