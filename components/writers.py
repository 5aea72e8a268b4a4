"""Who may write the lifecycle bucket: who is configured, or the identity that deploys the stack first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import pulumi_aws as aws

from .config import Problem, Settings

KEY = "hyperpod:security.lifecycleWriters"
OUTPUT = "lifecycleWriters"


def deployer() -> str:
    """The ARN of who deploys: of a role's session the role's own, with its path, as policies compare it."""
    caller = aws.get_caller_identity().arn
    return aws.iam.get_session_context(arn=caller).issuer_arn or caller


def writers(settings: Settings, before: Mapping[str, Any] | None, who: str) -> list[str]:
    """As configured; else those of the last deployment, whose outputs are ``before``, else ``who``."""
    given = settings.security.lifecycle_writers or tuple((before or {}).get(OUTPUT, ()))
    return sorted(given) or [who]


def locked_out(settings: Settings, before: Mapping[str, Any] | None, who: str) -> Iterator[Problem]:
    """The deployment would fail half-way, or would be its author's last: the bucket refuses who is no writer."""
    for title, patterns in (
        ("the deployed bucket lets", tuple((before or {}).get(OUTPUT, ()))),
        ("this would let", settings.security.lifecycle_writers),
    ):
        if patterns and not any(fnmatchcase(who, pattern) for pattern in patterns):
            yield Problem(
                key=KEY,
                what=f"{title} only {', '.join(patterns)} write the scripts, and {who} deploys",
                fix=f"add {who}, and let one of those deploy that first",
            )
            return
