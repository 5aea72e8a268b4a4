"""What a resource was called before: the URNs by which the program says to find it in the last deployment's state.

As Pulumi's engine does ("Resource option: aliases"): what an alias leaves out is as it is now, and a resource has its
parent's earlier URNs in its own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from operations.engine.state import ResourceState

MakeUrn = Callable[[str, str, str], str]


class Aliases:
    """Renames what is in the last deployment's state under an earlier URN."""

    def __init__(self, old: dict[str, ResourceState], make_urn: MakeUrn) -> None:
        self._old, self._make_urn = old, make_urn
        self._earlier: dict[str, set[str]] = {}

    def settle(self, resource: ResourceState) -> None:
        """Give a resource that was there under another URN the one that it has now, wherever the state names it."""
        self._earlier[resource.urn] = set(self._urns(resource)) - {resource.urn}
        found = [urn for urn in sorted(self._earlier[resource.urn]) if urn in self._old]
        if found and resource.urn not in self._old:
            self._rename(found[0], resource.urn, resource.parent)

    def _urns(self, resource: ResourceState) -> Iterator[str]:
        parents = {resource.parent, *self._earlier.get(resource.parent, ())}
        for alias in ({}, *resource.options.get("aliases", ())):
            if "urn" in alias:
                yield alias["urn"]
                continue
            spec: Mapping[str, Any] = alias.get("spec", {})
            named = {spec["parentUrn"]} if "parentUrn" in spec else {""} if "noParent" in spec else parents
            for parent in named:
                yield self._make_urn(parent, spec.get("type", resource.type), spec.get("name", resource.name))

    def _rename(self, before: str, now: str, parent: str) -> None:
        def new(urn: str) -> str:
            return now if urn == before else urn

        for urn, one in list(self._old.items()):
            self._old[urn] = replace(
                one,
                parent=new(one.parent),
                deleted_with=new(one.deleted_with),
                dependencies=tuple(map(new, one.dependencies)),
                property_dependencies={key: tuple(map(new, urns)) for key, urns in one.property_dependencies.items()},
            )
        self._old[now] = replace(self._old.pop(before), urn=now, parent=parent)
