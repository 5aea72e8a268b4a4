"""The collector that Amazon Managed Service for Prometheus runs for an EKS cluster: its targets and its configuration.

Amazon Managed Service for Prometheus User Guide, "Using an AWS managed collector": it brings its access entry, in a
cluster that accepts access entries; the API needs its private endpoint; subnets are in two zones; it discovers targets
through Kubernetes only, and reads them at most every 30 seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi_aws as aws
from pulumi import Input, ResourceOptions

from ..alerts import eks_labels
from ..common.documents import dump
from ..network.keys import NetworkConfig
from ..network.subnets import plan_subnets
from .node_placement import GROUP_LABEL

# The name of a container's port that is read, at most 15 characters, and the port where the project's trainers answer.
PORT_NAME, PORT = "hyperpod-metric", 9450
# The labels in which Kubeflow's training operator and the project's jobs name a pod's job, the better one last.
_JOB_LABELS = ("app_kubernetes_io_name", "training_kubeflow_org_job_name")
_SECONDS = 30
# The guide, "Scraper configuration": the only credentials and the only name that it knows.
_API, _TOKEN = "kubernetes.default.svc:443", "/var/run/secrets/kubernetes.io/serviceaccount/token"
# The labels that the exporters' charts give their pods, app.kubernetes.io/name: kube-state-metrics and
# prometheus-node-exporter (github.com/prometheus-community/helm-charts), dcgm-exporter (github.com/NVIDIA).
EXPORTERS = ("kube-state-metrics", "prometheus-node-exporter", "dcgm-exporter")
# CreateScraper, EksConfiguration, securityGroupIds.
_MOST_GROUPS = 5


@dataclass(frozen=True, kw_only=True)
class ScraperArgs:
    """Inputs of the collector. ``groups`` are the nodes' security groups, which pods and the API admit."""

    cluster: str
    cluster_arn: Input[str]
    workspace_arn: Input[str]
    subnet_ids: Sequence[Input[str]]
    groups: Sequence[Input[str]]
    everything: bool
    teams: Sequence[str]


def scraper(name: str, args: ScraperArgs, child: ResourceOptions) -> aws.amp.Scraper:
    """Create the collector that Amazon Managed Service for Prometheus runs."""
    return aws.amp.Scraper(
        name,
        alias=args.cluster,
        scrape_configuration=configuration(args.cluster, everything=args.everything, teams=args.teams),
        source=aws.amp.ScraperSourceArgs(
            eks=aws.amp.ScraperSourceEksArgs(
                cluster_arn=args.cluster_arn,
                subnet_ids=list(args.subnet_ids),
                security_group_ids=list(args.groups)[:_MOST_GROUPS],
            )
        ),
        destination=aws.amp.ScraperDestinationArgs(
            amp=aws.amp.ScraperDestinationAmpArgs(workspace_arn=args.workspace_arn)
        ),
        opts=child,
    )


def configuration(cluster: str, *, everything: bool, teams: Sequence[str] = ()) -> str:
    """Return Prometheus' own configuration. With ``everything`` it also reads what the add-on would collect, with the
    add-on's labels: the same recording rules read it (``eks_labels``). ``teams`` are the namespaces in which people run
    their own pods.
    """
    jobs = [_training(cluster), *((_kubelets(cluster), _exporters(cluster, teams)) if everything else ())]
    return dump({"global": {"scrape_interval": f"{_SECONDS}s"}, "scrape_configs": jobs})


def _training(cluster: str) -> dict[str, Any]:
    """Read the training metrics of pods that have a port of that name."""
    kept = {"source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": PORT_NAME, "action": "keep"}
    # A target does not know its node's labels: the pod's own becomes the label `group`.
    group = f"pod_label_{GROUP_LABEL}".translate(str.maketrans("./-", "___"))
    labels = [("pod_node_name", "node"), ("namespace", "namespace"), ("pod_name", "pod"), (group, "group")]
    labels += [(f"pod_label_{one}", "hpc_job") for one in _JOB_LABELS]
    named: list[dict[str, Any]] = [
        {"source_labels": [f"__meta_kubernetes_{source}"], "regex": "(.+)", "target_label": label}
        for source, label in labels
    ]
    return {
        "job_name": "training",
        "kubernetes_sd_configs": [{"role": "pod"}],
        "relabel_configs": [kept, _running(), *named, {"target_label": "cluster", "replacement": cluster}],
        "metric_relabel_configs": [_only("hyperpod_training_.+")],
    }


def _kubelets(cluster: str) -> dict[str, Any]:
    """Read which nodes exist: each kubelet's series of itself, through the API, with the node's labels."""
    labels = "|".join(("node_kubernetes_io_instance_type", "sagemaker_amazonaws_com_instance_group_name"))
    path = {"target_label": "__metrics_path__", "replacement": "/api/v1/nodes/$1/proxy/metrics"}
    return {
        "job_name": "kubelet",
        "scheme": "https",
        "authorization": {"type": "Bearer", "credentials_file": _TOKEN},
        "kubernetes_sd_configs": [{"role": "node"}],
        "relabel_configs": [
            {"action": "labelmap", "regex": f"__meta_kubernetes_node_label_({labels})"},
            {"source_labels": ["__meta_kubernetes_node_name"], "regex": "(.+)", **path},
            {"target_label": "__address__", "replacement": _API},
            {"target_label": "cluster_name", "replacement": cluster},
        ],
        "metric_relabel_configs": [_only("kubelet_node_name")],
    }


def _exporters(cluster: str, teams: Sequence[str]) -> dict[str, Any]:
    """Read the exporters' metrics that rules and dashboards use. Their own labels name the pod or GPU, so a team's pod
    could speak for any node, and is not read.
    """
    name = {"source_labels": ["__meta_kubernetes_pod_label_app_kubernetes_io_name"], "regex": "|".join(EXPORTERS)}
    return {
        "job_name": "exporters",
        "honor_labels": True,
        "kubernetes_sd_configs": [{"role": "pod"}],
        "relabel_configs": [
            {**name, "action": "keep"},
            {"source_labels": ["__meta_kubernetes_namespace"], "regex": "|".join(teams) or "^$", "action": "drop"},
            _running(),
            {"target_label": "cluster_name", "replacement": cluster},
        ],
        "metric_relabel_configs": [_only("|".join(sorted(eks_labels.read())))],
    }


def _running() -> dict[str, Any]:
    """Leave out pods that have ended, which stay listed until they are deleted."""
    return {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Running", "action": "keep"}


def _only(names: str) -> dict[str, Any]:
    return {"source_labels": ["__name__"], "regex": names, "action": "keep"}


def sources(network: NetworkConfig) -> tuple[str, ...]:
    """Return the address blocks from which it reads. Empty if the stack does not know them, in an existing VPC."""
    return () if network.vpc_id else plan_subnets(network.cidr, network.secondary_cidr).two_zones
