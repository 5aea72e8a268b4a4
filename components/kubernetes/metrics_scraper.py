"""The collector that Amazon Managed Service for Prometheus itself runs beside an EKS cluster: what it reads, and how.

Amazon Managed Service for Prometheus User Guide, "Using an AWS managed collector": its access entry comes with it, in a
cluster that takes access entries; the API needs its private endpoint; subnets are in two zones; only Kubernetes tells
it its targets, at most every 30 seconds.
"""

from __future__ import annotations

from typing import Any

import pulumi_aws as aws
import yaml
from pulumi import Output, ResourceOptions

from ..config import Config
from ..config.network_plan import plan_subnets
from ..context import Prometheus
from ..orchestrator import OrchestratorArgs

# The name of a container's port that is read, at most 15 characters, and the port where the project's trainers answer.
PORT_NAME, PORT = "hyperpod-metric", 9450
# A pod's label that becomes the label `group`: a target does not know its node's labels.
GROUP_LABEL = "sagemaker.amazonaws.com/instance-group-name"
# What Kubeflow's training operator and the project's jobs call a pod's job, the better one last.
_JOB_LABELS = ("app_kubernetes_io_name", "training_kubeflow_org_job_name")
_SECONDS = 30
# CreateScraper, EksConfiguration, securityGroupIds.
_MOST_GROUPS = 5


def scraper(
    name: str, args: OrchestratorArgs, prometheus: Prometheus, cluster_arn: Output[str], child: ResourceOptions
) -> aws.amp.Scraper:
    """A collector with the nodes' security groups: pods and the API let those in."""
    context = args.context
    return aws.amp.Scraper(
        name,
        alias=context.names.cluster,
        scrape_configuration=configuration(context.names.cluster),
        source=aws.amp.ScraperSourceArgs(
            eks=aws.amp.ScraperSourceEksArgs(
                cluster_arn=cluster_arn,
                subnet_ids=list(args.network.eks_subnet_ids),
                security_group_ids=list(args.node_groups)[:_MOST_GROUPS],
            )
        ),
        destination=aws.amp.ScraperDestinationArgs(amp=aws.amp.ScraperDestinationAmpArgs(workspace_arn=prometheus.arn)),
        opts=child,
    )


def configuration(cluster: str) -> str:
    """Prometheus' own configuration: pods with a port of that name, and of them the figures of training alone."""
    kept = {"source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": PORT_NAME, "action": "keep"}
    # A pod that has ended is listed until it is deleted.
    running = {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Running", "action": "keep"}
    group = f"pod_label_{GROUP_LABEL}".translate(str.maketrans("./-", "___"))
    labels = [("pod_node_name", "node"), ("namespace", "namespace"), ("pod_name", "pod"), (group, "group")]
    labels += [(f"pod_label_{one}", "hpc_job") for one in _JOB_LABELS]
    named: list[dict[str, Any]] = [
        {"source_labels": [f"__meta_kubernetes_{source}"], "regex": "(.+)", "target_label": label}
        for source, label in labels
    ]
    job = {
        "job_name": "training",
        "kubernetes_sd_configs": [{"role": "pod"}],
        "relabel_configs": [kept, running, *named, {"target_label": "cluster", "replacement": cluster}],
        "metric_relabel_configs": [
            {"source_labels": ["__name__"], "regex": "hyperpod_training_.+", "action": "keep"},
        ],
    }
    return yaml.safe_dump({"global": {"scrape_interval": f"{_SECONDS}s"}, "scrape_configs": [job]}, sort_keys=False)


def sources(config: Config) -> tuple[str, ...] | None:
    """The blocks of addresses that it reads from, None without one. Empty where the stack does not know them, in a VPC
    that was there before."""
    network = config.settings.network
    if config.settings.observability.scraper == "none":
        return None
    return () if network.vpc_id else plan_subnets(network.cidr, network.secondary_cidr).eks
