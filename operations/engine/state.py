"""What a deployment knows about its resources, like the engine's state file."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

STACK_TYPE = "pulumi:pulumi:Stack"
PROVIDER_PREFIX = "pulumi:providers:"
# Stands for a secret output wherever outputs are shown.
SECRET = "[secret]"
HYPERPOD_CLUSTER = "aws-native:sagemaker:Cluster"


@dataclass
class ResourceState:
    """One resource. ``start`` and ``finish`` are virtual seconds; ``dependencies`` are URNs.

    ``deleted_with``: the URN of the resource whose deletion takes this one along. ``property_dependencies``: the URNs
    that each input comes from. ``unsure``: its last creation or update failed, so that its inputs are what was wanted
    and perhaps not what is there. ``half_made``: it was its creation, which AWS had accepted. ``delete_first``: where
    it is replaced, the old one goes before the new one comes. ``options``: what else the program asked of the engine,
    by the names of its protocol (aliases, customTimeouts, ...). ``external``: the program only reads it.
    """

    urn: str
    type: str
    name: str
    custom: bool
    parent: str
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    dependencies: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    protect: bool = False
    retain: bool = False
    deleted_with: str = ""
    unsure: bool = False
    half_made: bool = False
    property_dependencies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ignore_changes: tuple[str, ...] = ()
    delete_first: bool = False
    external: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    start: float = 0.0
    finish: float = 0.0

    @property
    def in_account(self) -> bool:
        """Whether the stack has it in the account: false for components, providers, the stack and what is only read."""
        return self.custom and not self.external and not self.type.startswith(PROVIDER_PREFIX)

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        keys = ("urn", "type", "name", "parent", "start", "finish")
        return {key: getattr(self, key) for key in keys} | {"dependencies": list(self.dependencies)}


State = dict[str, ResourceState]


def texts(value: Any) -> Iterator[str]:
    """Every text in a resource's inputs or outputs."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from texts(one)


def tags_of(inputs: Mapping[str, Any]) -> dict[str, str]:
    """A resource's tags, the provider's default ones included."""
    own = inputs.get("tags") or {}
    plain = {one["key"]: one["value"] for one in own} if isinstance(own, list | tuple) else dict(own)
    return {**(inputs.get("tagsAll") or {}), **plain}


def members(state: Mapping[str, ResourceState], urn: str) -> Iterable[ResourceState]:
    """A resource and everything below it."""
    yield state[urn]
    for child in state.values():
        if child.parent == urn:
            yield from members(state, child.urn)


def finish_of(state: Mapping[str, ResourceState], urns: Iterable[str]) -> float:
    """When the last of these is done, including everything below components."""
    return max((m.finish for urn in urns if urn in state for m in members(state, urn)), default=0.0)


def critical_path(state: Mapping[str, ResourceState]) -> list[ResourceState]:
    """The chain of resources, first to last, that decides how long the deployment takes."""
    done = [resource for resource in state.values() if resource.in_account]
    if not done:
        return []
    path = [max(done, key=lambda r: r.finish)]
    while path[0].start > 0:
        before = [member for urn in path[0].dependencies if urn in state for member in members(state, urn)]
        path.insert(0, max(before, key=lambda r: r.finish))
    # Providers take no time, but what needs one waits for what the provider needs.
    return [resource for resource in path if resource.in_account]


def deletion_order(state: Mapping[str, ResourceState]) -> list[ResourceState]:
    """Dependents before what they depend on, children before parents: the reverse of how they were made."""
    order: list[ResourceState] = []
    # Not by URN: what is being replaced has that of its replacement.
    seen: set[int] = set()

    def visit(resource: ResourceState) -> None:
        if id(resource) in seen:
            return
        seen.add(id(resource))
        for urn in (*resource.dependencies, resource.parent):
            if urn in state:
                visit(state[urn])
        order.append(resource)

    for resource in state.values():
        visit(resource)
    return order[::-1]
