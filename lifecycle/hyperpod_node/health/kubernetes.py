"""Reports a bad node to Kubernetes: the node cordons itself, with its kubelet's credential.

It also reports a node whose lifecycle scripts left something undone, such as containerd's data on the root volume, by a
label; an annotation and an event give the details. That node stays in service.

* A kubelet may change its own node alone, and there its labels outside of Kubernetes' own, annotations and
  ``unschedulable``, but no taint (Kubernetes, "Admission Control in Kubernetes": NodeRestriction).
* A node cordoned here has an annotation with the reason, and is uncordoned here when it is well again.
* HyperPod uncordons a node that it has rebooted, and leaves its annotations (yuhuiaws/GPU-Fault-Recovery-System, from
  an audit log; the guide does not say so). So nobody has looked at a node that another boot finds uncordoned.
* A node that HyperPod has in its hands, or that somebody else has cordoned or tainted, is left alone.
* At most one node, or 5 % of them, is out at a time, those in HyperPod's hands included; any other is only reported.
* With policy reboot or replace, a cordoned node on which no job is left gets HyperPod's own label (SageMaker Developer
  Guide, "Manually quarantine, replace, or reboot a node"). A reboot that has not helped is not repeated.

As on Slurm (policy.py), each node takes itself out first and then counts; whoever finds too many undoes it. The API
server takes one change after the other, so the last of several counts all of them.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..host.host import Host
from . import kubelet, xid
from .model import UNKNOWN, Finding
from .policy import LONGEST_REASON, SHARE

_LABELS = "sagemaker.amazonaws.com"
STATUS, GROUP = f"{_LABELS}/node-health-status", f"{_LABELS}/instance-group-name"
ORDERS = {"reboot": "UnschedulablePendingReboot", "replace": "UnschedulablePendingReplacement"}
# SageMaker Developer Guide, "Resilience-related Kubernetes labels": the last one is during deep health checks.
HYPERPODS = (*ORDERS.values(), "Unschedulable")
# Our annotations: why the node was taken out, and which of the orders it was given.
REASON, ORDERED = "hyperpod-health/reason", "hyperpod-health/ordered"
# The label has one of the two words, the annotation names what is missing.
SETUP, COMPLETE, INCOMPLETE = "hyperpod-health/setup", "complete", "incomplete"
# And the boot in which that was.
BOOT, BOOT_ID = "hyperpod-health/boot", "/proc/sys/kernel/random/boot_id"
# Taints of Kubernetes' own follow from conditions, and from the cordon itself.
_OWN_TAINTS = "node.kubernetes.io/"
_DEVICES = ("nvidia.com/", "aws.amazon.com/neuron", "vpc.amazonaws.com/efa")
_ENDED = ("Succeeded", "Failed")


class Standing:
    """This node's state in Kubernetes; ``boot`` identifies its current boot, empty if unknown."""

    def __init__(self, node: Mapping[str, Any], boot: str) -> None:
        metadata, spec = node["metadata"], node.get("spec", {})
        self.name, self.version = str(metadata["name"]), str(metadata["resourceVersion"])
        labels = metadata.get("labels") or {}
        self.status = str(labels.get(STATUS, ""))
        self.annotations: Dict[str, str] = metadata.get("annotations") or {}
        self.setup = (labels.get(SETUP), self.annotations.get(SETUP))
        self.cordoned = bool(spec.get("unschedulable"))
        self.taints = [str(taint["key"]) for taint in spec.get("taints") or []]
        self.ours = REASON in self.annotations
        self.boot, self.rebooted = boot, self.annotations.get(BOOT, boot) != boot


def apply(
    host: Host,
    taints: Sequence[str],
    wrong: Mapping[str, str],
    well: bool,
    policy: str,
    memory: Dict[str, Any],
    devices: bool,
    set_up: Optional[Finding] = None,
) -> str:
    """Apply the policy, and return its result in a few words. Raises StepError if Kubernetes refuses.

    ``taints``: the keys that the node's group has by configuration; ``wrong``: reasons by check; ``well``: nothing is
    wrong, and everything that was has been found well; ``devices``: whether the node has accelerators; ``set_up``: the
    finding of the check setup.
    """
    api = kubelet.connect(host)
    node = Standing(api.node(api.own_name()), _boot(host))
    if set_up and set_up.status != UNKNOWN:
        node = _label_set_up(api, node, set_up.detail, host.wall())
    if node.status in HYPERPODS:
        return f"left to HyperPod: {node.status}"
    strange = [key for key in node.taints if not key.startswith(_OWN_TAINTS) and key not in taints]
    if strange:
        return f"left to whoever has tainted it: {', '.join(strange)}"
    if node.cordoned and not node.ours:
        return "left to whoever has cordoned it"
    if node.ours and not node.cordoned and not node.rebooted:
        # Somebody has put it back to work, and knows the faults so far.
        xid.accept(memory)
        _change(api, node, cordon=False)
        return "uncordoned by somebody: checked again in the next run"
    if not wrong:
        if not (node.ours and well):
            return "nothing to do"
        _change(api, node, cordon=False)
        return "uncordoned: all is well again"
    if policy == "report":
        return "only reported, by policy"
    return _take_out(api, node, wrong, policy, devices)


def _label_set_up(api: kubelet.Api, node: Standing, missing: str, now: float) -> Standing:
    """Label the node by whether its set-up is complete, and report once what is missing."""
    state = (INCOMPLETE, missing) if missing else (COMPLETE, None)
    if node.setup == state:
        return node
    if missing:
        api.warn(node.name, "SetupIncomplete", missing, now)
    metadata = {"resourceVersion": node.version, "labels": {SETUP: state[0]}, "annotations": {SETUP: state[1]}}
    api.patch_node(node.name, {"metadata": metadata})
    return Standing(api.node(node.name), node.boot)


def _boot(host: Host) -> str:
    file = host.path(BOOT_ID)
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def _take_out(api: kubelet.Api, node: Standing, wrong: Mapping[str, str], policy: str, devices: bool) -> str:
    reason = "; ".join(f"{check}: {why}" for check, why in wrong.items())[:LONGEST_REASON]
    if not node.ours:
        refused = _too_many(api, node.name)
        if not refused:
            _change(api, node, cordon=True, reason=reason)
            refused = _too_many(api, node.name)
            if refused:
                _change(api, Standing(api.node(node.name), node.boot), cordon=False)
        return refused or "cordoned"
    if node.annotations[REASON] != reason or node.rebooted:
        _change(api, node, cordon=True, reason=reason)
        return "cordoned"
    order = ORDERS.get(policy)
    if not order or _busy(api.pods(node.name), devices):
        return "cordoned"
    if node.annotations.get(ORDERED) == order:
        return f"cordoned: {order} has not helped"
    refused = _too_many(api, node.name)
    if refused:
        return f"cordoned, and {refused}"
    metadata = {"resourceVersion": node.version, "labels": {STATUS: order}, "annotations": {ORDERED: order}}
    api.patch_node(node.name, {"metadata": metadata})
    return f"cordoned and idle: {order}"


def _change(api: kubelet.Api, node: Standing, cordon: bool, reason: Optional[str] = None) -> None:
    """Cordon or uncordon. Refused, and tried again in the next run, if somebody has changed the node in between."""
    annotations = {REASON: reason, BOOT: node.boot or None} if cordon else {REASON: None, ORDERED: None, BOOT: None}
    metadata = {"resourceVersion": node.version, "annotations": annotations}
    api.patch_node(node.name, {"metadata": metadata, "spec": {"unschedulable": True if cordon else None}})


def _busy(pods: List[Dict[str, Any]], devices: bool) -> bool:
    """Whether a job is still here. On a node with accelerators that is a pod with some of them, on any other each pod
    that no DaemonSet owns.
    """
    return any(
        pod.get("status", {}).get("phase") not in _ENDED
        and "DaemonSet" not in [owner["kind"] for owner in pod["metadata"].get("ownerReferences") or []]
        and (not devices or _has_device(pod))
        for pod in pods
    )


def _has_device(pod: Mapping[str, Any]) -> bool:
    containers = pod["spec"].get("containers", []) + (pod["spec"].get("initContainers") or [])
    names = [name for one in containers for name in (one.get("resources", {}).get("limits") or {})]
    return any(name.startswith(_DEVICES) for name in names)


def _too_many(api: kubelet.Api, name: str) -> Optional[str]:
    """Return why this node may not be taken out now, too; None if it may."""
    nodes = api.nodes(GROUP)
    out = sorted(
        one["name"]
        for one in nodes
        if one["name"] != name
        and (REASON in (one.get("annotations") or {}) or (one.get("labels") or {}).get(STATUS) in ORDERS.values())
    )
    if len(out) < max(1, int(len(nodes) * SHARE)):
        return None
    return f"only reported: {len(out)} of {len(nodes)} nodes are out already ({', '.join(out[:3])})"
