"""The HyperPod Helm chart, through pulumi-kubernetes: device plugins, training operators, health agents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, ResourceOptions

# The chart is published only as a folder of a git repository, so it is pinned by commit and brought into the project.
CHART_REPOSITORY = "aws/sagemaker-hyperpod-cli"
CHART_COMMIT = "011ca927123e02b35a399935bbb3ab1905fe33c7"
CHART_FOLDER = "helm_chart/HyperPodHelmChart"
CHART_PATH = Path("charts/HyperPodHelmChart")
RELEASE_NAME = "hyperpod-dependencies"
NAMESPACE = "kube-system"
# Applying it takes a minute; hooks have been seen to take three.
_TIMEOUT_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class HyperPodChartArgs:
    """What the release is made from.

    ``image_registry`` mirrors, for a closed network, the three images that the chart takes from public registries:
    k8s-device-plugin, mpi-operator, training-operator. The rest come from AWS's own ECR in the region.
    """

    region: str
    accelerator: str
    image_registry: str | None = None


class HyperPodChart(ComponentResource):
    """Owns the Helm release that HyperPod wants to see before it accepts an EKS cluster.

    Nothing waits for pods: they stay pending until HyperPod brings nodes. The region is set explicitly, since the
    chart's own look-up guesses it from nodes that are not there yet.
    """

    release: kubernetes.helm.v3.Release

    def __init__(self, name: str, args: HyperPodChartArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:HyperPodChart", name, None, opts)
        if not CHART_PATH.is_dir():
            pulumi.log.warn(
                f"the HyperPod chart is not in {CHART_PATH}: take {CHART_FOLDER} of {CHART_REPOSITORY} at commit "
                f"{CHART_COMMIT[:12]} and run `helm dependency build` in it, or the release cannot be installed",
                self,
            )
        self.release = kubernetes.helm.v3.Release(
            f"{name}-release",
            name=RELEASE_NAME,
            namespace=NAMESPACE,
            chart=f"./{CHART_PATH}",
            values=chart_values(args),
            skip_await=True,
            timeout=_TIMEOUT_SECONDS,
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({})


def chart_values(args: HyperPodChartArgs) -> dict[str, Any]:
    """The chart's values: only what this accelerator needs is on."""
    gpu = args.accelerator == "gpu"
    values: dict[str, Any] = {
        "global": {"region": args.region},
        "nvidia-device-plugin": {"devicePlugin": {"enabled": gpu}},
        "neuron-device-plugin": {"devicePlugin": {"enabled": not gpu}},
        "aws-efa-k8s-device-plugin": {"devicePlugin": {"enabled": True}},
        "mpi-operator": {"enabled": True},
        "trainingOperators": {"enabled": True},
        "health-monitoring-agent": {"enabled": True},
        "deep-health-check": {"enabled": True},
        "job-auto-restart": {"enabled": True},
    }
    if args.image_registry:
        values["nvidia-device-plugin"]["image"] = {"repository": f"{args.image_registry}/k8s-device-plugin"}
        values["mpi-operator"]["mpiOperator"] = {"image": {"repository": f"{args.image_registry}/mpi-operator"}}
        values["training-operators"] = {"image": {"repository": f"{args.image_registry}/training-operator"}}
    return values
