"""The resources of a rehearsal's result: their components, their order and the critical path."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

from operations.engine.state import PROVIDER_PREFIX

# A bridged provider's "index" types have a slash ("random:index/randomId:RandomId"), a component's do not.
COMPONENT_TYPE = re.compile(r"[^:]+:index:[^:/]+$|awsx:|kubernetes:(helm\.sh/v4:Chart|yaml|kustomize)")
TOP_LEVEL = "(top level)"


@dataclass
class Node:
    """One cloud resource; ``id`` is its index in the page, ``group`` the URN of its innermost component.

    ``operation``: what a change did to it. ``failed``: the operation on it that failed.
    """

    id: int
    name: str
    type: str
    group: str
    start: float
    finish: float
    deps: set[int] = field(default_factory=set)
    ancestors: set[int] = field(default_factory=set)
    depth: int = 0
    critical: bool = False
    failed: str = ""
    operation: str = ""


@dataclass
class Group:
    """One component with its resources."""

    label: str
    nodes: list[Node] = field(default_factory=list)

    @property
    def start(self) -> float:
        """When its first resource begins."""
        return min(node.start for node in self.nodes)

    @property
    def finish(self) -> float:
        """When its last resource is done."""
        return max(node.finish for node in self.nodes)


def read(resources: Sequence[Mapping[str, Any]]) -> tuple[list[Node], list[Group]]:
    """The cloud resources, and their components by start."""
    by_urn = {resource["urn"]: resource for resource in resources}
    components = {urn for urn, resource in by_urn.items() if COMPONENT_TYPE.match(resource["type"])}

    def enclosing(urn: str) -> list[str]:
        """The components around a resource, innermost first."""
        found = []
        while (urn := by_urn[urn].get("parent") or "") in by_urn:
            if urn in components:
                found.append(urn)
        return found

    leaves = [r for u, r in by_urn.items() if u not in components and not r["type"].startswith("pulumi:")]
    ids = {resource["urn"]: index for index, resource in enumerate(leaves)}
    chains = [enclosing(resource["urn"]) for resource in leaves]
    members: dict[str, set[int]] = defaultdict(set)
    for index, chain in enumerate(chains):
        for component in chain:
            members[component].add(index)

    nodes: list[Node] = []
    groups: dict[str, Group] = {}
    for index, (resource, chain) in enumerate(zip(leaves, chains, strict=True)):
        start = float(resource.get("start") or 0.0)
        finish = max(start, float(resource.get("finish") or 0.0))
        group = chain[0] if chain else ""
        node = Node(index, str(resource["name"]), str(resource["type"]), group, start, finish)
        node.failed, node.operation = str(resource.get("failed") or ""), str(resource.get("operation") or "")
        for urn in _direct(resource, by_urn):
            if urn in ids:
                node.deps.add(ids[urn])
            elif urn not in chain:
                # Waiting for a component means waiting for its children so far. Later children may wait in turn.
                node.deps |= {each for each in members[urn] if float(leaves[each].get("finish") or 0.0) <= start}
        node.deps.discard(index)
        nodes.append(node)
        # The innermost component's name, which begins with those of the components around it.
        label = str(by_urn[group]["name"]) if group else TOP_LEVEL
        groups.setdefault(group, Group(label)).nodes.append(node)

    for index in TopologicalSorter({node.id: node.deps for node in nodes}).static_order():
        node = nodes[index]
        node.ancestors = node.deps.union(*(nodes[dep].ancestors for dep in node.deps))
        node.depth = 1 + max((nodes[dep].depth for dep in node.deps), default=-1)
    for each in groups.values():
        each.nodes.sort(key=lambda node: (node.start, node.finish, node.name))
    return nodes, sorted(groups.values(), key=lambda each: (each.start, each.finish, each.label))


def _direct(resource: Mapping[str, Any], by_urn: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """What a resource waits for. A provider takes no time, but waits in turn: for the cluster that it talks to."""
    for urn in resource.get("dependencies") or []:
        if urn in by_urn and by_urn[urn]["type"].startswith(PROVIDER_PREFIX):
            yield from _direct(by_urn[urn], by_urn)
        else:
            yield urn


def critical_nodes(nodes: Sequence[Node], path: Iterable[str]) -> list[Node]:
    """Marks and returns the critical path. If resources of several types share a name, the linked ones count."""
    found: list[Node] = []
    for name in reversed(list(path)):
        named = [node for node in nodes if node.name == name]
        linked = [node for node in named if not found or node.id in found[-1].ancestors]
        chosen = max(linked or named, key=lambda node: node.finish, default=None)
        if chosen:
            chosen.critical = True
            found.append(chosen)
    return found[::-1]
