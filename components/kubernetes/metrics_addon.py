"""SageMaker's add-on that collects metrics on EKS: exporters for nodes, accelerators and network, and a collector."""

import json
from collections.abc import Sequence
from typing import Any

from ..common.context import Context, Prometheus
from ..common.policies import Statement, allow
from ..observability.keys import Observability
from ..workers.instance_groups import InstanceGroup

ADDON = "amazon-sagemaker-hyperpod-observability"
# Amazon SageMaker Developer Guide, "Troubleshooting the Amazon SageMaker HyperPod observability add-on": the add-on's
# namespace is hyperpod-observability, where EKS makes the association.
SERVICE_ACCOUNT = "hyperpod-observability-operator-otel-collector"
_SCRAPE_SECONDS = 30


def workspace(context: Context, chosen: Observability) -> Prometheus | None:
    """Return the workspace to which it writes; None without one, and if another collector replaces it."""
    return None if chosen.scraper == "everything" else context.prometheus


def configuration(
    chosen: Observability, groups: Sequence[InstanceGroup], governed: bool, workspace: str, endpoint: str
) -> str:
    """Return the add-on's configuration values; ``workspace`` is an ARN, ``governed``: by task governance.

    Its keys are those of AWS's module (github.com/awslabs, hyperpod observability). Network metrics, which are EFA's,
    task governance and scaling are off by default ("Cluster metrics" of the guide). Deliberately absent: a Grafana
    workspace, into which it imports nothing by itself, and metrics of inference and scaling, which this project does
    not use.
    """
    level = chosen.detail.upper()
    levels = {
        "trainingMetrics": level,
        "customMetrics": level,
        "nodeMetrics": level,
        "acceleratedComputeMetrics": level,
        "networkMetrics": level if any(group.type.efa_interfaces for group in groups) else "DISABLED",
        "taskGovernanceMetrics": level if governed else "DISABLED",
        "inferenceMetrics": "DISABLED",
        "scalingMetrics": "DISABLED",
    }
    values: dict[str, Any] = {
        # The collector appends a path that begins with a slash.
        "ampWorkspace": {"arn": workspace, "prometheusEndpoint": endpoint.rstrip("/")},
        "metricsProvider": {one: {"level": level, "scrapeInterval": _SCRAPE_SECONDS} for one, level in levels.items()},
        "logging": {"enabled": chosen.logs},
    }
    return json.dumps(values, sort_keys=True)


def statements(context: Context, workspace: str, *, logs: bool) -> list[Statement]:
    """Allow the collector to write to the one workspace, and with ``logs`` to this cluster's log groups.

    The guide's own example names every cluster's log groups, and allows reading them.
    """
    found = [allow(["aps:RemoteWrite"], [workspace])]
    if logs:
        group = context.arn("logs", f"log-group:/aws/sagemaker/Clusters/{context.names.cluster}/*")
        found += [
            allow(["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams"], [group]),
            allow(["logs:PutLogEvents"], [f"{group}:log-stream:*"]),
        ]
    return found
