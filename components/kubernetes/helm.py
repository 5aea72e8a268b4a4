"""The HyperPod Helm chart, through pulumi-kubernetes: device plugins, training operators, health agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, ResourceOptions

from ..catalogue.regions import Region
from ..workers.instance_groups import InstanceGroup
from .charts import HYPERPOD
from .keys import Charts
from .node_placement import HEALTH_LABEL, preferred_nodes
from .pod_resources import efa_interfaces, tolerations

RELEASE_NAME = "hyperpod-dependencies"
NAMESPACE = "kube-system"
# Applying it takes a minute; hooks were seen to take three.
_TIMEOUT_SECONDS = 600
# AWS Neuron documentation, "Neuron Scheduler Extension": a separate scheduler, which places pods on neighbouring cores.
# Public configurations of 2026 install version 1.10.0.
NEURON_SCHEDULER = "neuron-scheduler"
_NEURON_CHART, _NEURON_CHART_VERSION = "oci://public.ecr.aws/neuron/neuron-helm-chart", "1.10.0"
# The chart's own tolerations for each plugin, which our list replaces.
_UNHEALTHY = {
    "key": HEALTH_LABEL,
    "operator": "Equal",
    "value": "Unschedulable",
    "effect": "NoSchedule",
}
_PLUGINS = {
    "nvidia-device-plugin": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, _UNHEALTHY],
    "aws-efa-k8s-device-plugin": [
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"key": "aws.amazon.com/efa", "operator": "Exists", "effect": "NoSchedule"},
        _UNHEALTHY,
    ],
}
# Where the HyperPod chart puts cert-manager; no chart makes that namespace (values.yaml of both).
CERT_MANAGER = "cert-manager"
# The Deployments of cert-manager's chart besides its controller.
_CERT_MANAGER_PARTS = ("webhook", "cainjector")
# The tag that the chart itself would use; the image is named here to get the account and the region right.
_HEALTH_AGENT_IMAGE = "hyperpod-health-monitoring-agent:1.0.1892.0_1.0.424.0"


@dataclass(frozen=True, kw_only=True)
class HyperPodChartArgs:
    """Inputs of the release. ``groups`` are the worker groups: device plugins tolerate their taints, and operators
    prefer those without accelerators.

    ``image_registry`` mirrors, for a closed network, the three images that the chart takes from public registries:
    k8s-device-plugin, mpi-operator, training-operator. The rest come from AWS's own ECR in the region.
    """

    region: Region
    accelerator: str
    charts: Charts
    groups: Sequence[InstanceGroup] = ()
    image_registry: str | None = None


class HyperPodChart(ComponentResource):
    """Owns the Helm release that HyperPod requires before it accepts an EKS cluster, and Neuron's scheduler.

    Neither install nor uninstall waits for pods: they stay pending until HyperPod brings nodes. The cluster roles that
    Kubernetes itself aggregates may outlive an uninstall, because their controller writes them back during the
    deletion. So the release takes over existing objects with its names.
    """

    release: kubernetes.helm.v3.Release

    def __init__(self, name: str, args: HyperPodChartArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:HyperPodChart", name, None, opts)
        if args.charts.health_monitoring and not args.region.health_agent_account:
            pulumi.log.warn(
                f"AWS publishes no image of the health monitoring agent for {args.region.name}: nodes are not watched",
                self,
            )
        before: list[pulumi.Resource] = []
        if args.charts.cert_manager:
            home = kubernetes.core.v1.Namespace(
                f"{name}-{CERT_MANAGER}",
                metadata=kubernetes.meta.v1.ObjectMetaArgs(name=CERT_MANAGER),
                opts=ResourceOptions(parent=self),
            )
            before.append(home)
        self.release = kubernetes.helm.v3.Release(
            f"{name}-release",
            name=RELEASE_NAME,
            namespace=NAMESPACE,
            chart=f"./{HYPERPOD.path}",
            values=chart_values(args),
            skip_await=True,
            take_ownership=True,
            timeout=_TIMEOUT_SECONDS,
            opts=ResourceOptions(parent=self, depends_on=before),
        )
        if args.charts.neuron_scheduler:
            kubernetes.helm.v3.Release(
                f"{name}-neuron-scheduler",
                name=NEURON_SCHEDULER,
                namespace=NAMESPACE,
                chart=_NEURON_CHART,
                version=_NEURON_CHART_VERSION,
                # The HyperPod chart has the device plugin, and HyperPod itself does node recovery.
                values={
                    "devicePlugin": {"enabled": False},
                    "npd": {"enabled": False},
                    "scheduler": {"enabled": True, "customScheduler": {"fullnameOverride": NEURON_SCHEDULER}},
                },
                skip_await=True,
                timeout=_TIMEOUT_SECONDS,
                opts=ResourceOptions(parent=self),
            )
        self.register_outputs({})


def chart_values(args: HyperPodChartArgs) -> dict[str, Any]:
    """Return the chart's values: only what this accelerator needs is on, and every image is set explicitly."""
    gpu, charts, region = args.accelerator == "gpu", args.charts, args.region
    agent = region.health_agent_account
    # The plugin ends, again and again, where it finds no device (aws/sagemaker-hyperpod-cli, issue 367), and a type
    # that its list lacks talks over TCP (aws-samples/aws-do-eks, pull request 56).
    efa = sorted({row.name for group in args.groups if efa_interfaces(group) for row in group.types})
    values: dict[str, Any] = {
        "global": {"region": region.name},
        CERT_MANAGER: {"enabled": charts.cert_manager},
        "nvidia-device-plugin": {"devicePlugin": {"enabled": gpu}},
        "neuron-device-plugin": {"devicePlugin": {"enabled": not gpu}},
        "aws-efa-k8s-device-plugin": {
            "devicePlugin": {"enabled": bool(efa)},
            "image": {"repository": f"{region.registry(region.eks_images_account)}/eks/aws-efa-k8s-device-plugin"},
            **({"supportedInstanceLabels": {"values": efa}} if efa else {}),
        },
        "mpi-operator": {"enabled": charts.mpi_operator},
        "trainingOperators": {"enabled": charts.training_operator},
        "health-monitoring-agent": {"enabled": charts.health_monitoring and agent is not None},
        "deep-health-check": {"enabled": charts.deep_health_check},
        "job-auto-restart": {"enabled": charts.job_auto_restart},
    }
    if charts.cert_manager:
        # Its check of itself is a hook: Helm would wait for that pod, and the nodes wait for Helm.
        values[CERT_MANAGER]["startupapicheck"] = {"enabled": False}
    if agent:
        values["health-monitoring-agent"] |= {
            "region": region.name,
            "hmaimage": f"{region.registry(agent)}/{_HEALTH_AGENT_IMAGE}",
        }
    if nodes := preferred_nodes(args.groups):
        affinity = {"nodeAffinity": nodes}
        values["mpi-operator"]["mpiOperator"] = {"affinity": affinity}
        # The chart has no values for the training operator's nodes.
        if charts.cert_manager:
            values[CERT_MANAGER] |= {"affinity": affinity}
            values[CERT_MANAGER] |= {part: {"affinity": affinity} for part in _CERT_MANAGER_PARTS}
    if taints := tolerations(args.groups):
        for plugin, own in _PLUGINS.items():
            values[plugin]["tolerations"] = own + [taint for taint in taints if taint not in own]
    if args.image_registry:
        values["nvidia-device-plugin"]["image"] = {"repository": f"{args.image_registry}/k8s-device-plugin"}
        operator = values["mpi-operator"].setdefault("mpiOperator", {})
        operator["image"] = {"repository": f"{args.image_registry}/mpi-operator"}
        values["training-operators"] = {"image": {"repository": f"{args.image_registry}/training-operator"}}
    return values
