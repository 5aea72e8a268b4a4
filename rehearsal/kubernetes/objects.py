"""The program's Kubernetes resources from a deployment's state: Helm releases and objects, in order."""

from dataclasses import dataclass, field
from typing import Any

from operations.engine.state import HYPERPOD_CLUSTER, ResourceState, State, deletion_order

from . import addons
from .kubectl import Manifest

_PREFIX = "kubernetes:"
_RELEASE = "kubernetes:helm.sh/v3:Release"


@dataclass(frozen=True, kw_only=True)
class Release:
    """A Helm release. ``timeout`` is in seconds; ``wait``: whether to wait until its pods are ready."""

    name: str
    namespace: str
    chart: str
    values: dict[str, Any] = field(default_factory=dict)
    wait: bool = True
    timeout: int = 300
    create_namespace: bool = False
    skip_crds: bool = False
    take_ownership: bool = False


@dataclass(frozen=True)
class Step:
    """One resource of the program. Exactly one of release and manifest is set."""

    name: str
    release: Release | None = None
    manifest: Manifest | None = None


@dataclass(frozen=True)
class Plan:
    """The program's order: what can be applied before any node has joined, and what comes after.

    ``addons`` are EKS's own workloads, which no step creates; ``grown`` is what changes when the file system grows.
    """

    before_nodes: tuple[Step, ...]
    after_nodes: tuple[Step, ...]
    addons: tuple[Manifest, ...] = ()
    grown: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in order."""
        return (*self.before_nodes, *self.after_nodes)


def plan(state: State) -> Plan:
    """Sort a deployment's Kubernetes resources by when the program could create them.

    Nodes join once the HyperPod cluster exists. Whatever starts earlier must work without them.
    """
    nodes_at = next((resource.finish for resource in state.values() if resource.type == HYPERPOD_CLUSTER), 0.0)
    # Sorting is stable, so dependencies stay first among resources of the same second.
    created = deletion_order(state)[::-1]
    ordered = sorted(created, key=lambda resource: resource.start)
    wanted = [resource for resource in ordered if resource.custom and resource.type.startswith(_PREFIX)]
    early = tuple(_step(resource) for resource in wanted if resource.start < nodes_at)
    late = tuple(_step(resource) for resource in wanted if resource.start >= nodes_at)
    return Plan(early, late, addons.manifests(state))


def _step(resource: ResourceState) -> Step:
    inputs = _whole_numbers(resource.inputs)
    if resource.type == _RELEASE:
        return Step(resource.name, release=_release(resource.name, inputs))
    return Step(resource.name, manifest=_manifest(resource, inputs))


def _release(name: str, inputs: dict[str, Any]) -> Release:
    return Release(
        name=inputs.get("name") or name,
        namespace=inputs.get("namespace") or "default",
        chart=str(inputs["chart"]),
        values=inputs.get("values") or {},
        wait=not inputs.get("skipAwait", False),
        timeout=int(inputs.get("timeout") or Release.timeout),
        create_namespace=bool(inputs.get("createNamespace", False)),
        skip_crds=bool(inputs.get("skipCrds", False)),
        take_ownership=bool(inputs.get("takeOwnership", False)),
    )


def _manifest(resource: ResourceState, inputs: dict[str, Any]) -> Manifest:
    """The object as the provider would send it. Without a name of its own it gets the resource's."""
    manifest = {key: value for key, value in inputs.items() if value is not None}
    metadata = dict(manifest.get("metadata") or {})
    metadata.setdefault("name", resource.name)
    return {**manifest, "metadata": metadata}


def _whole_numbers(value: Any) -> Any:
    """Restore integers, which Pulumi's protocol lacks and Kubernetes requires."""
    if isinstance(value, dict):
        return {key: _whole_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
