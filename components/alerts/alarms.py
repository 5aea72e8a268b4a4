"""CloudWatch's part of alerting, which needs no agent: alarms on the file system and on events, and a dashboard."""

from __future__ import annotations

import json
from typing import Any

import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from ..common.context import Context
from ..common.names import events_log_group
from ..storage.file_systems import Storage

# Amazon FSx for Lustre User Guide, "Amazon FSx for Lustre metrics and dimensions": one sample a minute from each disk
# or file server, which Sum adds up. FreeDataStorageCapacity is in bytes.
_NAMESPACE = "AWS/FSx"
_LEAST_FREE = 0.1
_BUSY = 0.9
_GIB = 2**30
_MINUTE = 60
# A node that fails is tried again, and takes 10 to 25 minutes each time: its failures are one alarm.
_QUIET_MINUTES = 60


def alarms(
    name: str, context: Context, storage: Storage, topic: Output[str], child: ResourceOptions, *, grown: bool
) -> None:
    """Create the file system's alarms: under a tenth free for 10 minutes, over 90 % of the provisioned throughput for
    15.
    """
    where = {"FileSystemId": storage.file_system_id}
    larger, slower = ("raise fsx.storageGiB", "; see fsx.throughput") if grown else ("grow it", "")
    aws.cloudwatch.MetricAlarm(
        f"{name}-fsx-capacity",
        name=f"{context.names.cluster_id}-fsx-capacity",
        alarm_description=f"/fsx of {context.names.cluster} is over 90 % full: delete files, or {larger}",
        namespace=_NAMESPACE,
        metric_name="FreeDataStorageCapacity",
        dimensions=where,
        statistic="Sum",
        period=_MINUTE,
        evaluation_periods=10,
        comparison_operator="LessThanThreshold",
        threshold=storage.capacity_gib.apply(lambda gib: round(gib * _GIB * _LEAST_FREE)),
        alarm_actions=[topic],
        ok_actions=[topic],
        treat_missing_data="notBreaching",
        opts=child,
    )
    moved = {
        one: aws.cloudwatch.MetricAlarmMetricQueryArgs(
            id=one,
            metric=aws.cloudwatch.MetricAlarmMetricQueryMetricArgs(
                namespace=_NAMESPACE, metric_name=metric, dimensions=where, stat="Sum", period=_MINUTE
            ),
        )
        for one, metric in (("read", "DataReadBytes"), ("written", "DataWriteBytes"))
    }
    total = aws.cloudwatch.MetricAlarmMetricQueryArgs(
        id="moved", expression="(read + written) / PERIOD(read)", label="bytes per second", return_data=True
    )
    aws.cloudwatch.MetricAlarm(
        f"{name}-fsx-throughput",
        name=f"{context.names.cluster_id}-fsx-throughput",
        alarm_description=f"/fsx of {context.names.cluster} is at its throughput: jobs wait for it{slower}",
        metric_queries=[*moved.values(), total],
        evaluation_periods=15,
        comparison_operator="GreaterThanThreshold",
        threshold=storage.bandwidth.apply(lambda bandwidth: round(bandwidth * _BUSY)),
        alarm_actions=[topic],
        ok_actions=[topic],
        treat_missing_data="notBreaching",
        opts=child,
    )


def events_alarm(
    name: str, context: Context, rule: Output[str], topic: Output[str], step: str, child: ResourceOptions
) -> None:
    """Create an alarm that sends one message when a rule matches an event, and the next only after an hour without.

    EventBridge counts a rule's events by the minute (EventBridge User Guide, "Monitoring Amazon EventBridge",
    MatchedEvents); an alarm acts when it changes its state (CloudWatch User Guide, "Alarm evaluation", M out of N).
    """
    aws.cloudwatch.MetricAlarm(
        f"{name}-nodes",
        name=f"{context.names.cluster_id}-nodes",
        alarm_description=f"Nodes of {context.names.cluster} failed, or their health changed: {step}",
        namespace="AWS/Events",
        metric_name="MatchedEvents",
        dimensions={"RuleName": rule},
        statistic="Sum",
        period=_MINUTE,
        evaluation_periods=_QUIET_MINUTES,
        datapoints_to_alarm=1,
        comparison_operator="GreaterThanThreshold",
        threshold=0,
        alarm_actions=[topic],
        treat_missing_data="notBreaching",
        opts=child,
    )


def dashboard(name: str, context: Context, file_system: Output[str], child: ResourceOptions, *, recorded: bool) -> None:
    """Create a dashboard of the file system, the alarms, and HyperPod's events if the stack records them."""
    aws.cloudwatch.Dashboard(
        f"{name}-dashboard",
        dashboard_name=context.names.cluster_id,
        dashboard_body=file_system.apply(
            lambda one: json.dumps({"widgets": _widgets(context, one, recorded)}, sort_keys=True)
        ),
        opts=child,
    )


def _widgets(context: Context, file_system: str, recorded: bool) -> list[dict[str, Any]]:
    rows: list[tuple[str, dict[str, Any]]] = [
        ("alarm", {"title": "Alarms", "alarms": _alarm_arns(context)}),
        ("metric", _graph(context, file_system, "Free on /fsx, bytes", "Sum", "FreeDataStorageCapacity")),
        ("metric", _graph(context, file_system, "/fsx, bytes a minute", "Sum", "DataReadBytes", "DataWriteBytes")),
        ("metric", _graph(context, file_system, "Metadata operations of /fsx a minute", "Sum", "MetadataOperations")),
    ]
    if recorded:
        group = events_log_group(context.names.cluster)
        query = f"SOURCE '{group}' | fields @timestamp, `detail-type`, @message | sort @timestamp desc | limit 50"
        rows.append(("log", {"title": "Events of HyperPod", "query": query, "view": "table"}))
    place = {"region": context.region.name}
    return [
        {
            "type": kind,
            "x": 12 * (at % 2),
            "y": 6 * (at // 2),
            "width": 12,
            "height": 6,
            "properties": place | properties,
        }
        for at, (kind, properties) in enumerate(rows)
    ]


def _alarm_arns(context: Context) -> list[str]:
    watched = ("fsx-capacity", "fsx-throughput", "nodes")
    return [context.arn("cloudwatch", f"alarm:{context.names.cluster_id}-{what}") for what in watched]


def _graph(context: Context, file_system: str, title: str, statistic: str, *metrics: str) -> dict[str, Any]:
    shown = [[_NAMESPACE, metric, "FileSystemId", file_system] for metric in metrics]
    return {"title": title, "metrics": shown, "stat": statistic, "period": _MINUTE, "view": "timeSeries"}
