"""Watches the nodes boot while a deployment waits for them: the first script that fails is its cause, and said at once.

A cluster with continuous provisioning is in service without the nodes whose scripts fail. HyperPod makes them again and
again, at their price, and what needs nodes only times out much later (SageMaker Developer Guide, "Continuous
provisioning for enhanced cluster operations").
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType

from botocore.exceptions import BotoCoreError, ClientError

from ..cluster.node_logs import lifecycle_logs
from ..engine.pulumi_cli import Cause
from ..engine.state import HYPERPOD_CLUSTER
from ..failures import Failure
from ..target import Target
from . import errors

# Seconds between two looks; a node takes minutes to boot.
_SECONDS = 60.0
_LEAVES_SECONDS = 2.0
# SageMaker Developer Guide, "SageMaker HyperPod cluster events reference", and the message of an instance.
_FAILED = re.compile(
    r"lifecycle scripts?\b.*(fail|did not run successfully)|fail.*lifecycle script"
    r"|nodes did not become ready within the expected time",
    re.IGNORECASE | re.DOTALL,
)
# AWS's clock and this machine's differ.
_SKEW = timedelta(minutes=1)


class Boots:
    """Asks for the cluster's events until the first script has failed. Use as a context manager; ``found`` is that.

    ``offer``, where given, is called then, on a thread of its own; its event is set when there is no more to stop.
    """

    def __init__(
        self, target: Target, say: Callable[[str], None], offer: Callable[[threading.Event], None] | None = None
    ) -> None:
        self.found: Cause | None = None
        self._target, self._say, self._offer = target, say, offer
        self._since = datetime.now(UTC) - _SKEW
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Boots:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        # An open question ends at once; what AWS is being asked is not waited for.
        self._thread.join(_LEAVES_SECONDS)

    def _watch(self) -> None:
        while self.found is None and not self._ended.wait(_SECONDS):
            # What cannot be asked now may answer a minute later, and Pulumi itself says what fails for good.
            try:
                self.found = first(self._target, self._since)
            except (Failure, ClientError, BotoCoreError):
                continue
            if self.found is not None:
                self._say(f"{self.found} (Ctrl-C stops the deployment; HyperPod keeps making such nodes, at your cost)")
                if self._offer is not None and not self._ended.is_set():
                    self._offer(self._ended)


def first(target: Target, since: datetime) -> Cause | None:
    """The first lifecycle script that has failed since then, with the line of its log that names the step."""
    target.changed()
    return cause(target, events(target, since))


def events(target: Target, since: datetime) -> list[errors.Problem]:
    """The cluster's events of trouble since then, oldest first: of too many the newest."""
    found: list[errors.Problem] = []
    with suppress(Failure):
        for one in errors.cluster_events(target, since):
            found.append(one)  # noqa: PERF402 (what came before the Failure counts)
    return sorted(found, key=lambda one: one.time)


def cause(target: Target, troubles: Iterable[errors.Problem]) -> Cause | None:
    """The first of these that waiting does not fix: a lifecycle script has failed, with its log's last line."""
    event = next((one for one in troubles if _FAILED.search(one.message)), None)
    if event is None:
        return None
    logs = [log for log in lifecycle_logs(target.aws, target.cluster_name) if log.failed]
    logs.sort(key=lambda log: log.stream.rpartition("/")[2] not in event.what)
    text = "; ".join([f"{event.what}: {event.message}", *(f"{log.stream}: {log.lines[-1]}" for log in logs[:1])])
    return Cause(text=text, resource=target.cluster_name, type=HYPERPOD_CLUSTER)
