"""Maps the labels of the EKS add-on ``amazon-sagemaker-hyperpod-observability`` to this project's.

Its series have ``cluster_name``, and the node as each exporter knows it. Recording rules write them again under the
same names with ``cluster``, ``node`` and ``group``, for the metrics that rules and dashboards read. The source: the
selections and joins of AWS's own dashboards for the add-on (aws/sagemaker-hyperpod-cluster-setup, 2025-08-29); no live
workspace was read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ..catalogue.rows import table

Rule: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Mapped:
    """A metric that rules or dashboards read, and its exporter in the add-on."""

    metric: str
    exporter: str


METRICS: Mapping[str, Mapped] = table(Path(__file__).with_name("eks_metrics.csv"), Mapped, "metric")
_EXPORTERS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("dcgm", "efa", "node", "training", "cluster"),
    "trainium": ("neuron", "efa", "node", "training", "cluster"),
}
# How the node of an exporter's series is found; METRIC stands for their selector.
_NODE_OF: Mapping[str, str] = {
    # After 4.5.3-4.8.2 NVIDIA's exporter writes the label small (NVIDIA/dcgm-exporter, pull request 655).
    "dcgm": (
        'label_replace(label_replace(METRIC, "node", "$1", "hostname", "(.+)"), "node", "$1", "Hostname", "(.+)")'
    ),
    "efa": 'label_replace(METRIC, "node", "$1", "instance", "(.+)")',
    # A node's name in Kubernetes is hyperpod- and its instance's id.
    "neuron": 'label_replace(METRIC, "node", "hyperpod-$1", "instance_id", "(i-.+)")',
    "node": (
        'label_replace(METRIC, "internal_ip", "$1", "instance", "(.+):[0-9]+")'
        ' * on (internal_ip) group_left (node) group by (internal_ip, node) (kube_node_info{cluster_name="CLUSTER"})'
    ),
    "training": (
        "METRIC * on (namespace, pod) group_left (node)"
        ' group by (namespace, pod, node) (kube_pod_info{cluster_name="CLUSTER"})'
    ),
    # Not of a node, or reported by another node: the label is enough.
    "cluster": "METRIC",
}


def read() -> set[str]:
    """Return the exporters' metrics that rules and dashboards read, also those read by the add-on's own labels."""
    by_exporters = {one.metric for one in METRICS.values() if one.exporter in ("cluster", "dcgm", "node")}
    own = Path(__file__).with_name("eks.yaml").read_text() + "".join(_NODE_OF.values())
    return by_exporters | set(re.findall(r"\bkube_[a-z_]+", own))


def rules(cluster: str, accelerator: str) -> list[Rule]:
    """Return a cluster's recording rules. The first maps each node to its group; all others join it."""
    exporters = _EXPORTERS[accelerator]
    mapped = [_mapped(one) for one in METRICS.values() if one.exporter in exporters]
    return [{**rule, "expr": rule["expr"].replace("CLUSTER", cluster)} for rule in (_nodes(), *mapped)]


def _nodes() -> Rule:
    """Map nodes to groups: the kubelet's series of itself carries the node's labels."""
    expr = 'kubelet_node_name{cluster="", cluster_name="CLUSTER"}'
    for label, source, pattern in (
        ("cluster", "cluster_name", "(.+)"),
        ("group", "sagemaker_amazonaws_com_instance_group_name", "(.+)"),
        ("instance_type", "node_kubernetes_io_instance_type", "(.+)"),
        ("instance_id", "node", "hyperpod-(i-.+)"),
    ):
        expr = f'label_replace({expr}, "{label}", "$1", "{source}", "{pattern}")'
    return {
        "record": "hyperpod_node_info",
        "expr": f"group by (cluster, node, group, instance_id, instance_type) ({expr})",
    }


def _mapped(one: Mapped) -> Rule:
    # Without `cluster`: not what this rule itself wrote.
    expr = _NODE_OF[one.exporter].replace("METRIC", f'{one.metric}{{cluster="", cluster_name="CLUSTER"}}')
    if one.exporter == "cluster":
        # Rules read the original of some, by this label.
        expr = f'label_replace({expr}, "cluster_name", "", "", "")'
    else:
        expr = f'({expr}) * on (node) group_left (group) hyperpod_node_info{{cluster="CLUSTER"}}'
    return {"record": one.metric, "expr": f'label_replace({expr}, "cluster", "CLUSTER", "", "")'}
