"""Notifications: SNS topics, CloudWatch alarms and dashboards in moto, and alert managers as records."""

import json
from typing import Any

import yaml

from components.common.documents import load

from .books import Books, Inputs, Live, Refused
from .kinds import Kind, delete_by, register

_MANAGER = "aws:amp/alertManagerDefinition:AlertManagerDefinition"
# CloudWatch API Reference, PutMetricAlarm: AlarmActions.
_MOST_ACTIONS = 5


def _topic(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    given = {"DisplayName": i.get("displayName", ""), "KmsMasterKeyId": i.get("kmsMasterKeyId") or ""}
    attributes = {key: value for key, value in given.items() if value}
    arn = account.client("sns").create_topic(Name=i["name"], Attributes=attributes)["TopicArn"]
    return arn, {"arn": arn}


def _update_topic(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    for key, name in (("displayName", "DisplayName"), ("kmsMasterKeyId", "KmsMasterKeyId")):
        if live.inputs.get(key) != i.get(key):
            account.client("sns").set_topic_attributes(
                TopicArn=live.id, AttributeName=name, AttributeValue=i.get(key) or ""
            )
    return {}


def _topic_policy(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    """SetTopicAttributes. Amazon SNS refuses a policy about any other topic."""
    for statement in json.loads(i["policy"])["Statement"]:
        named = statement["Resource"]
        if any(one != i["arn"] for one in ([named] if isinstance(named, str) else named)):
            raise Refused("InvalidParameter", "Invalid parameter: Policy statement resource must match topic ARN")
    account.client("sns").set_topic_attributes(TopicArn=i["arn"], AttributeName="Policy", AttributeValue=i["policy"])
    return i["arn"], {"owner": account.account_id}


def _subscription(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    arn = account.client("sns").subscribe(
        TopicArn=i["topic"], Protocol=i["protocol"], Endpoint=i["endpoint"], ReturnSubscriptionArn=True
    )["SubscriptionArn"]
    return arn, {"arn": arn, "pendingConfirmation": i["protocol"] == "email"}


def _alarm(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    if ("metricName" in i) == bool(i.get("metricQueries")):
        raise Refused("ValidationError", "exactly one of MetricName and Metrics is required")
    if len(i.get("alarmActions") or []) > _MOST_ACTIONS:
        raise Refused("ValidationError", f"at most {_MOST_ACTIONS} alarm actions")
    request = {
        "AlarmName": i["name"],
        "AlarmDescription": i.get("alarmDescription", ""),
        "AlarmActions": i.get("alarmActions") or [],
        "OKActions": i.get("okActions") or [],
        "EvaluationPeriods": int(i["evaluationPeriods"]),
        "DatapointsToAlarm": int(i.get("datapointsToAlarm") or i["evaluationPeriods"]),
        "ComparisonOperator": i["comparisonOperator"],
        "Threshold": float(i["threshold"]),
        "TreatMissingData": i.get("treatMissingData", "missing"),
    }
    if "metricName" in i:
        request |= {"Namespace": i["namespace"], "MetricName": i["metricName"], "Statistic": i["statistic"]}
        request |= {"Period": int(i["period"]), "Dimensions": _dimensions(i)}
    else:
        request["Metrics"] = [_query(one) for one in i["metricQueries"]]
    account.client("cloudwatch").put_metric_alarm(**request)
    return i["name"], {"arn": account.arn("cloudwatch", f"alarm:{i['name']}")}


def _query(one: Inputs) -> dict[str, Any]:
    query = {"Id": one["id"], "ReturnData": bool(one.get("returnData"))}
    if metric := one.get("metric"):
        named = {
            "Namespace": metric["namespace"],
            "MetricName": metric["metricName"],
            "Dimensions": _dimensions(metric),
        }
        return {**query, "MetricStat": {"Metric": named, "Period": int(metric["period"]), "Stat": metric["stat"]}}
    return {**query, "Expression": one["expression"], "Label": one.get("label", "")}


def _dimensions(i: Inputs) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in (i.get("dimensions") or {}).items()]


def _dashboard(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    """CloudWatch API Reference, "Dashboard body structure and syntax": a grid of 24 columns."""
    for widget in json.loads(i["dashboardBody"])["widgets"]:
        if widget["x"] + widget["width"] > 24 or "region" not in widget["properties"]:
            raise Refused("InvalidParameterInput", f"The dashboard body is invalid: {widget}")
    account.client("cloudwatch").put_dashboard(DashboardName=i["dashboardName"], DashboardBody=i["dashboardBody"])
    return i["dashboardName"], {"dashboardArn": account.arn("cloudwatch", f"dashboard/{i['dashboardName']}", region="")}


def _manager(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    if any(account.find(_MANAGER, workspaceId=i["workspaceId"])):
        raise Refused("ConflictException", f"{i['workspaceId']} has an alert manager definition")
    _check_manager(i)
    return i["workspaceId"], {}


def _check_manager(i: Inputs) -> None:
    """Amazon Managed Service for Prometheus User Guide, "Creating an alert manager configuration": one text under one
    key; every receiver is SNS, signed for a region; repeat_interval is at most five days."""
    try:
        inner = load(load(i["definition"])["alertmanager_config"])
        receivers = {one["name"]: one for one in inner["receivers"]}
        wanted = {inner["route"]["receiver"], *(one["receiver"] for one in inner["route"].get("routes", []))}
        complete = wanted <= receivers.keys() and all(
            one.keys() <= {"name", "sns_configs"} and all("topic_arn" in to and to["sigv4"]["region"] for to in given)
            for one in receivers.values()
            for given in (one.get("sns_configs", []),)
        )
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise Refused("ValidationException", f"not an alert manager definition ({error})") from error
    if not complete:
        raise Refused("ValidationException", "every route needs a receiver, and a receiver has sns_configs alone")


def _update_manager(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    _check_manager(i)
    return {}


register(
    Kind("aws:sns/topic:Topic", _topic, delete_by("sns", "delete_topic", "TopicArn"), _update_topic),
    Kind(
        token="aws:sns/topicPolicy:TopicPolicy",
        create=_topic_policy,
        # The provider puts back the policy that a new topic has; the topic goes next.
        delete=lambda account, live: None,
        update=lambda account, live, i: _topic_policy(account, i)[1],
    ),
    Kind(
        "aws:sns/topicSubscription:TopicSubscription", _subscription, delete_by("sns", "unsubscribe", "SubscriptionArn")
    ),
    Kind(
        "aws:cloudwatch/metricAlarm:MetricAlarm",
        _alarm,
        delete_by("cloudwatch", "delete_alarms", "AlarmNames"),
        lambda account, live, i: _alarm(account, i)[1],
    ),
    Kind(
        "aws:cloudwatch/dashboard:Dashboard",
        _dashboard,
        delete_by("cloudwatch", "delete_dashboards", "DashboardNames"),
        lambda account, live, i: _dashboard(account, i)[1],
    ),
    Kind(_MANAGER, _manager, lambda account, live: None, _update_manager),
)
