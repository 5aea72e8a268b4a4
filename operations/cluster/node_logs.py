"""The output of the nodes' lifecycle scripts: HyperPod keeps it in CloudWatch, even for clusters that never came up."""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from ..aws import Aws

# SageMaker Developer Guide, "Cluster resiliency", logs: /aws/sagemaker/Clusters/<name>/<id>, and in it
# LifecycleConfig/<group>/<instance>.
GROUP_PREFIX = "/aws/sagemaker/Clusters/"
STREAM_PREFIX = "LifecycleConfig/"
# There is a log stream for each node; the first failed nodes are enough to see why.
_MOST_STREAMS = 3
_LOOKED_AT = 50


@dataclass(frozen=True, kw_only=True)
class NodeLog:
    """The end of one node's log, and when it was written. ``stream`` has the group and the instance id."""

    stream: str
    lines: tuple[str, ...]
    time: datetime

    @property
    def failed(self) -> bool:
        """Whether the script reports a failure: its last line then names the step."""
        return bool(self.lines) and any(word in self.lines[-1].lower() for word in ("fail", "error", "exit"))


def log_group(aws: Aws, cluster_name: str) -> str | None:
    """The newest log group of clusters of that name, None where there is none."""
    groups = aws.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=f"{GROUP_PREFIX}{cluster_name}/")
    newest = max(groups, key=lambda group: group.get("creationTime", 0), default=None)
    return str(newest["logGroupName"]) if newest else None


def lifecycle_logs(aws: Aws, cluster_name: str, lines: int = 12) -> list[NodeLog]:
    """The last lines of the nodes' lifecycle scripts, those that failed first. Empty where no node ever booted."""
    group = log_group(aws, cluster_name)
    if group is None:
        return []
    streams = aws.pages(
        "logs", "describe_log_streams", "logStreams", logGroupName=group, logStreamNamePrefix=STREAM_PREFIX
    )
    found = [_tail(aws, group, str(stream["logStreamName"]), lines) for stream in islice(streams, _LOOKED_AT)]
    written = [log for log in found if log.lines]
    return sorted(written, key=lambda log: (not log.failed, log.stream))[:_MOST_STREAMS]


def _tail(aws: Aws, group: str, stream: str, lines: int) -> NodeLog:
    events = aws.client("logs").get_log_events(
        logGroupName=group, logStreamName=stream, limit=lines, startFromHead=False
    )["events"]
    milliseconds = max((event["timestamp"] for event in events), default=0)
    return NodeLog(
        stream=stream,
        lines=tuple(str(event["message"]).rstrip() for event in events),
        time=datetime.fromtimestamp(milliseconds / 1000, UTC),
    )
