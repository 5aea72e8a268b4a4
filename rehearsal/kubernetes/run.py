"""One run: the stack's objects and nodes on a real API server, created and deleted as often as requested."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from components.config import Config

from ..patience import until
from .control_plane import ControlPlane
from .kubectl import Kubectl, Manifest, Refused
from .objects import Step
from .pods import Pods, is_ready, operator_of

# Objects that Kubernetes creates and removes by itself, in its own time.
_PASSING = ("events", "leases", "endpointslices", "endpoints", "pods", "nodes", "controllerrevisions", "replicasets")
_SETTLE_SECONDS = 60.0


class Stack(Protocol):
    """A way to apply and delete the stack's objects."""

    def bring_up(self) -> int:
        """Apply everything, nodes included. Returns the object count. Raises DeployFailed."""

    def take_down(self) -> list[str]:
        """Delete everything. Returns the errors."""

    def kept(self) -> list[Manifest]:
        """Objects that may remain after ``take_down`` until the cluster is deleted."""


@dataclass(frozen=True)
class Run:
    """Everything a check needs.

    ``addons`` are the workloads of EKS's own add-ons, ``grown`` what changes when the file system grows.
    """

    plane: ControlPlane
    config: Config
    pods: Pods
    stack: Stack
    addons: Sequence[Manifest] = ()
    grown: Sequence[Step] = ()

    @property
    def kubectl(self) -> Kubectl:
        """The administrator's kubectl."""
        return self.plane.kubectl

    @property
    def teams(self) -> dict[str, str]:
        """Each team's namespace."""
        settings = self.config.settings
        return {team.name: settings.namespace_of(team.name) for team in settings.namespaces}

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The teams' namespaces."""
        return tuple(self.teams.values())

    def end_of_cluster(self, kept: list[Manifest]) -> None:
        """Delete what only disappears with the EKS cluster."""
        self.kubectl.delete(kept)

    def leftovers(self, before: frozenset[str], allowed: frozenset[str] = frozenset()) -> list[str]:
        """New objects that are neither in ``before`` nor ``allowed``, after the controllers have cleaned up."""
        found: list[str] = []

        def clean() -> bool:
            try:
                found[:] = sorted(self.look() - before - allowed)
            except Refused:
                # A kind was deleted between listing the kinds and listing its objects.
                return False
            return not found

        until(clean, _SETTLE_SECONDS, every=0.5)
        return found

    def settled(self) -> bool:
        """Whether the controllers have created their default objects in every namespace."""
        namespaces = {one["metadata"]["name"] for one in self.kubectl.list("namespaces")}
        return all(
            namespaces
            == {one["metadata"]["namespace"] for one in self.kubectl.list(kind) if one["metadata"]["name"] == name}
            for kind, name in (("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default"))
        )

    def look(self) -> frozenset[str]:
        """Every object on the API server, as kind.group/namespace/name."""
        kinds = self.kubectl.run("api-resources", "--verbs=list", "-o", "name").split()
        wanted = [kind for kind in kinds if kind.split(".")[0] not in _PASSING]
        found = json.loads(self.kubectl.run("get", ",".join(wanted), "-A", "-o", "json", "--ignore-not-found") or "{}")
        return frozenset(describe(one) for one in found.get("items", []) if not _automatic(one))

    def operators(self) -> dict[str, Manifest]:
        """The operators' ready pods, by the program they run."""
        found = {}
        for pod in self.kubectl.list("pods"):
            operator = operator_of(pod)
            if operator and is_ready(pod):
                found[operator.program] = pod
        return found


@contextmanager
def played(plane: ControlPlane) -> Iterator[Pods]:
    """Run the pods of a control plane. Their processes end with the context."""
    pods = Pods(plane, plane.folder)
    pods.start()
    try:
        yield pods
    finally:
        pods.stop()


def scheduled(pod: Manifest) -> bool:
    """Whether a pod has a node."""
    return bool(pod["spec"].get("nodeName"))


def why_pending(kubectl: Kubectl, pod: Manifest) -> str:
    """The scheduler's own message about a pod without a node."""
    found = kubectl.get("pod", pod["metadata"]["name"], pod["metadata"]["namespace"]) or pod
    conditions = [one for one in found.get("status", {}).get("conditions", []) if one["type"] == "PodScheduled"]
    return next((one.get("message", "") for one in conditions if one["status"] == "False"), "")


def _automatic(one: Manifest) -> bool:
    """Whether it is the API server's own registration of a custom resource's group."""
    return "kube-aggregator.kubernetes.io/automanaged" in (one["metadata"].get("labels") or {})


def describe(one: Manifest) -> str:
    """An object's kind, group, namespace and name, as ``look`` gives them."""
    group = one["apiVersion"].split("/")[0] if "/" in one["apiVersion"] else ""
    where = one["metadata"].get("namespace", "")
    return "/".join(part for part in (f"{one['kind']}.{group}".rstrip("."), where, one["metadata"]["name"]) if part)
