"""Checks the register's assumptions on a deployed stack.

What cannot be asked is unknown: a refused call refutes nothing.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jmespath
from botocore.exceptions import BotoCoreError, ClientError

from ..cluster import nodes as cluster_nodes
from ..cluster import sessions
from ..cluster.node import Node
from ..failures import Exit, Failure, described
from ..target import Target
from ..workspaces import query
from . import Assumption, Probe, Result

_SECONDS = 60
# The maximum length of an answer that is shown and sent in.
_MOST = 400
_ACCOUNT = re.compile(r"\b\d{12}\b")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a probe found. ``seen`` is the answer without account numbers; ``change`` is what to do if it refutes."""

    id: str
    result: Result
    claim: str
    seen: str
    change: str = ""


class Stack:
    """A deployed stack to ask."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def ask(self, row: Assumption) -> Finding:
        """Settle one row. Never raises because of an answer of AWS, a node or Kubernetes."""
        try:
            text = self._answer(row.probe)
            result = self._filled(row.probe).read(text)
        except (Failure, ClientError, BotoCoreError) as error:
            failure = described(error, self._target.stack)
            text, result = failure.message, "unknown"
        seen = _ACCOUNT.sub("ACCOUNT", " ".join(text.split()))[:_MOST]
        return Finding(
            id=row.id, result=result, claim=row.claim, seen=seen, change=row.change if result == "refuted" else ""
        )

    def _answer(self, probe: Probe) -> str:
        if probe.node:
            return self._on_node(probe)
        return picked(self._filled(probe), self._asked(probe))

    def _asked(self, probe: Probe) -> Any:
        if probe.kubernetes:
            return self._kubernetes(probe)
        return query(self._target, self._fill(probe.prometheus)) if probe.prometheus else self._aws(probe)

    def _on_node(self, probe: Probe) -> str:
        ran = sessions.run_remote(self._target, self._node(probe.node), self._fill(probe.command), timeout=_SECONDS)
        return printed(ran.output, ran.code)

    def _node(self, role: str) -> Node:
        running = [node for node in self._nodes if node.status == "Running" and role in ("any", node.role)]
        if not running:
            raise Failure(f"no {'node' if role == 'any' else role} is running")
        return running[0]

    @cached_property
    def _nodes(self) -> list[Node]:
        return cluster_nodes.list_nodes(self._target)

    def _kubernetes(self, probe: Probe) -> Any:
        api = cluster_nodes.kubernetes(self._target)
        return api.nodes() if probe.kubernetes == "nodes" else api.all_pods()

    def _aws(self, probe: Probe) -> Any:
        service, operation = probe.api.split()
        client = self._target.aws.client(service)
        arguments = self._fill(probe.arguments)
        if client.can_paginate(operation) and not _bounded(arguments):
            return client.get_paginator(operation).paginate(**arguments).build_full_result()
        return getattr(client, operation)(**arguments)

    def _filled(self, probe: Probe) -> Probe:
        return probe.model_copy(
            update={key: self._fill(getattr(probe, key)) for key in ("find", "confirmed", "refuted")}
        )

    def _fill(self, value: Any) -> Any:
        """The value with ``{cluster}`` and the like replaced."""
        if isinstance(value, Mapping):
            return {key: self._fill(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._fill(item) for item in value]
        if not isinstance(value, str):
            return value
        for name, known in VALUES.items():
            if f"{{{name}}}" in value:
                value = value.replace(f"{{{name}}}", known(self._target))
        return value


# The placeholders that rows may use.
VALUES: Mapping[str, Callable[[Target], str]] = {
    "account": lambda target: target.aws.account_id,
    "cluster": lambda target: target.cluster_name,
    "cluster_id": lambda target: target.cluster_id,
    "count": lambda target: str(target.config.worker_groups[0].count),
    "group": lambda target: target.config.worker_groups[0].name,
    "subnet": lambda target: str(target.cluster["VpcConfig"]["Subnets"][0]),
    "tag": lambda target: target.names.cluster_id,
}


def _bounded(arguments: Mapping[str, Any]) -> bool:
    """Whether a row asks for a limited number of answers."""
    return any(key.lower() in ("maxresults", "limit") for key in arguments)


def picked(probe: Probe, answer: Any) -> str:
    """The relevant part of an answer of AWS, Kubernetes or Prometheus, as text."""
    plain = json.loads(json.dumps(answer, default=str))
    return json.dumps(jmespath.search(probe.find, plain) if probe.find else plain, sort_keys=True)


def printed(output: str, code: int) -> str:
    """A command's output, and its exit code."""
    return f"{output}exit {code}"


def worst(findings: Sequence[Finding]) -> Exit:
    """The verb's exit code."""
    results = {finding.result for finding in findings}
    return Exit.FAILED if "refuted" in results else Exit.CANNOT_KNOW if "unknown" in results else Exit.GOOD
