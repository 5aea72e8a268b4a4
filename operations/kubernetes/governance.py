"""The cluster's policy for SageMaker's task governance: the priorities, and that teams share fairly.

The teams' compute quotas are resources of the stack (``components/kubernetes/teams/compute_quotas.py``). For the
policy, AWS::SageMaker::ClusterSchedulerConfig, pulumi-aws-native has no type up to 1.84.0, the newest of November 2026.
Each run brings the policy to what the program says; before a destroy it is removed.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.kubernetes.checks import quota_name
from components.kubernetes.teams.compute_quotas import DESCRIPTION

from ..failures import Failure, bad_input
from ..outcome import Outcome
from ..target import Target
from ..terminal.console import note

# CreateClusterSchedulerConfig, PriorityClass: weights of 0 to 100.
PRIORITIES = {"high": 90, "normal": 50, "low": 10}
_SETTLED = ("Created", "Updated")
# SageMaker Developer Guide, HyperPod task governance, "Troubleshoot", Policies: these must be deleted and made again,
# and a failed update is tried again.
_BEYOND_REPAIR = (
    "CreateFailed",
    "CreateRollbackFailed",
    "UpdateRollbackFailed",
    "DeleteFailed",
    "DeleteRollbackFailed",
)
_TRY_AGAIN = "UpdateFailed"
_PAUSE_SECONDS, _TIMEOUT_SECONDS = 5.0, 600.0


@dataclass(frozen=True)
class _Kind:
    """One of the two kinds, which have the same API under different names."""

    title: str
    operation: str

    @property
    def id_key(self) -> str:
        return f"{self.operation}Id"

    @property
    def snake(self) -> str:
        """As boto3 spells it."""
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.operation)

    def call(self, chosen: Target, verb: str, **arguments: Any) -> dict[str, Any]:
        """One of the kind's operations."""
        return dict(getattr(chosen.aws.client("sagemaker"), f"{verb}{self.snake}")(**arguments))

    def listed(self, chosen: Target, arn: str, **more: Any) -> Iterator[dict[str, Any]]:
        """The summaries of those of the cluster that are not deleted."""
        found = chosen.aws.pages(
            "sagemaker", f"list{self.snake}s", f"{self.operation}Summaries", ClusterArn=arn, **more
        )
        return (one for one in found if one["Status"] != "Deleted")


POLICY = _Kind("policy", "ClusterSchedulerConfig")
QUOTA = _Kind("quota", "ComputeQuota")


def wanted() -> dict[str, Any]:
    """The policy's configuration."""
    classes = [{"Name": name, "Weight": weight} for name, weight in PRIORITIES.items()]
    return {"PriorityClasses": classes, "FairShare": "Enabled"}


def apply(chosen: Target, dry_run: bool, pause: float = _PAUSE_SECONDS) -> Outcome:
    """Make the policy what the program says. Raises Failure where SageMaker cannot."""
    arn, name = _cluster(chosen), _policy_name(chosen)
    summary = _find(chosen, POLICY, arn, name) if dry_run else _at_rest(chosen, arn, name, pause)
    key = {POLICY.id_key: summary[POLICY.id_key]} if summary else {}
    found = POLICY.call(chosen, "describe", **key) if summary else {}
    if found.get("Status") in _SETTLED and _contains(found.get("SchedulerConfig"), wanted()):
        return Outcome()
    if not dry_run:
        if summary:
            version = found["ClusterSchedulerConfigVersion"]
            POLICY.call(chosen, "update", **key, TargetVersion=version, SchedulerConfig=wanted())
        else:
            key = POLICY.call(chosen, "create", Name=name, ClusterArn=arn, SchedulerConfig=wanted())
        _settle(chosen, key[POLICY.id_key], name, pause)
    return Outcome(changes=[f"{'update' if summary else 'create'} {POLICY.title} {name}"])


def remove(chosen: Target, pause: float = _PAUSE_SECONDS) -> list[str]:
    """Remove the policy, and quotas that this verb made until November 2026, and wait until they are gone: a cluster
    that has any cannot be deleted (the guide's "Troubleshoot"). The stack's own quotas stay, and go with it.
    """
    arn, name = _cluster(chosen), _policy_name(chosen)
    going = [(QUOTA, one) for one in _of_earlier_versions(chosen, arn)]
    going += [(POLICY, one) for one in POLICY.listed(chosen, arn, NameContains=name) if one["Name"] == name]
    for kind, one in going:
        if one["Status"] != "Deleting":
            kind.call(chosen, "delete", **{kind.id_key: one[kind.id_key]})
        _wait_for_end(chosen, kind, arn, one["Name"], pause)
    return [f"{kind.title} {one['Name']}" for kind, one in going]


def begin(chosen: Target) -> None:
    """Before a deploy: raise Failure where the cluster has quotas of the same teams that the stack does not own."""
    if not governs(chosen) or not chosen.found_cluster:
        return
    if names := [one["Name"] for one in _of_earlier_versions(chosen, _cluster(chosen))]:
        raise Failure(
            f"an earlier version of `hyperpod apply` made {', '.join(names)}, and the stack would make the same",
            f"while no job runs: hyperpod apply {chosen.stack} --remove-policy, and deploy again",
        )


def end(chosen: Target) -> list[str]:
    """``remove`` for a stack that is about to be destroyed, whatever it uses and however much of it is there.

    AWS would refuse only the cluster, after the namespaces and the add-on, without which none may go any more.
    """
    gone = remove(chosen) if governs(chosen) and chosen.found_cluster else []
    for what in gone:
        note(f"{what}: deleted")
    return gone


def governs(chosen: Target) -> bool:
    """Whether the stack uses SageMaker's task governance."""
    return chosen.on_eks and chosen.config.settings.charts.queues == "task-governance"


def _cluster(chosen: Target) -> str:
    """The ARN of the cluster. Raises Failure for a stack without task governance."""
    if not governs(chosen):
        raise bad_input(
            f"{chosen.stack} does not use task governance",
            "set hyperpod:charts.queues to task-governance and deploy, or use Kueue's own queues as they are",
        )
    return str(chosen.cluster["ClusterArn"])


def _policy_name(chosen: Target) -> str:
    return f"{chosen.config.settings.cluster_name}-policy"


def _of_earlier_versions(chosen: Target, arn: str) -> list[dict[str, Any]]:
    """Quotas with the name of a team's, that are not the stack's: also those of teams that are no more."""
    cluster = chosen.config.settings.cluster_name
    return [
        one
        for one in QUOTA.listed(chosen, arn)
        if one["Name"] == quota_name(cluster, one["ComputeQuotaTarget"]["TeamName"])
        and QUOTA.call(chosen, "describe", ComputeQuotaId=one["ComputeQuotaId"]).get("Description") != DESCRIPTION
    ]


def _at_rest(chosen: Target, arn: str, name: str, pause: float) -> dict[str, Any] | None:
    """The policy once SageMaker is done with it; None where there is none, or none that can be mended."""
    deadline, deleted = time.monotonic() + _TIMEOUT_SECONDS, False
    while time.monotonic() < deadline:
        summary = _find(chosen, POLICY, arn, name)
        if summary is None or summary["Status"] in (*_SETTLED, _TRY_AGAIN):
            return summary
        if summary["Status"] in _BEYOND_REPAIR:
            if deleted:
                break
            POLICY.call(chosen, "delete", **{POLICY.id_key: summary[POLICY.id_key]})
            deleted = True
        time.sleep(pause)
    raise Failure(f"{POLICY.title} {name} is {(summary or {}).get('Status')}", "delete it, then run this again")


def _find(chosen: Target, kind: _Kind, arn: str, name: str) -> dict[str, Any] | None:
    return next((one for one in kind.listed(chosen, arn, NameContains=name) if one["Name"] == name), None)


def _wait_for_end(chosen: Target, kind: _Kind, arn: str, name: str, pause: float) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while (summary := _find(chosen, kind, arn, name)) and time.monotonic() < deadline:
        if summary["Status"] in ("DeleteFailed", "DeleteRollbackFailed"):
            raise Failure(f"{kind.title} {name}: {summary['Status']}", "run this again")
        time.sleep(pause)
    if summary:
        raise Failure(f"{kind.title} {name} is still there after {_TIMEOUT_SECONDS:.0f} s", "run this again")


def _settle(chosen: Target, one: str, name: str, pause: float) -> None:
    """Wait until SageMaker has applied the policy to the cluster."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = POLICY.call(chosen, "describe", **{POLICY.id_key: one})
        if found["Status"] in _SETTLED:
            return
        if "Failed" in found["Status"]:
            raise Failure(
                f"{POLICY.title} {name}: {found.get('FailureReason', found['Status'])}",
                "is the add-on amazon-sagemaker-hyperpod-taskgovernance active? kubectl get pods -n kueue-system",
            )
        time.sleep(pause)
    raise Failure(f"{POLICY.title} {name} is not there after {_TIMEOUT_SECONDS:.0f} s")


def _contains(found: Any, part: Any) -> bool:
    """Whether everything of ``part`` is in ``found``, which SageMaker may have filled up."""
    if isinstance(part, Mapping):
        return isinstance(found, Mapping) and all(_contains(found.get(key), value) for key, value in part.items())
    if isinstance(part, list):
        return isinstance(found, list) and len(found) == len(part) and all(map(_contains, found, part))
    return bool(found == part)
