"""Where nodes are in the network, as a tree: by HyperPod's labels on EKS, by Slurm's map on Slurm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperpod_node.slurm.conf import expand

from components.kubernetes.node_placement import NETWORK_LAYERS

from ..failures import Failure
from ..target import Target
from . import nodes as cluster_nodes
from . import sessions
from .node import Node

_SHOW = "scontrol show topology"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A switch or the like of the network, what is below it, and the nodes that are on it directly."""

    name: str
    below: tuple[Branch, ...] = ()
    nodes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many nodes are anywhere below it."""
        return len(self.nodes) + sum(branch.size for branch in self.below)


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network, and the workers whose place in it is not known."""

    tree: tuple[Branch, ...]
    unplaced: tuple[str, ...]


def look(target: Target, nodes: Sequence[Node]) -> Network:
    """The network of these nodes. Raises Failure where the scheduler cannot be asked."""
    workers = [node for node in nodes if node.role == "worker" and node.instance_id]
    by_key = _labelled(target) if target.on_eks else _mapped(target, nodes)
    paths = {node.name: by_key.get(node.instance_id if target.on_eks else node.hostname, ()) for node in workers}
    return Network(
        tree=_branches({name: path for name, path in paths.items() if path}),
        unplaced=tuple(name for name, path in paths.items() if not path),
    )


def _labelled(target: Target) -> dict[str, tuple[str, ...]]:
    """The path to each Kubernetes node, from the top, by its instance id; without all of its labels none, as for
    Kueue. EC2's own DescribeInstanceTopology describes the caller's instances, and no page says that HyperPod's are
    among them.
    """
    found = {}
    for node in cluster_nodes.kubernetes(target).nodes():
        labels = node["metadata"].get("labels") or {}
        if all(labels.get(layer) for layer in NETWORK_LAYERS):
            instance = str(node["metadata"]["name"]).removeprefix("hyperpod-")
            found[instance] = tuple(str(labels[layer]) for layer in NETWORK_LAYERS)
    return found


def _mapped(target: Target, nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """The switches or blocks above each of Slurm's nodes, from the top, by its host name."""
    ran = sessions.run_remote(target, cluster_nodes.controller(nodes), _SHOW, timeout=60)
    if ran.code != 0:
        raise Failure(f"{_SHOW} on the controller ended with {ran.code}: {ran.output.strip()}")
    shown = [dict(word.partition("=")[::2] for word in line.split() if "=" in word) for line in ran.output.splitlines()]
    found: dict[str, tuple[str, ...]] = {}
    for fields in sorted(shown, key=lambda fields: -int(fields.get("Level", 0))):
        name = fields.get("SwitchName") or fields.get("BlockName")
        for host in expand(fields.get("Nodes", "")) if name else ():
            found[host] = (*found.get(host, ()), str(name))
    return found


def _branches(paths: Mapping[str, Sequence[str]]) -> tuple[Branch, ...]:
    tops = sorted({path[0] for path in paths.values() if path})
    branches = []
    for top in tops:
        under = {name: path[1:] for name, path in paths.items() if path and path[0] == top}
        here = tuple(name for name, rest in under.items() if not rest)
        branches.append(Branch(name=top, below=_branches(under), nodes=here))
    return tuple(branches)
