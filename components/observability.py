"""Where metrics go: Amazon Managed Prometheus with alert rules, and Amazon Managed Grafana.

No resource waits for them.
"""

from __future__ import annotations

from pathlib import Path

import pulumi_aws as aws
from pulumi import ComponentResource, Output, ResourceOptions

from .context import Context
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


class Observability(ComponentResource):
    """Owns the Prometheus workspace, its rule groups, the Grafana workspace and Grafana's role.

    Grafana signs people in through IAM Identity Center, which the account must have. Deliberately absent: whatever
    sends metrics (exporters, a collector and its permission), imported dashboards, an alert manager. docs/metrics.md
    says what to install; until then no rule can fire.
    """

    outputs: dict[str, Output[str]]

    def __init__(self, name: str, context: Context, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Observability", name, None, opts)
        child = ResourceOptions(parent=self)
        workspace = aws.amp.Workspace(
            f"{name}-prometheus", alias=context.names.cluster, kms_key_arn=context.key, opts=child
        )
        for rules in ("common", context.settings.accelerator):
            aws.amp.RuleGroupNamespace(
                f"{name}-{rules}",
                name=rules,
                workspace_id=workspace.id,
                data=(_ALERTS / f"{rules}.yaml").read_text(),
                opts=child,
            )
        role = aws.iam.Role(
            f"{name}-grafana",
            name=context.names.role("grafana"),
            assume_role_policy=assume_role("grafana.amazonaws.com", context.account),
            opts=child,
        )
        aws.iam.RolePolicy(
            f"{name}-grafana",
            role=role.name,
            policy=workspace.arn.apply(lambda arn: document([allow(_QUERY, [arn]), *self._cloudwatch(context)])),
            opts=child,
        )
        grafana = aws.grafana.Workspace(
            f"{name}-grafana",
            name=context.names.cluster,
            account_access_type="CURRENT_ACCOUNT",
            authentication_providers=["AWS_SSO"],
            permission_type="SERVICE_MANAGED",
            data_sources=["PROMETHEUS", "CLOUDWATCH"],
            role_arn=role.arn,
            kms_key_id=context.key,
            opts=child,
        )
        self.outputs = {
            "prometheusEndpoint": workspace.prometheus_endpoint,
            "grafanaUrl": grafana.endpoint.apply(lambda endpoint: f"https://{endpoint}"),
        }
        self.register_outputs(self.outputs)

    @staticmethod
    def _cloudwatch(context: Context) -> list[Statement]:
        """The account's metrics and alarms, and this cluster's logs: nodes, events, VPC flows and EKS."""
        cluster = context.names.cluster
        groups = (
            f"/aws/sagemaker/Clusters/{cluster}/*",
            f"/aws/events/hyperpod/{cluster}",
            f"/aws/eks/{cluster}/*",
            f"/aws/containerinsights/{cluster}/*",
            f"/hyperpod/{cluster}/*",
        )
        logs = [context.arn("logs", f"log-group:{group}:*") for group in groups]
        return [
            allow(_LISTS, ["*"]),
            allow(["cloudwatch:DescribeAlarms"], [context.arn("cloudwatch", "alarm:*")]),
            allow(_READ_LOGS, logs),
        ]
