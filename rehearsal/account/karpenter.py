"""Stands in for HyperPod's managed Karpenter: which of its objects it takes. It adds and removes no nodes.

SageMaker Developer Guide, "Create a NodeClass" and "Create a NodePool".
"""

from typing import Any

from operations.engine.state import HYPERPOD_CLUSTER

from .books import Books, Inputs, Refused

CLASS_GROUP = "karpenter.sagemaker.amazonaws.com"
GROUPS = ("karpenter.sh", CLASS_GROUP)
_MOST_GROUPS = 10
# "Supported Labels for Karpenter HyperPod Provider", and for spot its own page.
_LABELS = ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "kubernetes.io/arch")


def check(account: Books, i: Inputs) -> None:
    """Raises Refused for what HyperPod's Karpenter does not take, or would never be ready with."""
    clusters = account.find(HYPERPOD_CLUSTER, by=account.now)
    cluster = next((c for c in clusters if (c.inputs.get("autoScaling") or {}).get("mode") == "Enable"), None)
    if cluster is None:
        raise Refused("NotFound", f"no matches for kind {i['kind']} in version {i['apiVersion']}")
    if i["kind"] == "HyperpodNodeClass":
        _check_class(i, {group["instanceGroupName"]: group for group in cluster.inputs["instanceGroups"]})
    else:
        _check_pool(account, i)


def _check_class(i: Inputs, groups: dict[str, Any]) -> None:
    wanted = i["spec"].get("instanceGroups") or []
    if not 1 <= len(wanted) <= _MOST_GROUPS:
        raise Refused("Invalid", f"spec.instanceGroups: {len(wanted)} items, 1 to {_MOST_GROUPS}")
    for name in wanted:
        group = groups.get(name)
        if group is None:
            raise Refused("InstanceGroupNotReady", f"the cluster has no instance group {name}")
        for key in ("trainingPlanArn", "onStartDeepHealthChecks"):
            if group.get(key):
                raise Refused("InstanceGroupNotReady", f"instance group {name} has {key}, which is not supported")


def _check_pool(account: Books, i: Inputs) -> None:
    template = i["spec"]["template"]["spec"]
    wanted = template["nodeClassRef"]
    found = account.find(f"kubernetes:{CLASS_GROUP}/v1:{wanted['kind']}", by=account.now)
    if not any(one.inputs["metadata"]["name"] == wanted["name"] for one in found):
        raise Refused("NodeClassNotFound", f"NodePool {i['metadata']['name']}: no node class {wanted['name']}")
    for one in template["requirements"]:
        if one["key"] not in _LABELS:
            raise Refused("Invalid", f"spec.template.spec.requirements: {one['key']} is not supported by HyperPod")
