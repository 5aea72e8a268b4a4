"""``watch``: follows a cluster whose nodes are still to come, until all run or one of them cannot.

With continuous provisioning a deployment ends before the nodes are there (SageMaker Developer Guide, "Continuous
provisioning for enhanced cluster operations"). Missing capacity is waited for: HyperPod keeps requesting it.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from botocore.exceptions import BotoCoreError, ClientError

from .. import records
from ..cluster.node import Node
from ..cluster.node_logs import NodeLog, lifecycle_logs
from ..cluster.nodes import list_nodes
from ..engine.durations import clock
from ..engine.pulumi_cli import Cause
from ..engine.state import HYPERPOD_CLUSTER
from ..failures import Exit, reason
from ..failures.advice import next_step
from ..target import Target
from . import boots
from .errors import DEPLOYMENTS

# Seconds between two looks, and between two lines where nothing else is shown; a node takes minutes to boot.
_LOOK_SECONDS, _QUIET_SECONDS = 15.0, 5.0
# After so many looks in a row that AWS did not answer, its error ends the verb.
_MOST_UNANSWERED = 4
_SKEW = timedelta(minutes=1)
# SageMaker API Reference, DescribeCluster and ClusterInstanceStatusDetails.
_BROKEN = ("Failed", "RollingBack")


@dataclass
class Watched:
    """How it ended. ``nodes`` has for each group how many run and how many are wanted; ``cause`` is what failed.

    ``seconds`` have passed. Without a cause, incomplete means that the time was over.
    """

    stack: str
    complete: bool = False
    seconds: float = 0.0
    nodes: dict[str, tuple[int, int]] = field(default_factory=dict)
    cause: Cause | None = None
    node_logs: list[NodeLog] = field(default_factory=list)
    next_step: str = ""

    @property
    def code(self) -> Exit:
        """The verb's exit code: 0 where every node runs."""
        return Exit.GOOD if self.complete else Exit.FAILED


def begun(target: Target) -> datetime:
    """When the last update of this folder began, an hour ago where none is known: older failures are not its own."""
    last = next((one for one in reversed(records.read(target, DEPLOYMENTS)) if one["command"] == "up"), None)
    if last is None:
        return datetime.now(UTC) - timedelta(hours=1)
    return datetime.fromisoformat(last["time"]) - timedelta(seconds=last.get("seconds", 0.0)) - _SKEW


class Watch:
    """Looks at a cluster again and again. ``say`` gets a line for each change, ``beat`` how it stands meanwhile."""

    def __init__(self, target: Target, say: Callable[[str], None], beat: Callable[[str], None]) -> None:
        self._target, self._say, self._beat = target, say, beat
        self._since = begun(target)
        self._told: set[str] = set()
        self._states: dict[str, str] = {}
        self.result = Watched(stack=target.stack)

    def run(self, limit: float) -> Watched:
        """Look until the end, ``limit`` seconds at most. Raises what AWS says if it does not answer."""
        began, unanswered, done = time.monotonic(), 0, False
        while not done:
            try:
                done, unanswered = self._look(), 0
            except (ClientError, BotoCoreError) as error:
                unanswered += 1
                # The first look shows whether the verb can ask at all.
                if not self.result.nodes or unanswered == _MOST_UNANSWERED:
                    raise
                self._say(f"AWS did not answer: {reason(error)}")
            until = min(time.monotonic() + _LOOK_SECONDS, began + limit)
            self.result.seconds = time.monotonic() - began
            done = done or self.result.seconds >= limit
            while not done and (left := until - time.monotonic()) > 0:
                self._beat(f"{self._standing()} after {clock(time.monotonic() - began)}")
                time.sleep(min(left, _QUIET_SECONDS))
        return self._explained()

    def _standing(self) -> str:
        return ", ".join(f"{group} {there} of {wanted}" for group, (there, wanted) in self.result.nodes.items())

    def _look(self) -> bool:
        """Ask once; whether there is nothing more to wait for."""
        asked = datetime.now(UTC)
        self._target.changed()
        found = list_nodes(self._target)
        cluster = self._target.cluster
        self._tell_nodes(found)
        running = Counter(node.group for node in found if node.status == "Running")
        wanted = {one["InstanceGroupName"]: int(one.get("TargetCount", 0)) for one in cluster["InstanceGroups"]}
        self.result.nodes = {group: (running[group], count) for group, count in wanted.items()}
        troubles = boots.events(self._target, self._since)
        self.result.cause = boots.cause(self._target, troubles) or self._broken(found)
        self._since = max(self._since, asked - _SKEW)
        for one in troubles:
            self._tell(f"{one.what}: {one.message}")
        if self.result.cause is not None:
            return True
        complete = all(running[group] >= count for group, count in wanted.items())
        self.result.complete = complete and cluster["ClusterStatus"] == "InService"
        if not self.result.complete:
            for log in lifecycle_logs(self._target.aws, self._target.cluster_name, 1):
                self._tell(f"{log.stream}: {log.lines[-1]}")
        return self.result.complete

    def _broken(self, found: Sequence[Node]) -> Cause | None:
        """What SageMaker itself calls failed."""
        cluster, name = self._target.cluster, self._target.cluster_name
        texts = [f"{node.name} {node.instance_id}: {node.message}" for node in found if node.status == "Failure"]
        if cluster["ClusterStatus"] in _BROKEN:
            texts.insert(0, f"cluster {cluster['ClusterStatus']}: {cluster.get('FailureMessage', '')}")
        return Cause(text=texts[0], resource=name, type=HYPERPOD_CLUSTER) if texts else None

    def _tell_nodes(self, found: Sequence[Node]) -> None:
        states = {f"{node.group} {node.instance_id}": node.status for node in found}
        new = not self.result.nodes
        for name, status in states.items():
            # What ran before the watch is counted, not told.
            if status != (before := self._states.get(name)) and not (new and status == "Running"):
                self._say(f"{name}: {f'{before} -> ' if before else ''}{status}")
        for name in self._states.keys() - states.keys():
            self._say(f"{name}: gone")
        self._states = states

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._say(line)

    def _explained(self) -> Watched:
        result, stack = self.result, self._target.stack
        if result.cause is not None:
            result.next_step = next_step(result.cause.text, stack, f"hyperpod errors {stack}")
            result.node_logs = [
                log for log in lifecycle_logs(self._target.aws, self._target.cluster_name) if log.failed
            ]
        elif result.complete:
            result.next_step = f"hyperpod validate {stack}"
        else:
            result.next_step = f"hyperpod errors {stack} says what keeps the nodes; hyperpod watch {stack} waits on"
        return result
