"""Checks before any job: device plugins on the right nodes, health agents, operators, system pods."""

from collections.abc import Iterator

from components.catalogue.accelerators import EFA_RESOURCE
from components.kubernetes.node_placement import system_group_names

from ..checks import CheckFailed, require
from ..patience import until
from .kubectl import Manifest
from .nodes import GROUP_LABEL, advertise, device_resources
from .pods import is_ready
from .run import Run, why_pending

_SECONDS = 60.0
# Name prefixes of pods whose charts and add-ons let us set node preferences.
_TOLD = ("coredns", "ebs-csi-controller", "kueue", "hyperpod-dependencies-mpi-operator")
# A part of the name of the DaemonSet that advertises each resource.
PLUGINS = {
    "nvidia.com/gpu": "nvidia-device-plugin",
    "aws.amazon.com/neuron": "neuron-device-plugin",
    EFA_RESOURCE: "aws-efa-k8s-device-plugin",
}


def device_plugins(run: Run) -> str:
    """Every node has a ready plugin for each of its devices, and none for devices that it lacks."""
    wanted = device_resources(run.config)
    found: dict[str, set[str]] = {}

    def placed() -> bool:
        found.clear()
        for node in run.kubectl.list("nodes"):
            found[node["metadata"]["name"]] = _advertised(run, node)
        return all(found[name] == wanted[group] for name, group in _groups(run).items())

    if not until(placed, _SECONDS):
        wrong = [
            f"{name} has plugins for {_words(found[name])}, not {_words(wanted[group])}"
            for name, group in sorted(_groups(run).items())
            if found[name] != wanted[group]
        ]
        raise CheckFailed("; ".join(wrong))
    for node in run.kubectl.list("nodes"):
        advertise(run.kubectl, run.config, node, sorted(found[node["metadata"]["name"]]))
    plugins = sorted({PLUGINS[resource] for resources in found.values() for resource in resources})
    return f"{' and '.join(plugins)} on {len(found)} nodes, and on no other"


def health_agents(run: Run) -> str:
    """The health monitoring agent runs on every node with accelerators, if the stack enables it."""
    training = {group.name for group in run.config.training_groups}
    nodes = {name for name, group in _groups(run).items() if group in training}
    if not run.config.settings.charts.health_monitoring:
        require(not _nodes_with(run, "health-monitoring-agent"), "there are agents, and the stack wants none")
        return "the stack wants none, and there is none"
    require(
        until(lambda: _nodes_with(run, "health-monitoring-agent") == nodes, _SECONDS),
        f"agents run on {sorted(_nodes_with(run, 'health-monitoring-agent'))}, not on {sorted(nodes)}",
    )
    return f"on {len(nodes)} nodes"


def operators(run: Run) -> str:
    """The operators' own programs run with the RBAC rights from their charts."""
    charts = run.config.settings.charts
    wanted = {
        program
        for program, on in (
            ("training-operator", charts.training_operator),
            ("mpi-operator", charts.mpi_operator),
            ("kueue", charts.queues == "kueue"),
        )
        if on
    }
    if not until(lambda: set(run.operators()) == wanted, _SECONDS):
        said = "; ".join(run.pods.problems[-2:]) or "no word from their processes"
        raise CheckFailed(
            f"ready: {', '.join(sorted(run.operators())) or 'none'} of {', '.join(sorted(wanted))}; {said}"
        )
    return ", ".join(sorted(wanted))


def system_pods(run: Run) -> str:
    """System pods are scheduled: drivers and agents on every node, the rest on the system groups' nodes.

    If some accelerator nodes have no taint, only pods with settable node preferences avoid them.
    """
    nodes, own = _groups(run), set(system_group_names(run.config.worker_groups))
    wanted = {one["metadata"]["name"] for one in run.addons if one["kind"] == "DaemonSet"}
    closed = all(any(taint.repels for taint in g.taints) for g in run.config.training_groups if g.count)
    stray: list[str] = []

    def settled() -> bool:
        stray[:] = [
            f"{name} has no node: {why_pending(run.kubectl, pod)}" if not where else f"{name} is on {nodes[where]}"
            for name, where, pod in _cluster_pods(run)
            if not where or (own and (closed or name.startswith(_TOLD)) and nodes[where] not in own)
        ]
        stray.extend(
            f"{daemon} is not on {', '.join(sorted(lacking))}"
            for daemon in sorted(wanted)
            if (lacking := nodes.keys() - _nodes_with(run, daemon))
        )
        return not stray

    require(until(settled, _SECONDS), "; ".join(stray))
    where = f"on {' and '.join(sorted(own))}" if own else "beside the jobs"
    return f"{len(list(_cluster_pods(run)))} {where}; {len(wanted)} agents on each of {len(nodes)} nodes"


def _cluster_pods(run: Run) -> Iterator[tuple[str, str, Manifest]]:
    """Pods outside the teams' namespaces that are not tied to a node: name, node, pod."""
    for pod in run.kubectl.list("pods"):
        metadata = pod["metadata"]
        owners = {owner["kind"] for owner in metadata.get("ownerReferences", [])}
        if metadata["namespace"] not in run.namespaces and "DaemonSet" not in owners:
            yield metadata["name"], pod["spec"].get("nodeName", ""), pod


def _words(resources: set[str]) -> str:
    return ", ".join(sorted(resources)) or "nothing"


def _groups(run: Run) -> dict[str, str]:
    return {node["metadata"]["name"]: node["metadata"]["labels"][GROUP_LABEL] for node in run.kubectl.list("nodes")}


def _advertised(run: Run, node: Manifest) -> set[str]:
    name = node["metadata"]["name"]
    return {resource for resource, plugin in PLUGINS.items() if name in _nodes_with(run, plugin)}


def _nodes_with(run: Run, daemon_set: str) -> set[str]:
    """Nodes with a ready pod of a DaemonSet whose name contains this."""
    return {
        pod["spec"]["nodeName"]
        for pod in run.kubectl.list("pods")
        for owner in pod["metadata"].get("ownerReferences", [])
        if owner["kind"] == "DaemonSet" and daemon_set in owner["name"] and is_ready(pod)
    }
