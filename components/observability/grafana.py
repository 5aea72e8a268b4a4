"""A workspace of Amazon Managed Grafana, and its permissions to read."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from ..common.context import Context
from ..common.names import events_log_group, log_group
from ..common.policies import Statement, allow, assume_role, document
from ..security.encryption import log_statements, workspace_statements

# Amazon Managed Service for Prometheus User Guide, "IAM permissions and policies": queries; rules and alerts, which
# Grafana shows; and silences, which people set there.
_QUERY = (
    "aps:DescribeWorkspace",
    "aps:GetLabels",
    "aps:GetMetricMetadata",
    "aps:GetSeries",
    "aps:QueryMetrics",
    "aps:GetAlertManagerStatus",
    "aps:ListAlertManagerAlertGroups",
    "aps:ListAlertManagerAlerts",
    "aps:ListAlertManagerReceivers",
    "aps:ListAlerts",
    "aps:ListRules",
    "aps:DeleteAlertManagerSilence",
    "aps:GetAlertManagerSilence",
    "aps:ListAlertManagerSilences",
    "aps:PutAlertManagerSilences",
)
# Amazon Managed Grafana User Guide, "Workspace configuration": without it Grafana does not show Prometheus' alerts.
_CONFIGURATION = {"unifiedAlerting": {"enabled": True}}
# These cannot name a resource (Service Authorization Reference).
_LISTS = (
    "aps:ListWorkspaces",
    "cloudwatch:GetMetricData",
    "cloudwatch:ListMetrics",
    "logs:DescribeLogGroups",
    "logs:StopQuery",
)
_READ_LOGS = ("logs:GetLogEvents", "logs:GetQueryResults", "logs:StartQuery")


def workspace(
    name: str, context: Context, prometheus: Output[str], sign_in: Sequence[str], child: ResourceOptions
) -> aws.grafana.Workspace:
    """Create a workspace whose role reads one Prometheus workspace, the account's CloudWatch metrics and this cluster's
    logs.

    ``prometheus`` is that workspace's ARN; ``sign_in`` are the ways to sign in.
    """
    role = aws.iam.Role(
        name,
        name=context.names.role("grafana"),
        assume_role_policy=assume_role("grafana.amazonaws.com", context.account),
        permissions_boundary=context.boundary,
        opts=child,
    )
    aws.iam.RolePolicy(
        name,
        role=role.name,
        policy=Output.all(prometheus, context.key).apply(
            lambda both: document(
                [
                    allow(_QUERY, [both[0]]),
                    *_cloudwatch(context),
                    *(log_statements(context, both[1]) if both[1] else ()),
                    *workspace_statements(context, both[1]),
                ]
            )
        ),
        opts=child,
    )
    return aws.grafana.Workspace(
        name,
        name=context.names.cluster,
        account_access_type="CURRENT_ACCOUNT",
        authentication_providers=sorted(sign_in),
        # Amazon Managed Grafana API Reference, CreateWorkspace: AWS manages the role only from the console, and the
        # list of data sources is not to be used. `hyperpod dashboards` makes the one for Prometheus.
        permission_type="CUSTOMER_MANAGED",
        configuration=json.dumps(_CONFIGURATION),
        role_arn=role.arn,
        kms_key_id=context.key,
        opts=child,
    )


def _cloudwatch(context: Context) -> list[Statement]:
    """Allow reading the account's metrics and alarms, and this cluster's logs: nodes, events, VPC flows and EKS."""
    cluster = context.names.cluster
    groups = (
        f"/aws/sagemaker/Clusters/{cluster}/*",
        events_log_group(cluster),
        f"/aws/eks/{cluster}/*",
        f"/aws/containerinsights/{cluster}/*",
        log_group(cluster, "*"),
    )
    logs = [context.arn("logs", f"log-group:{group}:*") for group in groups]
    return [
        allow(_LISTS, ["*"]),
        allow(["cloudwatch:DescribeAlarms"], [context.arn("cloudwatch", "alarm:*")]),
        allow(_READ_LOGS, logs),
    ]
