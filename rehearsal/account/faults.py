"""Faults that a rehearsal can inject."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .books import Refused

FaultKind = Literal["error", "throttling", "capacity", "lifecycle"]

# Codes are those of the SageMaker API Reference, "Common Errors", and of the EC2 API Reference, "Error codes". Where
# nodes fail to boot, DescribeCluster has prose alone (FailureMessage): LifecycleScriptFailed is this project's own
# name.
_MESSAGES: dict[str, tuple[str, str]] = {
    "error": ("InternalFailure", "injected failure"),
    "throttling": ("ThrottlingException", "Rate exceeded"),
    "capacity": (
        "InsufficientInstanceCapacity",
        "there is not enough capacity for the requested instance type in this Availability Zone",
    ),
    "lifecycle": (
        "LifecycleScriptFailed",
        "a lifecycle script exited with a non-zero code on an instance of the group; its log is in CloudWatch "
        "under /aws/sagemaker/Clusters, stream LifecycleConfig/<group>/<instance>",
    ),
}


@dataclass
class Fault:
    """Something that fails: ``target`` is a type token, its last part, a resource's name, or TYPE::NAME.

    ``count`` is how often it fails; a throttled request succeeds when the provider has retried often enough.
    ``nth`` counts creates over the whole account instead, from 1.
    """

    target: str = ""
    kind: FaultKind = "error"
    count: int = 1_000_000
    nth: int | None = None
    hits: int = field(default=0, init=False)

    def strikes(self, type_token: str, name: str, creates: int) -> bool:
        """Whether this fault takes this create, which is the account's ``creates``-th."""
        if self.hits >= self.count:
            return False
        hit = (
            creates == self.nth
            if self.nth
            else self.target
            in (
                type_token,
                type_token.rsplit(":", 1)[-1],
                name,
                f"{type_token}::{name}",
            )
        )
        self.hits += hit
        return hit

    def error(self) -> Refused:
        """What AWS answers."""
        return Refused(*_MESSAGES[self.kind])


def parse_fault(text: str) -> Fault:
    """``TARGET`` or ``TARGET=KIND``; ``#N`` as target is the Nth create. Raises ValueError for an unknown kind."""
    target, _, kind = text.partition("=")
    if kind and kind not in _MESSAGES:
        raise ValueError(f'"{kind}" is not a kind of failure; one of {", ".join(_MESSAGES)}')
    chosen: FaultKind = kind or "error"  # type: ignore[assignment]
    if target.startswith("#") and target[1:].isdigit():
        return Fault(kind=chosen, nth=int(target[1:]))
    return Fault(target=target, kind=chosen, count=2 if chosen == "throttling" else 1_000_000)
