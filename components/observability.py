"""Where metrics go: Amazon Managed Prometheus with alert rules, and Amazon Managed Grafana. Nothing waits for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pulumi_aws as aws
from pulumi import ComponentResource, Output, ResourceOptions

from .names import Names
from .policies import Statement, allow, assume_role, document

_ALERTS = Path(__file__).parent / "alerts"
_QUERY = ("aps:GetLabels", "aps:GetMetricMetadata", "aps:GetSeries", "aps:QueryMetrics", "aps:DescribeWorkspace")
# These cannot name a resource (Service Authorization Reference).
_LISTS = (
    "aps:ListWorkspaces",
    "cloudwatch:GetMetricData",
    "cloudwatch:ListMetrics",
    "logs:DescribeLogGroups",
    "logs:StopQuery",
)
_READ_LOGS = ("logs:GetLogEvents", "logs:GetQueryResults", "logs:StartQuery")


@dataclass(frozen=True, kw_only=True)
class ObservabilityArgs:
    """What the workspaces are made from. ``accelerator`` picks the alert rules next to the common ones."""

    names: Names
    partition: str
    account: str
    accelerator: str


class Observability(ComponentResource):
    """Owns the Prometheus workspace, its rule groups, the Grafana workspace and Grafana's role.

    Grafana signs people in through IAM Identity Center, which the account must have. Deliberately absent: what writes
    metrics (exporters, a collector and its right to write), imported dashboards, an alert manager. docs/metrics.md
    says what to install; until then no rule can fire.
    """

    prometheus_endpoint: Output[str]
    grafana_url: Output[str]

    def __init__(self, name: str, args: ObservabilityArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Observability", name, None, opts)
        child = ResourceOptions(parent=self)
        workspace = aws.amp.Workspace(f"{name}-prometheus", alias=args.names.cluster, opts=child)
        for rules in ("common", args.accelerator):
            aws.amp.RuleGroupNamespace(
                f"{name}-{rules}",
                name=rules,
                workspace_id=workspace.id,
                data=(_ALERTS / f"{rules}.yaml").read_text(),
                opts=child,
            )
        role = aws.iam.Role(
            f"{name}-grafana",
            name=args.names.role("grafana"),
            assume_role_policy=assume_role("grafana.amazonaws.com", args.account),
            opts=child,
        )
        aws.iam.RolePolicy(
            f"{name}-grafana",
            role=role.name,
            policy=workspace.arn.apply(lambda arn: document([allow(_QUERY, [arn]), *self._cloudwatch(args)])),
            opts=child,
        )
        grafana = aws.grafana.Workspace(
            f"{name}-grafana",
            name=args.names.cluster,
            account_access_type="CURRENT_ACCOUNT",
            authentication_providers=["AWS_SSO"],
            permission_type="SERVICE_MANAGED",
            data_sources=["PROMETHEUS", "CLOUDWATCH"],
            role_arn=role.arn,
            opts=child,
        )
        self.prometheus_endpoint = workspace.prometheus_endpoint
        self.grafana_url = grafana.endpoint.apply(lambda endpoint: f"https://{endpoint}")
        self.register_outputs({"prometheusEndpoint": self.prometheus_endpoint, "grafanaUrl": self.grafana_url})

    @staticmethod
    def _cloudwatch(args: ObservabilityArgs) -> list[Statement]:
        """Metrics and alarms of the account, and the logs that are this cluster's: of nodes, events, flows and EKS."""
        cluster, here = args.names.cluster, f"{args.names.region}:{args.account}"
        groups = (
            f"/aws/sagemaker/Clusters/{cluster}/*",
            f"/aws/events/hyperpod/{cluster}",
            f"/aws/eks/{cluster}/*",
            f"/aws/containerinsights/{cluster}/*",
            f"/hyperpod/{cluster}/*",
        )
        logs = [f"arn:{args.partition}:logs:{here}:log-group:{group}:*" for group in groups]
        return [
            allow(_LISTS, ["*"]),
            allow(["cloudwatch:DescribeAlarms"], [f"arn:{args.partition}:cloudwatch:{here}:alarm:*"]),
            allow(_READ_LOGS, logs),
        ]
