"""Faults that a rehearsal can inject."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from operations.engine.state import HYPERPOD_CLUSTER

from .books import HalfMade, Live, Refused

FaultKind = Literal[
    "error", "throttling", "capacity", "controller-capacity", "lifecycle", "unavailable", "expired", "unreachable"
]
Call = Literal["create", "update", "delete"]

# Cloud Control's code of a resource that was made and does not work (User Guide, "Handler error codes").
NOT_STABLE = "NotStabilized"
# What DescribeCluster then gives as FailureMessage (awslabs/awsome-distributed-ai, issues 204 and 188, and awslabs/
# agent-plugins, hyperpod-cluster-debugger).
NO_CAPACITY = "We currently do not have sufficient capacity for the requested instance type(s). Please try again."
SCRIPTS_FAILED = (
    "Lifecycle scripts did not run successfully. Ensure the scripts exist in provided S3 path, are accessible, and run "
    "without errors. Please see CloudWatch logs for lifecycle script execution details."
)
NO_NETWORK = "Instance bootstrap failed due to network misconfiguration"
# Other codes and words are those of the SageMaker API Reference, "Common Error Types", of Terraform's AWS provider,
# which Pulumi's is built on (fsx/lustre_file_system.go), and of pulumi-kubernetes (provider.go, clusterUnreachable)
# around the words of Go's net package.
_MESSAGES: dict[str, tuple[str, str]] = {
    "error": (
        "InternalFailure",
        "The request processing has failed because of an unknown error, exception or failure.",
    ),
    "throttling": ("ThrottlingException", "Rate exceeded"),
    "capacity": (NOT_STABLE, NO_CAPACITY),
    "controller-capacity": (NOT_STABLE, NO_CAPACITY),
    "lifecycle": (
        NOT_STABLE,
        f'Instance i-0b66516c4a8bfcea4 failed to provision with the following error: "{SCRIPTS_FAILED}" Note that '
        "multiple instances may be impacted.",
    ),
    "unavailable": (
        NOT_STABLE,
        "unexpected state 'FAILED', wanted target 'AVAILABLE'. last error: %!s(<nil>)",
    ),
    "unreachable": (
        "Unreachable",
        "configured Kubernetes cluster is unreachable: unable to load schema information from the API server: "
        "dial tcp: i/o timeout",
    ),
    "expired": ("ExpiredTokenException", "The security token included in the request is expired"),
}
# Kinds that fail after AWS has accepted the request. The resource stays in a failed state: a HyperPod cluster has to be
# deleted before it can be created again (awslabs/awsome-distributed-ai, issues 186 and 204), unless it can go into
# service without what did not come (provisioning.py).
_LATE: frozenset[FaultKind] = frozenset({"capacity", "controller-capacity", "lifecycle", "unavailable"})
# What such a resource reports (SageMaker API Reference, DescribeCluster; Amazon EKS API Reference, Cluster).
_FAILED: Mapping[str, Mapping[str, str]] = {
    HYPERPOD_CLUSTER: {"clusterStatus": "Failed"},
    "aws:eks/cluster:Cluster": {"status": "FAILED"},
}


@dataclass
class Fault:
    """Something that fails: ``target`` is a type token, its last part, a resource's name, or TYPE::NAME; for capacity
    also an instance type, which AWS lacks when the cluster is made.

    ``count`` is how often it fails; a throttled request succeeds when the provider has retried often enough.
    ``nth`` counts creates over the whole account instead, from 1; from it on credentials that have expired fail every
    call. Out of reach is the Kubernetes API, for every object and every call. ``call`` is what fails otherwise.
    """

    target: str = ""
    kind: FaultKind = "error"
    count: int = 1_000_000
    nth: int | None = None
    call: Call = "create"
    hits: int = field(default=0, init=False)

    def strikes(self, call: Call, type_token: str, name: str, creates: int) -> bool:
        """Whether this fault hits this call. ``creates``: how many creates the account has seen, with this one."""
        if self.kind == "expired" and self.nth is not None:
            return creates >= self.nth
        if self.kind == "unreachable":
            return type_token.startswith("kubernetes:")
        if self.hits >= self.count or call != self.call:
            return False
        hit = (
            creates == self.nth
            if self.nth
            else (HYPERPOD_CLUSTER if self.of_type else self.target)
            in (
                type_token,
                type_token.rsplit(":", 1)[-1],
                name,
                f"{type_token}::{name}",
            )
        )
        self.hits += hit
        return hit

    @property
    def of_type(self) -> str:
        """The instance type that AWS lacks; empty if it is no matter of one type."""
        return self.target if self.kind == "capacity" and self.target.startswith("ml.") else ""

    @property
    def late(self) -> bool:
        """Whether the resource exists, in a failed state, when AWS reports the failure."""
        return self.kind in _LATE

    def error(self) -> Refused:
        """What AWS answers."""
        return Refused(*_MESSAGES[self.kind])

    def half_made(self, live: Live) -> HalfMade:
        """Mark a resource as failed. Returns what AWS answers."""
        live.outputs |= _FAILED.get(live.type, {})
        return HalfMade(self.error(), live.id, live.outputs)


def parse_fault(text: str) -> Fault:
    """``TARGET`` or ``TARGET=KIND``; ``#N`` as target is the Nth create. Raises ValueError."""
    target, separator, kind = text.partition("=")
    if not target or target == "#0" or (separator and kind not in _MESSAGES):
        kinds = ", ".join(_MESSAGES)
        raise ValueError(f"--fail {text}: not TARGET=KIND, as in hyperpod-cluster=capacity; KIND is one of {kinds}")
    chosen: FaultKind = kind or "error"  # type: ignore[assignment]
    if target.startswith("#") and target[1:].isdigit():
        return Fault(kind=chosen, nth=int(target[1:]))
    return Fault(target=target, kind=chosen, count=2 if chosen == "throttling" else 1_000_000)
