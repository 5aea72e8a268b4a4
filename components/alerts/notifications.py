"""Notifications: a topic and its publishers, with or without Prometheus."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ComponentResource, Output, ResourceOptions

from ..common.context import Context
from ..common.policies import Statement, allow, deny, document
from ..health.validation import cluster_pattern
from ..storage.file_systems import Storage
from . import alarms, keys
from .alert_manager import definition

# "SageMaker HyperPod Cluster Event" is sent for every operation; the errors among them are enough
# (components/health/validation.py names the events' source). Events of nodes can come once for each of them.
_TOLD: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "cluster": (("SageMaker HyperPod Cluster State Change",), ("Cluster", "InstanceGroup")),
    "nodes": (("SageMaker HyperPod Cluster Node Health Event",), ("Instance",)),
}
# The next step for each; the verbs and pages are this project's.
_NEXT = "hyperpod errors {stack}; docs/troubleshooting.md finds the message by its words"
_NEXT_NODES = (
    "hyperpod errors {stack} and hyperpod node list {stack} say which; docs/health.md says what is done by itself"
)


@dataclass(frozen=True, kw_only=True)
class AlertsArgs:
    """Inputs of the notifications: their recipients, and the file system to watch. ``grown``: a key of the stack
    enlarges it; ``recorded``: a log group has HyperPod's events.
    """

    context: Context
    alerts: keys.Alerts
    storage: Storage
    grown: bool
    recorded: bool


class Alerts(ComponentResource):
    """Owns the topic with its policy and subscription, or none of these if you supply a topic; the rules for
    HyperPod's events, alarms and a dashboard of CloudWatch; and the alert manager of the stack's own Prometheus
    workspace.

    An e-mail address has to confirm its subscription. A given topic's policy is its owner's (docs/metrics.md has what
    it needs), and so is the alert manager of a given workspace, which has only one.
    """

    outputs: dict[str, Output[str]]

    def __init__(self, name: str, args: AlertsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Alerts", name, None, opts)
        context = self._context = args.context
        self._name, self._child = name, ResourceOptions(parent=self)
        self._workspace = context.prometheus if context.prometheus and context.prometheus.own else None
        given = args.alerts.topic_arn
        topic = Output.from_input(given) if given else self._topic(args.alerts.email or "")
        self._events(topic)
        alarms.alarms(name, context, args.storage, topic, self._child, grown=args.grown)
        alarms.dashboard(name, context, args.storage.file_system_id, self._child, recorded=args.recorded)
        if self._workspace:
            region = context.region.name
            aws.amp.AlertManagerDefinition(
                f"{name}-manager",
                workspace_id=self._workspace.id,
                definition=topic.apply(lambda arn: definition(arn, region)),
                opts=self._child,
            )
        self.outputs = {"alertsTopicArn": topic}
        self.register_outputs(self.outputs)

    def _topic(self, email: str) -> Output[str]:
        """Create the stack's own topic; return it once its publishers are allowed to publish."""
        context = self._context
        topic = aws.sns.Topic(
            f"{self._name}-topic",
            name=f"{context.names.cluster_id}-alerts",
            display_name=f"HyperPod {context.names.cluster}"[:100],
            kms_master_key_id=context.key,
            opts=self._child,
        )
        workspace = self._workspace.arn if self._workspace else None
        policy = aws.sns.TopicPolicy(
            f"{self._name}-topic",
            arn=topic.arn,
            policy=Output.all(topic.arn, workspace).apply(lambda arns: topic_policy(context, *arns)),
            opts=self._child,
        )
        aws.sns.TopicSubscription(
            f"{self._name}-email",
            topic=topic.arn,
            protocol="email",
            endpoint=email,
            opts=self._child,
        )
        return Output.all(topic.arn, policy.id).apply(lambda both: str(both[0]))

    def _events(self, topic: Output[str]) -> None:
        """Create a message for each event of the cluster or a group, and one alarm for any number of node events."""
        cluster, stack = self._context.names, pulumi.get_stack()
        rules = {}
        for what, (kinds, resources) in _TOLD.items():
            errors = {"EventLevel": ["Error"], "ResourceType": list(resources)}
            rules[what] = aws.cloudwatch.EventRule(
                f"{self._name}-{what}",
                name=f"{cluster.cluster_id}-alerts-{what}",
                description=f"What people are told of HyperPod cluster {cluster.cluster}: {what}",
                event_pattern=cluster_pattern(cluster.cluster, (*kinds, "SageMaker HyperPod Cluster Event"), errors),
                opts=self._child,
            )
        aws.cloudwatch.EventTarget(
            f"{self._name}-cluster",
            rule=rules["cluster"].name,
            arn=topic,
            input_transformer=aws.cloudwatch.EventTargetInputTransformerArgs(
                input_template=message(_NEXT.format(stack=stack))
            ),
            opts=self._child,
        )
        step = _NEXT_NODES.format(stack=stack)
        alarms.events_alarm(self._name, self._context, rules["nodes"].name, topic, step, self._child)


def message(step: str) -> str:
    """Return a message: the next step, then the whole event as AWS sends it.

    As a field's value, that variable needs no escapes (EventBridge User Guide, "Amazon EventBridge input
    transformation", "Predefined variables"); a variable for a field that an event lacks would break the message.
    """
    return f'{{"next": {json.dumps(step)}, "event": <aws.events.event.json>}}'


def topic_policy(context: Context, topic: str, workspace: str | None) -> str:
    """Return the topic's policy: TLS only, for three services: EventBridge, this account's alarms, one Prometheus
    workspace.

    EventBridge sends no condition keys, so topic policies for it have no condition (EventBridge User Guide, "Using
    resource-based policies", Amazon SNS). The others: CloudWatch User Guide, "Notifying users on alarm changes"; Amazon
    Managed Service for Prometheus User Guide, "Giving Amazon Managed Service for Prometheus permission to send alert
    messages to your Amazon SNS topic".
    """
    here = {"aws:SourceAccount": context.account}
    alarms = {"ArnLike": {"aws:SourceArn": context.arn("cloudwatch", "alarm:*")}, "StringEquals": here}
    insecure = {"Bool": {"aws:SecureTransport": "false"}}
    statements: list[Statement] = [
        {"Sid": "TlsOnly", "Principal": "*", **deny(["sns:Publish"], [topic], insecure)},
        _publish("Events", "events", allow(["sns:Publish"], [topic])),
        _publish("Alarms", "cloudwatch", allow(["sns:Publish"], [topic], alarms)),
    ]
    if workspace:
        one = {"ArnEquals": {"aws:SourceArn": workspace}, "StringEquals": here}
        statements.append(_publish("Prometheus", "aps", allow(["sns:GetTopicAttributes", "sns:Publish"], [topic], one)))
    return document(statements)


def _publish(sid: str, service: str, statement: Statement) -> Statement:
    return {"Sid": sid, "Principal": {"Service": f"{service}.amazonaws.com"}, **statement}
