"""``errors``: what went wrong with a stack, from every source."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from pulumi import automation

from components.common.names import events_log_group

from .. import records
from ..cluster.interfaces import in_the_way
from ..cluster.node_logs import lifecycle_logs
from ..engine.events import name_of
from ..failures import Failure, cannot_know, described, is_missing, reason
from ..failures.advice import next_step
from ..target import Target
from .cloudtrail import refused
from .engines import find_cli, open_cli

Item = TypeVar("Item")
_MOST_EVENTS = 1000
_MOST_DESCRIBED = 20
_BAD_STATES = frozenset({"Failed", "RollingBack"})
DEPLOYMENTS = "deployments"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that went wrong. ``source`` is where it was found; ``what`` is the resource, node or call."""

    time: datetime
    source: str
    what: str
    message: str
    next_step: str = ""


@dataclass
class Problems:
    """What was found, newest first, the sources that could not be queried, and what to do about the first of those."""

    found: list[Problem] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    next_step: str = ""

    def unasked(self) -> dict[str, list[str]]:
        """The sources that could not be queried, by the reason."""
        found: dict[str, list[str]] = {}
        for source, _, why in (line.partition(": ") for line in self.unknown):
            found.setdefault(why, []).append(source)
        return found


def collect(target: Target, since: timedelta, tell: Callable[[str], object] = lambda source: None) -> Problems:
    """Query every source, after telling its name.

    A source that cannot be queried is named in ``unknown``; the others are still queried.
    """
    problems = Problems()
    start = datetime.now(UTC) - since
    for source, look in _SOURCES:
        tell(source)
        try:
            for one in look(target, start):
                if one.time >= start:
                    problems.found.append(one)
        except (Failure, automation.CommandError, ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and is_missing(error):
                continue
            failure = described(error, target.stack)
            why = reason(error) if isinstance(error, ClientError | BotoCoreError) else failure.message
            problems.unknown.append(f"{source}: {why}")
            problems.next_step = problems.next_step or failure.hint
    problems.found.sort(key=lambda one: one.time, reverse=True)
    return problems


def _problem(target: Target, time: datetime, source: str, what: str, message: str) -> Problem:
    step = next_step(message, target.stack, "fix it, then deploy again: it continues where it stopped")
    if "DependencyViolation" in message:
        words, step = in_the_way(target, message)
        message = f"{message} ({words})"
    return Problem(time=time, source=source, what=what, message=message, next_step=step)


def _at_most(items: Iterator[Item], most: int, what: str) -> Iterator[Item]:
    """At most that many items, then a Failure if there are more."""
    for count, item in enumerate(items):
        if count == most:
            raise cannot_know(f"only {most} {what} were read: use a smaller --hours")
        yield item


def _deployments(target: Target, start: datetime) -> Iterator[Problem]:
    """Pulumi's: the first cause of each failed command, as ``deploy`` and ``destroy`` recorded it."""
    for record in records.read(target, DEPLOYMENTS):
        if cause := record.get("cause"):
            time = datetime.fromisoformat(record["time"])
            yield _problem(target, time, f"pulumi {record['command']}", cause["resource"] or "program", cause["text"])


def _state(target: Target, start: datetime) -> Iterator[Problem]:
    """Operations that an interrupted command left pending in Pulumi's state; none if no CLI is installed."""
    if find_cli() is None:
        return
    options = automation.LocalWorkspaceOptions(pulumi_command=open_cli())
    try:
        stack = automation.select_stack(target.stack, work_dir=str(target.project.folder), opts=options)
    except automation.StackNotFoundError:
        return
    for pending in (stack.export_stack().deployment or {}).get("pending_operations") or []:
        urn = pending["resource"]["urn"]
        message = f"{pending['type']} was interrupted: the resource may exist without being in Pulumi's state"
        step = f"pulumi refresh --stack {target.stack}    # answer its questions, then deploy again"
        yield Problem(time=datetime.now(UTC), source="pulumi state", what=name_of(urn), message=message, next_step=step)


def _cluster(target: Target, start: datetime) -> Iterator[Problem]:
    """What SageMaker reports about the cluster and its nodes now."""
    found = target.found_cluster
    if found is None:
        return
    now = datetime.now(UTC)
    if message := found.get("FailureMessage"):
        yield _problem(target, now, "SageMaker", f"cluster {found['ClusterStatus']}", message)
    nodes = target.aws.pages("sagemaker", "list_cluster_nodes", "ClusterNodeSummaries", ClusterName=target.cluster_name)
    for node in nodes:
        status = node["InstanceStatus"]
        if status["Status"] == "Failure" or (status.get("Message") and status["Status"] != "Running"):
            what = f"{node['InstanceGroupName']} {node['InstanceId']} {status['Status']}"
            yield _problem(target, now, "SageMaker", what, status.get("Message", "no message"))


def cluster_events(target: Target, start: datetime) -> Iterator[Problem]:
    """The cluster's events of level Error or Warn, each with its failure message.

    SageMaker has them only with continuous provisioning (SageMaker API Reference, ListClusterEvents), which new
    clusters have unasked (Developer Guide, "Continuous provisioning for enhanced cluster operations").
    """
    if (target.found_cluster or {}).get("NodeProvisioningMode") != "Continuous":
        return
    listed = target.aws.pages(
        "sagemaker",
        "list_cluster_events",
        "Events",
        ClusterName=target.cluster_name,
        EventTimeAfter=start,
        SortBy="EventTime",
        SortOrder="Descending",
    )
    bad = (event for event in listed if event.get("EventLevel", "Error") != "Info")
    for event in _at_most(bad, _MOST_DESCRIBED, "events"):
        what = event.get("InstanceId") or event.get("InstanceGroupName") or event["ClusterName"]
        message = f"{event.get('Description', '')} {_failure_of(target, event['EventId'])}".strip()
        yield _problem(target, event["EventTime"], "cluster event", f"{event['ResourceType']} {what}", message)


def _failure_of(target: Target, event_id: str) -> str:
    """The failure message, which only DescribeClusterEvent returns."""
    client = target.aws.client("sagemaker")
    found = client.describe_cluster_event(ClusterName=target.cluster_name, EventId=event_id)["EventDetails"]
    parts = found.get("EventDetails", {}).get("EventMetadata", {}).values()
    return next((str(part["FailureMessage"]) for part in parts if part.get("FailureMessage")), "")


def _recorded(target: Target, start: datetime) -> Iterator[Problem]:
    """State changes and node health that the stack's EventBridge rule records in a log group (hyperpod:validation)."""
    if not target.config.settings.validation:
        return
    group = events_log_group(target.cluster_name)
    events = target.aws.pages(
        "logs", "filter_log_events", "events", logGroupName=group, startTime=int(start.timestamp() * 1000)
    )
    for event in _at_most(events, _MOST_EVENTS, "events"):
        document = json.loads(event["message"])
        detail: dict[str, Any] = document["detail"]
        time = datetime.fromisoformat(document["time"])
        health: dict[str, str] = detail.get("HealthSummary", {})
        if health.get("HealthStatus", "Healthy") != "Healthy":
            message = f"{health.get('HealthStatusReason', '')} {health.get('Recommendation', '')}".strip()
            what = f"node {detail.get('InstanceId', '')} {health['HealthStatus']}"
            yield _problem(target, time, "node health", what, message)
        elif detail.get("ClusterStatus") in _BAD_STATES:
            message = detail.get("FailureMessage") or ", ".join(
                f"{group['InstanceGroupName']} {group.get('CurrentCount', 0)} of {group.get('TargetCount', 0)}"
                for group in detail.get("InstanceGroups", [])
            )
            yield _problem(target, time, "state change", f"cluster {detail['ClusterStatus']}", message)


def _trail(target: Target, start: datetime) -> Iterator[Problem]:
    """Calls that AWS refused. Equal refusals, for example of a repeated delete, are listed once."""
    times: dict[tuple[str, str], list[datetime]] = {}
    unseen: Failure | None = None
    try:
        for one in refused(target, start):
            times.setdefault((one.call, one.message), []).append(one.time)
    except Failure as error:
        unseen = error
    for (call, message), when in times.items():
        what = f"{call} ({len(when)} times)" if len(when) > 1 else call
        yield _problem(target, max(when), "CloudTrail", what, message)
    if unseen is not None:
        raise unseen


def _boots(target: Target, start: datetime) -> Iterator[Problem]:
    """Lifecycle scripts that failed."""
    for log in lifecycle_logs(target.aws, target.cluster_name):
        if log.failed:
            yield _problem(target, log.time, "lifecycle script", log.stream.split("/", 1)[1], log.lines[-1])


_Look = Callable[[Target, datetime], Iterator[Problem]]
_SOURCES: tuple[tuple[str, _Look], ...] = (
    ("pulumi", _deployments),
    ("pulumi state", _state),
    ("SageMaker", _cluster),
    ("cluster events", cluster_events),
    ("recorded events", _recorded),
    ("lifecycle logs", _boots),
    ("CloudTrail", _trail),
)
