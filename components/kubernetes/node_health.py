"""Publishes the results of nodes' health checks as a node condition and an event, and gives a node the right to count
the nodes that are out before it takes itself out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi_kubernetes as kubernetes
from hyperpod_node.health.model import CONDITION, FOLDER
from pulumi import ComponentResource, ResourceOptions

from ..workers.instance_groups import InstanceGroup
from .network_policies import allow_all
from .node_placement import GROUP_LABEL

core, meta, rbac = kubernetes.core.v1, kubernetes.meta.v1, kubernetes.rbac.v1

NAMESPACE, NAME = "hyperpod-health", "node-problem-detector"
COUNTERS = "hyperpod-health-count"
# github.com/kubernetes/node-problem-detector. No public record of the digest of this tag was found.
IMAGE = "registry.k8s.io/node-problem-detector/node-problem-detector:v0.8.20"
_MIRRORED = "node-problem-detector:v0.8.20"
# nobody, as Kubernetes' own images have it.
_UID = 65534
# The checks run every five minutes; after three that did not, nothing is known.
_STALE_MINUTES = 15
# node-problem-detector's contract for a plug-in: 0 is well, 1 is not, anything else is unknown; the output says why.
SCRIPT = f"""#!/bin/sh
folder=${{1:-/health}}
if [ ! -e "$folder/results.json" ]; then echo "the checks have not run yet"; exit 2; fi
if [ -n "$(find "$folder/results.json" -mmin +{_STALE_MINUTES})" ]; then echo "the checks run no more"; exit 2; fi
if [ -s "$folder/reason" ]; then tr '\\n' ';' < "$folder/reason" | cut -c -240; exit 1; fi
echo "all checks pass"
"""
MONITOR: dict[str, Any] = {
    "plugin": "custom",
    "pluginConfig": {
        "invoke_interval": "60s",
        "timeout": "10s",
        "max_output_length": 240,
        "concurrency": 1,
        "enable_message_change_based_condition_update": True,
    },
    "source": "hyperpod-health",
    "metricsReporting": False,
    "conditions": [{"type": CONDITION, "reason": "ChecksPass", "message": "all checks pass"}],
    "rules": [
        {"type": "permanent", "condition": CONDITION, "reason": "CheckFailed", "path": "/config/health.sh"},
    ],
}


@dataclass(frozen=True, kw_only=True)
class NodeHealthArgs:
    """Inputs of node health. ``policy``: what a bad node does about itself; ``image_registry`` mirrors the image, for a
    closed network; ``strict``: pods without a network policy have no connection.
    """

    policy: str
    groups: Sequence[InstanceGroup]
    image_registry: str | None
    strict: bool


class NodeHealth(ComponentResource):
    """Owns a namespace with node-problem-detector on every node with accelerators.

    Its pods have no privilege: they read one folder of the node, with the results of a systemd timer, and may change
    nodes' status, by Kubernetes' own role for it. Deliberately absent: a pod that may cordon or label nodes, because
    whoever may do so to one may do so to all. A node does it to itself, with its kubelet's credential
    (hyperpod_node/health/kubernetes.py). Kubelets cannot see other nodes since Kubernetes 1.32, so they get the right
    to list them: nodes must not all leave at once.
    """

    def __init__(self, name: str, args: NodeHealthArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:NodeHealth", name, None, opts)
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        home = core.Namespace(
            f"{name}-namespace",
            # Only this level allows a pod a folder of the node.
            metadata=meta.ObjectMetaArgs(name=NAMESPACE, labels=labels),
            opts=ResourceOptions(parent=self),
        )
        inside = ResourceOptions(parent=self, depends_on=[home], deleted_with=home)
        if args.strict:
            allow_all(f"{name}-network", NAMESPACE, inside)
        account = core.ServiceAccount(
            f"{name}-account", metadata=meta.ObjectMetaArgs(name=NAME, namespace=NAMESPACE), opts=inside
        )
        rbac.ClusterRoleBinding(
            f"{name}-may-write-status",
            metadata=meta.ObjectMetaArgs(name=NAMESPACE),
            role_ref=rbac.RoleRefArgs(
                api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="system:node-problem-detector"
            ),
            subjects=[rbac.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=NAMESPACE)],
            opts=ResourceOptions(parent=self),
        )
        if args.policy != "report":
            _may_count_nodes(name, ResourceOptions(parent=self))
        config = core.ConfigMap(
            f"{name}-plug-in",
            metadata=meta.ObjectMetaArgs(name=NAME, namespace=NAMESPACE),
            data={"health.json": json.dumps(MONITOR, indent=2), "health.sh": SCRIPT},
            opts=inside,
        )
        after = ResourceOptions.merge(inside, ResourceOptions(depends_on=[account, config]))
        # There may be no node for hours.
        notes = {"pulumi.com/skipAwait": "true"}
        kubernetes.apps.v1.DaemonSet(
            f"{name}-detector",
            metadata=meta.ObjectMetaArgs(name=NAME, namespace=NAMESPACE, annotations=notes),
            spec=_daemon_set(args),
            opts=after,
        )
        self.register_outputs({})


def _may_count_nodes(name: str, options: ResourceOptions) -> None:
    """Allow kubelets to list nodes, which their own authorizer does not ("Using Node Authorization")."""
    role = rbac.ClusterRole(
        f"{name}-lists-nodes",
        metadata=meta.ObjectMetaArgs(name=COUNTERS),
        rules=[rbac.PolicyRuleArgs(api_groups=[""], resources=["nodes"], verbs=["list"])],
        opts=options,
    )
    rbac.ClusterRoleBinding(
        f"{name}-nodes-may-list",
        metadata=meta.ObjectMetaArgs(name=COUNTERS),
        role_ref=rbac.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=COUNTERS),
        subjects=[rbac.SubjectArgs(api_group="rbac.authorization.k8s.io", kind="Group", name="system:nodes")],
        opts=ResourceOptions.merge(options, ResourceOptions(depends_on=[role])),
    )


def _daemon_set(args: NodeHealthArgs) -> Any:
    labels = {"app.kubernetes.io/name": NAME}
    pod = {
        "serviceAccountName": NAME,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _nodes(args.groups)}},
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _UID,
            "runAsGroup": _UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(args.image_registry)],
        "volumes": [
            {"name": "health", "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}},
            {"name": "config", "configMap": {"name": NAME, "defaultMode": 0o555}},
        ],
    }
    return {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}


def _nodes(groups: Sequence[InstanceGroup]) -> dict[str, Any]:
    """Select the groups with accelerators: the small nodes of the cluster's own pods have little room for more."""
    names = [group.name for group in groups if group.type.accelerator]
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": GROUP_LABEL, "operator": "In", "values": names}]}]}


def _container(image_registry: str | None) -> dict[str, Any]:
    return {
        "name": NAME,
        "image": f"{image_registry}/{_MIRRORED}" if image_registry else IMAGE,
        # Its ports, which are for metrics and its own health, stay closed.
        "command": [
            "/node-problem-detector",
            "--logtostderr",
            "--config.custom-plugin-monitor=/config/health.json",
            "--port=0",
            "--prometheus-port=0",
        ],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "health", "mountPath": "/health", "readOnly": True},
            {"name": "config", "mountPath": "/config", "readOnly": True},
        ],
    }
