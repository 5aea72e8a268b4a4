"""The workspaces of metrics: Amazon Managed Service for Prometheus with alert rules, and Amazon Managed Grafana."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pulumi_aws as aws
from pulumi import ComponentResource, Output, ResourceOptions

from ..alerts import rule_groups
from ..common.context import Context, Prometheus
from ..storage.file_systems import Storage
from ..workers.instance_groups import InstanceGroup
from . import grafana, keys


@dataclass(frozen=True, kw_only=True)
class ObservabilityArgs:
    """Inputs of the workspaces: their keys, the file system whose throughput rules use, and the keys that select the
    rules.
    """

    context: Context
    observability: keys.Observability
    storage: Storage
    orchestrator: str
    accelerator: str
    workers: Sequence[InstanceGroup]


class Observability(ComponentResource):
    """Owns the Prometheus workspace with its rule groups, and the Grafana workspace with its role, if the stack creates
    them. Of an existing workspace it owns only the rule groups.

    Nodes that collect read the workspace's address when they boot, so their parameters wait for it, and so does the
    permission to write to it. Nothing waits for Grafana. Deliberately absent: the collectors (``lifecycle/``, and the
    add-on on EKS), and dashboards.
    """

    prometheus: Prometheus
    outputs: dict[str, Output[str]]

    def __init__(self, name: str, args: ObservabilityArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Observability", name, None, opts)
        self._name, self._child = name, ResourceOptions(parent=self)
        context, chosen = args.context, args.observability
        self.prometheus = _existing(chosen.existing_prometheus, context) or self._workspace(context)
        aws.amp.RuleGroupNamespace(
            f"{name}-rules",
            name=context.names.cluster,
            workspace_id=self.prometheus.id,
            data=args.storage.bandwidth.apply(
                lambda bandwidth: rule_groups.namespace(
                    context.names.cluster, args.orchestrator, args.accelerator, args.workers, bandwidth
                )
            ),
            opts=self._child,
        )
        self.outputs = {
            "prometheusEndpoint": self.prometheus.endpoint,
            "prometheusWorkspaceId": self.prometheus.id,
        }
        if chosen.grafana == "create":
            made = grafana.workspace(
                f"{name}-grafana",
                replace(context, prometheus=self.prometheus),
                self.prometheus.arn,
                chosen.grafana_authentication,
                self._child,
            )
            self.outputs |= {
                "grafanaUrl": made.endpoint.apply(lambda endpoint: f"https://{endpoint}"),
                "grafanaWorkspaceId": made.id,
            }
        elif workspace := chosen.existing_grafana:
            # Amazon Managed Grafana API Reference, WorkspaceDescription, endpoint.
            address = f"{workspace}.grafana-workspace.{context.region.name}.{context.region.dns_suffix}"
            self.outputs |= {
                "grafanaUrl": Output.from_input(f"https://{address}"),
                "grafanaWorkspaceId": Output.from_input(workspace),
            }
        self.register_outputs(self.outputs)

    def _workspace(self, context: Context) -> Prometheus:
        made = aws.amp.Workspace(
            f"{self._name}-prometheus", alias=context.names.cluster, kms_key_arn=context.key, opts=self._child
        )
        return Prometheus(made.arn, made.id, made.prometheus_endpoint)


def _existing(arn: str | None, context: Context) -> Prometheus | None:
    """Return the workspace with an ARN; None without one."""
    if arn is None:
        return None
    workspace, region = arn.rsplit("/", 1)[1], context.region
    # Amazon Managed Service for Prometheus User Guide, "Prometheus-compatible APIs".
    endpoint = f"https://aps-workspaces.{region.name}.{region.dns_suffix}/workspaces/{workspace}/"
    return Prometheus(Output.from_input(arn), Output.from_input(workspace), Output.from_input(endpoint), own=False)
