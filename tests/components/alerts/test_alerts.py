"""Notifications: who gets which, and who may publish to the topic."""

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from moto.events.models import EventPattern

from components.alerts.alert_manager import LOST_NODE
from components.common.documents import load
from operations.engine.state import State
from rehearsal.account.grants import granted
from tests.golden.stacks import state_of
from tests.support import ROOT, of_type, one

# The services that publish: User Guides of EventBridge, CloudWatch and Amazon Managed Service for Prometheus.
PUBLISHERS = ("aps", "cloudwatch", "events")


def services(state: State, name: str) -> dict[str, dict[str, Any]]:
    """The statements of a topic's policy that allow, by service."""
    policy = json.loads(one(state, name, "TopicPolicy").inputs["policy"])
    allowed = [s for s in policy["Statement"] if s["Effect"] == "Allow"]
    return {s["Principal"]["Service"].removesuffix(".amazonaws.com"): s for s in allowed}


@pytest.mark.parametrize("stack", ["slurm-closed", "eks-teams"])
def test_a_topic_takes_messages_of_three_services_alone_and_only_about_this_stack_where_they_say(stack: str) -> None:
    state = state_of(stack)
    found = services(state, "alerts-topic")
    assert tuple(sorted(found)) == PUBLISHERS
    workspace = one(state, "observability-prometheus").outputs["arn"]
    here = {"StringEquals": {"aws:SourceAccount": "123456789012"}}
    assert found["aps"]["Condition"] == {"ArnEquals": {"aws:SourceArn": workspace}, **here}
    assert found["aps"]["Action"] == ["sns:GetTopicAttributes", "sns:Publish"]
    assert found["cloudwatch"]["Condition"]["StringEquals"] == here["StringEquals"]
    # A condition would drop every event.
    assert "Condition" not in found["events"]
    topic = one(state, "alerts-topic", ":Topic").outputs["arn"]
    assert all(statement["Resource"] == [topic] for statement in found.values())


def told(state: State, kind: str, detail: dict[str, Any]) -> list[str]:
    """Which rules send such an event to the topic, as moto reads patterns."""
    event: Any = {"source": "aws.sagemaker", "detail-type": f"SageMaker HyperPod Cluster {kind}", "detail": detail}
    rules = [rule for rule in of_type(state, "EventRule") if rule.name.startswith("alerts")]
    patterns = {rule.name: rule.inputs["eventPattern"] for rule in rules}
    return [name for name, text in patterns.items() if EventPattern(text, json.loads(text)).matches_event(event)]


def test_people_are_told_of_health_and_state_and_of_nothing_but_errors_among_the_rest() -> None:
    state = state_of("slurm-closed")
    own = {"ClusterName": one(state, "hyperpod-cluster").inputs["clusterName"]}
    assert told(state, "Node Health Event", own | {"InstanceId": "i-1"}) == ["alerts-nodes"]
    assert told(state, "State Change", own | {"ClusterStatus": "Failed"}) == ["alerts-cluster"]
    assert told(state, "State Change", {"ClusterName": "another"}) == []
    for kind, by in (("Cluster", "cluster"), ("InstanceGroup", "cluster"), ("Instance", "nodes")):
        for level, rules in (("Error", [f"alerts-{by}"]), ("Info", [])):
            assert told(state, "Event", {"EventDetails": own | {"ResourceType": kind, "EventLevel": level}}) == rules


def mails(state: State, events: list[tuple[int, str, dict[str, Any]]]) -> list[str]:
    """What the topic is told of these events, each at its minute: each event that a rule passes on, each new alarm.

    CloudWatch User Guide, "Alarm evaluation": every minute, over the last ones, of which a number have to breach.
    """
    names = {rule.inputs["name"]: rule.name for rule in of_type(state, "EventRule")}
    passed_on = {names[target.inputs["rule"]] for target in of_type(state, "EventTarget")}
    matched = [(minute, rule) for minute, kind, detail in events for rule in told(state, kind, detail)]
    sent = [rule for _, rule in matched if rule in passed_on]
    for alarm in of_type(state, "MetricAlarm"):
        if alarm.inputs.get("namespace") != "AWS/Events":
            continue
        wanted, window = alarm.inputs["datapointsToAlarm"], int(alarm.inputs["evaluationPeriods"])
        counts = Counter(minute for minute, rule in matched if rule == names[alarm.inputs["dimensions"]["RuleName"]])
        ringing = False
        for now in range(max(minute for minute, _, _ in events) + 1):
            last = [counts[minute] for minute in range(now - window + 1, now + 1)]
            before, ringing = ringing, sum(count > alarm.inputs["threshold"] for count in last) >= wanted
            sent += [alarm.name] if ringing and not before else []
    return sent


def test_500_nodes_that_fail_again_and_again_send_one_mail_and_the_next_after_an_hour() -> None:
    state = state_of("slurm-closed")
    own = {"ClusterName": one(state, "hyperpod-cluster").inputs["clusterName"], "EventLevel": "Error"}
    failed = {"EventDetails": own | {"ResourceType": "Instance"}}
    burst = [(minute, "Event", failed) for minute in (3, 25, 50) for _ in range(500)]
    sick = [(minute, "Node Health Event", own | {"InstanceId": f"i-{minute}"}) for minute in range(5, 15)]
    assert mails(state, burst + sick) == ["alerts-nodes"]
    assert mails(state, [*burst, (120, "Event", failed)]) == ["alerts-nodes"] * 2
    whole = {"EventDetails": own | {"ResourceType": "Cluster"}}
    assert mails(state, [(1, "Event", whole), (2, "State Change", own)]) == ["alerts-cluster"] * 2


def test_a_mail_says_what_to_do_next_and_has_the_whole_event() -> None:
    state = state_of("slurm-closed")
    (template,) = (
        target.inputs["inputTransformer"]["inputTemplate"]
        for target in of_type(state, "EventTarget")
        if target.name.startswith("alerts")
    )
    event = {"detail": {"Description": 'it said "no"'}}
    said = json.loads(template.replace("<aws.events.event.json>", json.dumps(event)))
    assert said["event"] == event
    assert said["next"].startswith("hyperpod errors ")
    assert " hyperpod errors " in one(state, "alerts-nodes", "MetricAlarm").inputs["alarmDescription"]


def test_a_key_of_the_stack_lets_every_publisher_use_it() -> None:
    state = state_of("eks-spot")
    topic, key = one(state, "alerts-topic", ":Topic"), one(state, "encryption-key")
    assert topic.inputs["kmsMasterKeyId"] == key.outputs["arn"]
    statements = json.loads(key.inputs["policy"])["Statement"]
    for service, statement in services(state, "alerts-topic").items():
        context = {"aws:SourceAccount": "123456789012"} if "Condition" in statement else {}
        name = f"{service}.amazonaws.com"
        own = [s for s in statements if name in s["Principal"].get("Service", [])]
        for action in ("kms:GenerateDataKey", "kms:Decrypt"):
            assert granted(own, (), action, key.outputs["arn"], context), service


def manager(state: State) -> str:
    return str(load(one(state, "alerts-manager").inputs["definition"])["alertmanager_config"])


def test_alert_manager_groups_by_alert_and_node_and_leaves_out_the_warnings_of_a_lost_node() -> None:
    state = state_of("slurm-closed")
    found = load(manager(state))
    assert {"alertname", "node"} <= set(found["route"]["group_by"])
    (receiver,) = found["receivers"]
    (sns,) = receiver["sns_configs"]
    assert (sns["topic_arn"], sns["sigv4"]) == (
        one(state, "alerts-topic", ":Topic").outputs["arn"],
        {"region": "us-west-2"},
    )
    lost = [f'alertname="{LOST_NODE}"']
    silent = [rule for rule in found.get("inhibit_rules", ()) if rule["source_matchers"] == lost]
    assert silent, f"alert manager has no inhibit rule whose source is {LOST_NODE}: {found}"
    assert f"alert: {LOST_NODE}\n" in (ROOT / "components/alerts/nodes.yaml").read_text()
    assert [(rule["target_matchers"], rule["equal"]) for rule in silent] == [
        (['severity="warning"'], ["cluster", "node"])
    ]


@pytest.mark.root
def test_amtool_accepts_the_alert_manager_and_routes_every_alert_to_the_topic(tmp_path: Path) -> None:
    (file := tmp_path / "alertmanager.yaml").write_text(manager(state_of("slurm-closed")))
    checked = subprocess.run(["amtool", "check-config", str(file)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    asked = ["amtool", "config", "routes", "test", f"--config.file={file}", "severity=critical", "alertname=Any"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == "topic"


def test_the_dashboard_shows_the_alarms_and_the_events_that_are_recorded() -> None:
    for stack, recorded in (("slurm-closed", True), ("slurm-existing", False)):
        state = state_of(stack)
        widgets = json.loads(one(state, "alerts-dashboard").inputs["dashboardBody"])["widgets"]
        (alarms,) = [widget["properties"]["alarms"] for widget in widgets if widget["type"] == "alarm"]
        assert set(alarms) == {alarm.outputs["arn"] for alarm in of_type(state, "MetricAlarm")}
        assert any(widget["type"] == "log" for widget in widgets) is recorded
        spots = [(widget["x"], widget["y"]) for widget in widgets]
        assert len(spots) == len(set(spots))
