"""One run: the stack's objects on a real API server, with its nodes, up and down as often as asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.config import Config

from .charts import Charts
from .control_plane import ControlPlane
from .deploy import Deployer, DeployFailed
from .kubectl import Kubectl, Manifest, Refused, until
from .nodes import join, nodes_of
from .objects import Plan
from .pods import Pods, is_ready, operator_of

# Objects that Kubernetes makes and removes by itself, at its own pace.
_PASSING = ("events", "leases", "endpointslices", "endpoints", "pods", "nodes", "controllerrevisions", "replicasets")
_SETTLE_SECONDS = 60.0


@dataclass(frozen=True)
class Run:
    """Everything a check needs."""

    plane: ControlPlane
    config: Config
    plan: Plan
    pods: Pods
    deployer: Deployer

    @property
    def kubectl(self) -> Kubectl:
        """The administrator's."""
        return self.plane.kubectl

    @property
    def charts(self) -> Charts:
        """Where releases came from."""
        return self.deployer.charts

    @property
    def teams(self) -> dict[str, str]:
        """Each team's namespace."""
        settings = self.config.settings
        return {team.name: settings.namespace_of(team.name) for team in settings.namespaces}

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Where teams train."""
        return tuple(self.teams.values())

    def bring_up(self) -> int:
        """Apply everything in the program's order, nodes included. Returns how many objects. Raises DeployFailed."""
        self.deployer.apply(self.plan.before_nodes)
        if not join(self.kubectl, nodes_of(self.config)):
            raise DeployFailed("not every node became ready")
        self.deployer.apply(self.plan.after_nodes)
        return self.deployer.count(self.plan.steps)

    def take_down(self) -> list[str]:
        """Delete everything in Pulumi's order: what needs nodes, the nodes, the rest. Returns what went wrong."""
        problems = self.deployer.remove(self.plan.after_nodes)
        self.kubectl.delete(nodes_of(self.config))
        self._collect_pods()
        return problems + self.deployer.remove(self.plan.before_nodes)

    def _collect_pods(self) -> None:
        """Pods of nodes that are gone: Kubernetes' own collector takes them too, a minute later."""
        nodes = {node["metadata"]["name"] for node in self.kubectl.list("nodes")}
        lost = [pod for pod in self.kubectl.list("pods") if pod["spec"].get("nodeName") not in (None, *nodes)]
        for pod in lost:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            self.kubectl.run(
                "delete", "pod", name, "-n", namespace, "--force", "--grace-period=0", "--ignore-not-found"
            )

    def end_of_cluster(self, kept: list[Manifest]) -> None:
        """What goes with the EKS cluster and not before."""
        self.kubectl.delete(kept)

    def leftovers(self, before: frozenset[str], allowed: frozenset[str] = frozenset()) -> list[str]:
        """What is there now, was not ``before`` and is not ``allowed``, once the controllers have tidied up."""
        found: list[str] = []

        def clean() -> bool:
            try:
                found[:] = sorted(self.look() - before - allowed)
            except Refused:
                # A kind went away between the question which there are and the question for its objects.
                return False
            return not found

        until(clean, _SETTLE_SECONDS, every=0.5)
        return found

    def settled(self) -> bool:
        """Whether the controllers have put into every namespace what they put into each."""
        namespaces = {one["metadata"]["name"] for one in self.kubectl.list("namespaces")}
        return all(
            namespaces
            == {one["metadata"]["namespace"] for one in self.kubectl.list(kind) if one["metadata"]["name"] == name}
            for kind, name in (("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default"))
        )

    def look(self) -> frozenset[str]:
        """Every object of every kind that the API server has, as kind.group/namespace/name."""
        kinds = self.kubectl.run("api-resources", "--verbs=list", "-o", "name").split()
        wanted = [kind for kind in kinds if kind.split(".")[0] not in _PASSING]
        found = json.loads(self.kubectl.run("get", ",".join(wanted), "-A", "-o", "json", "--ignore-not-found") or "{}")
        return frozenset(describe(one) for one in found.get("items", []) if not _automatic(one))

    def operators(self) -> dict[str, Manifest]:
        """Pods of operators that are ready, by the program they run."""
        found = {}
        for pod in self.kubectl.list("pods"):
            operator = operator_of(pod)
            if operator and is_ready(pod):
                found[operator.program] = pod
        return found


@contextmanager
def started(plane: ControlPlane, config: Config, plan: Plan, say: Callable[[str], None]) -> Iterator[Run]:
    """A run on a control plane; the pods' processes end with it."""
    workspace = Path(plane.folder)
    pods = Pods(plane, workspace)
    pods.start()
    try:
        yield Run(plane, config, plan, pods, Deployer(plane.kubectl, Charts(workspace), say))
    finally:
        pods.stop()


def scheduled(pod: Manifest) -> bool:
    """Whether a pod has a node."""
    return bool(pod["spec"].get("nodeName"))


def why_pending(kubectl: Kubectl, pod: Manifest) -> str:
    """The scheduler's own words on a pod without a node."""
    found = kubectl.get("pod", pod["metadata"]["name"], pod["metadata"]["namespace"]) or pod
    conditions = [one for one in found.get("status", {}).get("conditions", []) if one["type"] == "PodScheduled"]
    return next((one.get("message", "") for one in conditions if one["status"] == "False"), "")


def _automatic(one: Manifest) -> bool:
    """The API server's own registration of a custom resource's group."""
    return "kube-aggregator.kubernetes.io/automanaged" in (one["metadata"].get("labels") or {})


def describe(one: Manifest) -> str:
    """An object's kind, group, namespace and name, as ``look`` gives them."""
    group = one["apiVersion"].split("/")[0] if "/" in one["apiVersion"] else ""
    where = one["metadata"].get("namespace", "")
    return "/".join(part for part in (f"{one['kind']}.{group}".rstrip("."), where, one["metadata"]["name"]) if part)
