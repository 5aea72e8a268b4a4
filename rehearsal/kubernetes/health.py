"""A check that a bad node can take itself out by its kubelet's credential, and can do nothing else with it."""

import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

from hyperpod_node.health import kubelet, kubernetes
from hyperpod_node.health.model import Finding, bad
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Host
from hyperpod_node.host.settings import Settings

from ..checks import CheckFailed, require
from ..patience import until
from .kubectl import Manifest
from .nodes import HEALTH_LABEL, SCHEDULABLE, group_of
from .run import Run

# A node that kwok or a controller has just changed is tried again.
_SECONDS = 20.0
_WRONG = {"accelerators": "7 of 8 devices"}


def bad_nodes(run: Run) -> str:
    """By ``healthPolicy`` a bad node cordons itself, gets HyperPod's label and comes back. A second one stays, and no
    node may touch another, or its own taints."""
    policy = run.config.settings.health_policy
    # Nodes without accelerators have operators, which a cordon does not move: they are never idle.
    workers = [node for node in run.kubectl.list("nodes") if group_of(run.config, node).type.accelerator]
    one, other = (node["metadata"]["name"] for node in workers[:2])
    with tempfile.TemporaryDirectory(dir=run.plane.folder) as folder:
        nodes = {name: _Node(run, name, Path(folder) / name) for name in (one, other)}
        if policy == "report":
            nodes[one].apply("report", "only reported, by policy")
            return "only reported, by policy"
        nodes[one].apply("replace", "cordoned")
        nodes[other].apply("replace", "only reported: 1 of")
        nodes[one].apply("drain", "cordoned")
        nodes[one].apply("replace", "cordoned and idle: UnschedulablePendingReplacement")
        nodes[one].apply("replace", "left to HyperPod")
        taints = [*(nodes[one].node()["spec"].get("taints") or []), {"key": "own", "effect": "NoSchedule"}]
        _refused(nodes[one].api, one, {"spec": {"taints": taints}}, "not allowed to modify taints")
        _refused(nodes[one].api, other, {"metadata": {"labels": {HEALTH_LABEL: "x"}}}, "forbidden")
        # As HyperPod does once it has rebooted the node.
        run.kubectl.run("label", "node", one, f"{HEALTH_LABEL}={SCHEDULABLE}", "--overwrite")
        run.kubectl.run("uncordon", one)
        nodes[one].boot("second")
        nodes[one].apply("replace", "cordoned")
        nodes[one].apply("replace", "cordoned: UnschedulablePendingReplacement has not helped")
        nodes[one].apply("replace", "uncordoned: all is well again", wrong={}, set_up=bad("pod-disk: not mounted"))
        left = nodes[one].node()
        require(left["metadata"]["labels"].get(kubernetes.SETUP) == kubernetes.INCOMPLETE, f"{one} has no label")
        told = [event for event in run.kubectl.list("events") if event["reason"] == "SetupIncomplete"]
        said = {(event["involvedObject"]["name"], event["message"]) for event in told}
        require(said == {(one, "pod-disk: not mounted")}, f"the events of an incomplete set-up are {said}")
        require(not left["spec"].get("unschedulable"), f"{one} is still cordoned")
        require(kubernetes.REASON not in left["metadata"].get("annotations", {}), f"{one} still has our annotation")
    return f"{one} cordoned and labelled itself, {other} was only reported"


def _refused(api: kubelet.Api, name: str, change: dict[str, Any], word: str) -> None:
    try:
        api.patch_node(name, change)
    except StepError as refused:
        require(word in str(refused), f"refused for another reason: {refused}")
        return
    raise CheckFailed(f"a kubelet may change {name} by {json.dumps(change)}")


class _Node:
    """A node's disk with its kubelet's kubeconfig, in the form that EKS's images have."""

    def __init__(self, run: Run, name: str, root: Path) -> None:
        self._run, self._name = run, name
        self._host = Host(Settings(root=root))
        credential = root / "credential.json"
        self._host.write("/credential.json", json.dumps({"status": {"token": run.plane.kubelet_tokens[name]}}), 0o600)
        self._host.write("/ca.crt", run.plane.ca_certificate.read_text())
        lines = (
            "clusters:",
            "- cluster:",
            "    certificate-authority: /ca.crt",
            f"    server: {run.plane.url}",
            "users:",
        )
        users = (
            "- user:",
            "    exec:",
            "      command: cat",
            "      args:",
            f"        - {shlex.quote(str(credential))}",
        )
        self._host.write(kubelet.KUBECONFIG, "\n".join((*lines, *users)) + "\n")
        self.boot("first")

    def boot(self, which: str) -> None:
        """Give the boot that the node is in another id."""
        self._host.write(kubernetes.BOOT_ID, f"{which}\n")

    @property
    def api(self) -> kubelet.Api:
        """A session of its kubelet."""
        return kubelet.connect(self._host)

    def node(self) -> Manifest:
        """Its object."""
        return self.api.node(self._name)

    def apply(
        self, policy: str, expected: str, wrong: dict[str, str] | None = None, set_up: Finding | None = None
    ) -> None:
        """Do what the checks' program does with what it found."""
        wrong = _WRONG if wrong is None else wrong
        group, said = group_of(self._run.config, self.node()), ""
        taints = [taint.key for taint in group.taints]

        def done() -> bool:
            nonlocal said
            try:
                devices = bool(group.type.accelerator)
                said = kubernetes.apply(
                    self._host, taints, wrong, not wrong, policy, {}, devices=devices, set_up=set_up
                )
            except StepError as error:
                said = str(error)
            return said.startswith(expected) or "has been modified" not in said

        until(done, _SECONDS)
        require(said.startswith(expected), f"{self._name} with {policy}: {said}; expected: {expected}")
