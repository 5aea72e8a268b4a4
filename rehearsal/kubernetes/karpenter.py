"""What a HyperPod cluster brings: its nodes, and where groups follow demand a stand-in of its managed Karpenter.

AWS runs its own and publishes neither program nor definitions. Here the real Karpenter decides, with instances that are
only Node objects (tools/kubernetes/karpenter).
"""

import json
import os
from pathlib import Path

from components.common.documents import load_all
from components.config import Config

from .binaries import folder
from .control_plane import ControlPlane
from .kubectl import Manifest
from .nodes import join, leave, nodes_of, on_demand

PROGRAM = "karpenter"
_NODE_CLASS = Path(__file__).with_name("hyperpod_node_class.yaml")
_ANY_PORT = ("--metrics-port=0", "--health-probe-port=0")


def arrive(plane: ControlPlane, config: Config) -> bool:
    """Let the nodes join that the groups always have. Returns whether all became ready."""
    if config.follows_demand:
        _start(plane, config)
    return join(plane.kubectl, nodes_of(config))


def depart(plane: ControlPlane, config: Config) -> None:
    """Delete all nodes, those that Karpenter has added first, and Karpenter's definitions."""
    if config.follows_demand and (process := next((p for p in plane.processes.running if p.name == PROGRAM), None)):
        # Only Karpenter takes its finalizers away.
        plane.kubectl.run("delete", "nodeclaims.karpenter.sh", "--all")
        plane.processes.stop(process)
        plane.kubectl.delete(definitions())
    leave(plane.kubectl, nodes_of(config))


def definitions() -> list[Manifest]:
    """Karpenter's definitions of its objects as published, and this project's of HyperPod's node class."""
    published = folder("karpenter-crds")
    assert published
    return [one for path in (*sorted(published.glob("*.yaml")), _NODE_CLASS) for one in load_all(path.read_text())]


def _start(plane: ControlPlane, config: Config) -> None:
    made = definitions()
    plane.kubectl.apply(made)
    names = [f"crd/{one['metadata']['name']}" for one in made]
    plane.kubectl.run("wait", "--for=condition=Established", *names)
    instances = plane.folder / "instance_groups.json"
    instances.write_text(json.dumps(on_demand(config)))
    environment = {**os.environ, "KUBECONFIG": str(plane.kubectl.kubeconfig), "INSTANCE_GROUPS": str(instances)}
    plane.processes.start(
        PROGRAM, [plane.binaries[PROGRAM], "--disable-leader-election=true", *_ANY_PORT], environment=environment
    )
