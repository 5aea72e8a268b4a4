"""The resources of a rehearsal's result: their components, their order and the critical path."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# A bridged provider's "index" types have a slash ("random:index/randomId:RandomId"), a component's do not.
COMPONENT_TYPE = re.compile(r"[^:]+:index:[^:/]+$|awsx:|kubernetes:(helm\.sh/v4:Chart|yaml|kustomize)")
TOP_LEVEL = "(top level)"


@dataclass
class Node:
    """One cloud resource. ``operation``: what a change did to it. ``failed``: the operation on it that failed."""

    name: str
    type: str
    start: float
    finish: float
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

    def enclosing(urn: str) -> str:
        """The innermost component around a resource; empty for none."""
        while (urn := by_urn[urn].get("parent") or "") in by_urn:
            if urn in components:
                return urn
        return ""

    nodes: list[Node] = []
    groups: dict[str, Group] = {}
    for urn, resource in by_urn.items():
        if urn in components or resource["type"].startswith("pulumi:"):
            continue
        start = float(resource.get("start") or 0.0)
        finish = max(start, float(resource.get("finish") or 0.0))
        node = Node(str(resource["name"]), str(resource["type"]), start, finish)
        node.failed, node.operation = str(resource.get("failed") or ""), str(resource.get("operation") or "")
        nodes.append(node)
        # The innermost component's name, which begins with those of the components around it.
        group = enclosing(urn)
        label = str(by_urn[group]["name"]) if group else TOP_LEVEL
        groups.setdefault(group, Group(label)).nodes.append(node)
    for each in groups.values():
        each.nodes.sort(key=lambda node: (node.start, node.finish, node.name))
    return nodes, sorted(groups.values(), key=lambda each: (each.start, each.finish, each.label))


def critical_nodes(nodes: Sequence[Node], path: Iterable[str]) -> list[Node]:
    """Marks and returns the critical path. Of several with one name, it takes what ends before the next begins."""
    found: list[Node] = []
    for name in reversed(list(path)):
        named = [node for node in nodes if node.name == name]
        earlier = [node for node in named if not found or node.finish <= found[-1].start]
        chosen = max(earlier or named, key=lambda node: node.finish, default=None)
        if chosen:
            chosen.critical = True
            found.append(chosen)
    return found[::-1]
