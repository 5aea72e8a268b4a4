"""Watches the cluster: HyperPod's events in a log group, and the on-node checks as SSM documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi_aws as aws
from pulumi import ComponentResource, ResourceOptions

from ..common.context import Context
from ..common.names import events_log_group
from ..common.policies import allow, document

# Amazon SageMaker Developer Guide, "Events that Amazon SageMaker AI sends to EventBridge".
EVENTS = (
    "SageMaker HyperPod Cluster State Change",
    "SageMaker HyperPod Cluster Node Health Event",
    "SageMaker HyperPod Cluster Event",
)
EVENT_LOG_DAYS = 90


@dataclass(frozen=True, kw_only=True)
class ValidationArgs:
    """Inputs of the validation. ``benchmarks``: also a document that runs the benchmark."""

    context: Context
    benchmarks: bool = False


class Validation(ComponentResource):
    """Owns the rule and log group for HyperPod's state, provisioning and node health events, and the SSM documents.

    Nothing runs during a deployment, so a failed check can never roll a cluster back. A person or CI runs a document on
    a node when it suits them.
    """

    def __init__(self, name: str, args: ValidationArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Validation", name, None, opts)
        context = args.context
        cluster, child = context.names.cluster, ResourceOptions(parent=self)
        logs = aws.cloudwatch.LogGroup(
            f"{name}-events",
            name=events_log_group(cluster),
            retention_in_days=EVENT_LOG_DAYS,
            kms_key_id=context.key,
            opts=child,
        )
        rule_name = f"{context.names.cluster_id}-events"
        # A policy of the log group itself: an account has only ten account-wide ones per region (CloudWatch Logs API
        # Reference, PutResourcePolicy).
        allowed = aws.cloudwatch.LogResourcePolicy(
            f"{name}-events",
            resource_arn=logs.arn,
            policy_document=_writers(context, context.arn("events", f"rule/{rule_name}")),
            opts=child,
        )
        rule = aws.cloudwatch.EventRule(
            f"{name}-events",
            name=rule_name,
            description=f"State, provisioning and node health of HyperPod cluster {cluster}",
            event_pattern=event_pattern(cluster),
            # PutRule takes an existing rule of this name over (EventBridge API Reference); CreateLogGroup refuses. A
            # second deployment of the stack must stop before it has a rule to delete that is the first one's.
            opts=ResourceOptions(parent=self, depends_on=[logs]),
        )
        aws.cloudwatch.EventTarget(
            f"{name}-events",
            rule=rule.name,
            arn=logs.arn,
            opts=ResourceOptions(parent=self, depends_on=[allowed]),
        )
        scripts = {"validate": "check the node"} | ({"benchmark": "run the benchmark"} if args.benchmarks else {})
        for script, what in scripts.items():
            aws.ssm.Document(
                f"{name}-{script}",
                name=context.names.document(script),
                document_type="Session",
                document_format="JSON",
                content=session_document(script, what),
                opts=child,
            )
        self.register_outputs({})


def _writers(context: Context, rule: str) -> str:
    """Allow EventBridge to write to the log group, for this rule only: other accounts' rules have the same principal.

    It creates a log stream without naming the rule, and writes with the rule's ARN (documentation of Terraform's
    aws_cloudwatch_event_target, "CloudWatch Log Group Usage"; EventBridge User Guide, "Cross-service confused deputy
    prevention").
    """
    services = {"Principal": {"Service": ["events.amazonaws.com", "delivery.logs.amazonaws.com"]}}
    group = context.arn("logs", f"log-group:{events_log_group(context.names.cluster)}:*")
    for_rule = {"ArnEquals": {"aws:SourceArn": rule}}
    return document(
        [
            {**services, **allow(["logs:CreateLogStream"], [group])},
            {**services, **allow(["logs:PutLogEvents"], [group], for_rule)},
        ]
    )


def event_pattern(cluster: str) -> str:
    """Return the pattern that EventBridge records: every event of this cluster."""
    return cluster_pattern(cluster, EVENTS)


def cluster_pattern(cluster: str, kinds: Sequence[str], only: Mapping[str, Any] | None = None) -> str:
    """Return a pattern for events of these kinds.

    The last of ``EVENTS``, sent with continuous provisioning, has its fields one level deeper (the same guide,
    "SageMaker HyperPod cluster events reference"); ``only`` are further conditions.
    """
    own = {"ClusterName": [cluster]}
    details = {"$or": [own, {"EventDetails": own | dict(only or {})}]}
    return json.dumps({"source": ["aws.sagemaker"], "detail-type": list(kinds), "detail": details}, sort_keys=True)


def session_document(script: str, what: str) -> str:
    """Return a Session Manager document that runs one of the node's commands: HyperPod nodes do not support Run
    Command.
    """
    return json.dumps(
        {
            "schemaVersion": "1.0",
            "description": f"HyperPod: {what}",
            "sessionType": "NonInteractiveCommands",
            "properties": {"linux": {"commands": f"sudo /opt/hyperpod/bin/hyperpod-{script}", "runAsElevated": True}},
        },
        sort_keys=True,
    )
