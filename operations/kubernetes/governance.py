"""``governance``: SageMaker's task governance for the stack: the cluster's policy, and a compute quota for each team.

Neither CloudFormation nor Cloud Control supports them, so the stack cannot own them. Each run brings them to the
configuration; before a destroy they are removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.config import Config
from components.config.kubernetes_checks import quota_name
from components.kubernetes.queues import shares
from stack.failures import Failure, bad_input

from ..console import note
from ..target import Target

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


@dataclass(frozen=True, kw_only=True)
class Change:
    """What was done to a policy or quota: created, updated, unchanged or deleted."""

    what: str
    done: str


@dataclass(frozen=True)
class _Kind:
    """One of the two kinds, which have the same API under different names."""

    title: str
    operation: str
    key: str
    summaries: str

    @property
    def id_key(self) -> str:
        return f"{self.operation}Id"

    @property
    def version_key(self) -> str:
        return f"{self.operation}Version"

    @property
    def snake(self) -> str:
        """As boto3 spells it."""
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.operation)

    def call(self, chosen: Target, verb: str, **arguments: Any) -> dict[str, Any]:
        """One of the kind's operations."""
        return dict(getattr(chosen.aws.client("sagemaker"), f"{verb}{self.snake}")(**arguments))


POLICY = _Kind("policy", "ClusterSchedulerConfig", "SchedulerConfig", "ClusterSchedulerConfigSummaries")
QUOTA = _Kind("quota", "ComputeQuota", "ComputeQuotaConfig", "ComputeQuotaSummaries")


def wanted(config: Config) -> Iterator[tuple[_Kind, str, dict[str, Any], dict[str, Any]]]:
    """Kind, name, configuration, and what else a create needs; the policy first."""
    cluster = config.settings.cluster_name
    classes = [{"Name": name, "Weight": weight} for name, weight in PRIORITIES.items()]
    yield POLICY, f"{cluster}-policy", {"PriorityClasses": classes, "FairShare": "Enabled"}, {}
    totals: dict[str, int] = {}
    for group in config.training_groups:
        totals[group.type.name] = totals.get(group.type.name, 0) + group.count * group.type.accelerators
    teams = {team.name: team.accelerators for team in config.settings.namespaces}
    for team, share in shares(teams, sum(totals.values())).items():
        resources = [{"InstanceType": kind, "Accelerators": int(n * share + 1e-9)} for kind, n in totals.items()]
        quota = {
            "ComputeQuotaResources": resources,
            "ResourceSharingConfig": {"Strategy": "LendAndBorrow", "BorrowLimit": 500},
            "PreemptTeamTasks": "LowerPriority",
        }
        yield QUOTA, quota_name(cluster, team), quota, {"ComputeQuotaTarget": {"TeamName": team, "FairShareWeight": 50}}


def apply(chosen: Target, pause: float = _PAUSE_SECONDS) -> list[Change]:
    """Make policy and quotas what the configuration says. Raises Failure where SageMaker cannot."""
    _require(chosen)
    arn = str(chosen.cluster["ClusterArn"])
    changes = list(_drop_quotas_of_others(chosen, arn, pause))
    for kind, name, configuration, more in wanted(chosen.config):
        summary = _at_rest(chosen, kind, arn, name, pause)
        if summary is None:
            made = kind.call(chosen, "create", Name=name, ClusterArn=arn, **{kind.key: configuration}, **more)
            _settle(chosen, kind, made[kind.id_key], name, pause)
            changes.append(Change(what=f"{kind.title} {name}", done="created"))
            continue
        found = kind.call(chosen, "describe", **{kind.id_key: summary[kind.id_key]})
        if found["Status"] != _TRY_AGAIN and _contains(found.get(kind.key) or {}, configuration):
            changes.append(Change(what=f"{kind.title} {name}", done="unchanged"))
            continue
        version = found[kind.version_key]
        kind.call(
            chosen,
            "update",
            **{kind.id_key: summary[kind.id_key], "TargetVersion": version, kind.key: configuration},
        )
        _settle(chosen, kind, summary[kind.id_key], name, pause)
        changes.append(Change(what=f"{kind.title} {name}", done="updated"))
    return changes


def remove(chosen: Target, pause: float = _PAUSE_SECONDS) -> list[Change]:
    """Remove the quotas, then the policy, with the names that the configuration gives, and wait until they are gone:
    a cluster that has any cannot be deleted (the guide's "Troubleshoot").
    """
    _require(chosen)
    arn = str(chosen.cluster["ClusterArn"])
    changes = list(_drop_quotas_of_others(chosen, arn, pause))
    for kind, name, _, _ in reversed(list(wanted(chosen.config))):
        if summary := _find(chosen, kind, arn, name):
            if summary["Status"] != "Deleting":
                kind.call(chosen, "delete", **{kind.id_key: summary[kind.id_key]})
            _wait_for_end(chosen, kind, arn, name, pause)
            changes.append(Change(what=f"{kind.title} {name}", done="deleted"))
    return changes


def end(chosen: Target) -> list[Change]:
    """``remove`` for a stack that is about to be destroyed, whatever it uses and however much of it is there.

    AWS would refuse only the cluster, after the namespaces and the add-on, without which no quota may go any more.
    """
    governed = chosen.on_eks and chosen.config.settings.charts.queues == "task-governance"
    changes = remove(chosen) if governed and chosen.found_cluster else []
    for change in changes:
        note(f"{change.what}: {change.done}")
    return changes


def _require(chosen: Target) -> None:
    if not chosen.on_eks or chosen.config.settings.charts.queues != "task-governance":
        raise bad_input(
            f"{chosen.stack} does not use task governance",
            "set hyperpod:charts.queues to task-governance and deploy, or use Kueue's own queues as they are",
        )


def _drop_quotas_of_others(chosen: Target, arn: str, pause: float) -> Iterator[Change]:
    """Delete what earlier runs made for teams that are no more: it would keep devices from the others, and a cluster
    with quotas cannot be deleted.
    """
    cluster, here = chosen.config.settings.cluster_name, {name for _, name, _, _ in wanted(chosen.config)}
    for one in chosen.aws.pages("sagemaker", f"list{QUOTA.snake}s", QUOTA.summaries, ClusterArn=arn):
        ours = one["Name"] == quota_name(cluster, one["ComputeQuotaTarget"]["TeamName"])
        if ours and one["Name"] not in here and one["Status"] not in ("Deleting", "Deleted"):
            QUOTA.call(chosen, "delete", **{QUOTA.id_key: one[QUOTA.id_key]})
            _wait_for_end(chosen, QUOTA, arn, one["Name"], pause)
            yield Change(what=f"{QUOTA.title} {one['Name']}", done="deleted")


def _at_rest(chosen: Target, kind: _Kind, arn: str, name: str, pause: float) -> dict[str, Any] | None:
    """The one of this name once SageMaker is done with it; None where there is none, or none that can be mended."""
    deadline, deleted = time.monotonic() + _TIMEOUT_SECONDS, False
    while time.monotonic() < deadline:
        summary = _find(chosen, kind, arn, name)
        if summary is None or summary["Status"] in (*_SETTLED, _TRY_AGAIN):
            return summary
        if summary["Status"] in _BEYOND_REPAIR:
            if deleted:
                break
            kind.call(chosen, "delete", **{kind.id_key: summary[kind.id_key]})
            deleted = True
        time.sleep(pause)
    raise Failure(f"{kind.title} {name} is {(summary or {}).get('Status')}", "delete it, then run this again")


def _find(chosen: Target, kind: _Kind, arn: str, name: str) -> dict[str, Any] | None:
    listed = chosen.aws.pages("sagemaker", f"list{kind.snake}s", kind.summaries, ClusterArn=arn, NameContains=name)
    return next((one for one in listed if one["Name"] == name and one["Status"] != "Deleted"), None)


def _wait_for_end(chosen: Target, kind: _Kind, arn: str, name: str, pause: float) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while (summary := _find(chosen, kind, arn, name)) and time.monotonic() < deadline:
        if summary["Status"] in ("DeleteFailed", "DeleteRollbackFailed"):
            raise Failure(f"{kind.title} {name}: {summary['Status']}", "run this again")
        time.sleep(pause)
    if summary:
        raise Failure(f"{kind.title} {name} is still there after {_TIMEOUT_SECONDS:.0f} s", "run this again")


def _settle(chosen: Target, kind: _Kind, one: str, name: str, pause: float) -> None:
    """Wait until SageMaker has applied it to the cluster."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = kind.call(chosen, "describe", **{kind.id_key: one})
        if found["Status"] in _SETTLED:
            return
        if "Failed" in found["Status"]:
            raise Failure(
                f"{kind.title} {name}: {found.get('FailureReason', found['Status'])}",
                "is the add-on amazon-sagemaker-hyperpod-taskgovernance active? kubectl get pods -n kueue-system",
            )
        time.sleep(pause)
    raise Failure(f"{kind.title} {name} is not there after {_TIMEOUT_SECONDS:.0f} s")


def _contains(found: Any, part: Any) -> bool:
    """Whether everything of ``part`` is in ``found``, which SageMaker may have filled up."""
    if isinstance(part, Mapping):
        return isinstance(found, Mapping) and all(_contains(found.get(key), value) for key, value in part.items())
    if isinstance(part, list):
        return isinstance(found, list) and len(found) == len(part) and all(map(_contains, found, part))
    return bool(found == part)
