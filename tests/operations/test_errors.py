"""``errors``: causes from every place that knows some, newest first."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pulumi import automation

from components.common.names import CLUSTER_ID_TAG
from operations import records
from operations.aws import Aws
from operations.cluster.interfaces import in_the_way
from operations.deployment import cloudtrail, errors
from operations.failures import Exit, Failure
from tests.operations.aws import StubbedAws, cluster, ended, ended_json, node, stack

On = Callable[[Aws], None]
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def without_a_cli(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulumi's own state is in no question of these tests, but of the last one."""
    monkeypatch.setattr(errors, "find_cli", lambda: None)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def call(name: str, minutes: float, code: str, text: str, source: str = "ec2") -> dict[str, Any]:
    """One of CloudTrail's events."""
    detail = {"errorCode": code, "errorMessage": text} if code else {"requestParameters": text}
    return {
        "EventId": name,
        "EventName": name,
        "EventTime": ago(minutes),
        "EventSource": f"{source}.amazonaws.com",
        "CloudTrailEvent": json.dumps(detail),
    }


def event(minutes: float, level: str, text: str) -> dict[str, Any]:
    """One of the cluster's events."""
    return {
        "EventId": "e", "ClusterArn": f"arn:aws:sagemaker:us-west-2:123456789012:cluster/{'a' * 12}",
        "ClusterName": "hyperpod-dev", "ResourceType": "Instance", "InstanceId": "i-1", "EventTime": ago(minutes),
        "EventLevel": level, "Description": text,
    }  # fmt: skip


def recorded(aws: StubbedAws, *messages: dict[str, Any]) -> None:
    """What the stack's own rule has kept of HyperPod's events."""
    events = [{"message": json.dumps(one), "timestamp": 0} for one in messages]
    aws.answer("logs", "filter_log_events", {"events": events}, logGroupName="/aws/events/hyperpod/hyperpod-dev")


def put(aws: StubbedAws, *, failure: str = "", cloudtrail: int = 1) -> None:
    """A cluster with one bad node, events of three levels, a failed boot, and three pages of CloudTrail."""
    described = cluster("Failed") | ({"FailureMessage": failure} if failure else {})
    aws.answer("sagemaker", "describe_cluster", described)
    bad = node("workers", 2, "Failure", "Instance is unhealthy: XID 79")
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [node("workers", 1), bad]})
    recorded(aws)
    group = "/aws/sagemaker/Clusters/hyperpod-dev/abcdef123456"
    groups = [{"logGroupName": f"{group}-old", "creationTime": 1}, {"logGroupName": group, "creationTime": 2}]
    aws.answer("logs", "describe_log_groups", {"logGroups": groups})
    streams = [{"logStreamName": f"LifecycleConfig/workers/i-{n}"} for n in (1, 2)]
    aws.answer("logs", "describe_log_streams", {"logStreams": streams}, logGroupName=group)
    for last in ("boot is ok", "step fsx failed: no file system has the tag"):
        written = [{"timestamp": int(ago(20).timestamp() * 1000), "message": line} for line in ("first", last)]
        aws.answer("logs", "get_log_events", {"events": written}, logGroupName=group)
    for page in range(cloudtrail):
        events = [
            call("CreateFileSystem", 10 + page, "ServiceLimitExceeded", "hyperpod-dev needs a larger quota", "fsx"),
            call("RunInstances", 12, "", "hyperpod-dev"),
            call("CreateVpc", 13, "VpcLimitExceeded", "of another team"),
            call("GetRole", 14, "NoSuchEntityException", "hyperpod-dev", "iam"),
        ]
        more = {"NextToken": f"p{page + 1}"} if page < cloudtrail - 1 else {}
        aws.answer("cloudtrail", "lookup_events", {"Events": events, **more})
    nothing_else(aws)


def nothing_else(aws: StubbedAws, *ids: str) -> None:
    """These are what the stack's tag is on; IAM refused nothing."""
    arns = [{"ResourceARN": f"arn:aws:ec2:us-west-2:123456789012:thing/{one}"} for one in ids]
    tag = [{"Key": CLUSTER_ID_TAG, "Values": [stack(aws).names.cluster_id]}]
    aws.answer("resourcegroupstaggingapi", "get_resources", {"ResourceTagMappingList": arns}, TagFilters=tag)
    aws.answer("cloudtrail/us-east-1", "lookup_events", {"Events": []})


@pytest.mark.parametrize("pages", [1, 3])
def test_causes_are_told_newest_first_with_the_next_step(pages: int, aws: StubbedAws) -> None:
    put(
        aws,
        failure="We currently do not have sufficient capacity for the requested instance type(s).",
        cloudtrail=pages,
    )
    document = ended_json(Exit.FAILED, "errors", "dev")
    times = [one["time"] for one in document["found"]]
    assert times == sorted(times, reverse=True)
    told = [(one["source"], one["what"]) for one in document["found"]]
    assert (
        told[:2] == [("SageMaker", "cluster Failed"), ("SageMaker", "workers i-workers2 Failure")]
        or told[1][0] == "SageMaker"
    )
    often = f" ({pages} times)" if pages > 1 else ""
    assert told.count(("CloudTrail", f"fsx CreateFileSystem{often}")) == 1
    assert ("lifecycle script", "workers/i-2") in told
    assert len(told) == 4
    steps = {one["what"]: one["next_step"] for one in document["found"]}
    assert "quotas dev" in steps[f"fsx CreateFileSystem{often}"]
    assert "another zone" in steps["cluster Failed"]
    aws.assert_all_asked()


def test_a_cluster_that_is_gone_still_has_its_trail_and_pulumis_own_words(aws: StubbedAws) -> None:
    cause = {"resource": "storage-lustre", "type": "aws:fsx/lustreFileSystem:LustreFileSystem", "text": "AccessDenied"}
    records.add(stack(aws), errors.DEPLOYMENTS, {"command": "up", "succeeded": False, "cause": cause})
    records.add(stack(aws), errors.DEPLOYMENTS, {"command": "up", "succeeded": True, "cause": None})
    aws.refuse("sagemaker", "describe_cluster", "ResourceNotFound")
    aws.refuse("logs", "filter_log_events", "ResourceNotFoundException")
    aws.answer("logs", "describe_log_groups", {"logGroups": []})
    aws.answer("cloudtrail", "lookup_events", {"Events": []})
    nothing_else(aws)
    out, _ = ended(Exit.FAILED, "errors", "dev")
    assert "pulumi up: storage-lustre" in out
    assert "allow this principal" in out


def test_nothing_wrong_is_good(aws: StubbedAws) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster())
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [node("workers", 1)]})
    recorded(aws)
    aws.answer("logs", "describe_log_groups", {"logGroups": []})
    aws.answer("cloudtrail", "lookup_events", {"Events": []})
    nothing_else(aws)
    out, _ = ended(Exit.GOOD, "errors", "dev", "--hours", "2")
    assert "Nothing went wrong with dev in the last 2 hours" in out
    aws.assert_all_asked()


def test_iams_refusals_are_looked_up_where_iam_keeps_them(aws: StubbedAws) -> None:
    aws.answer("cloudtrail", "lookup_events", {"Events": []})
    nothing_else(aws)
    aws._stubs["cloudtrail/us-east-1"]._queue.clear()
    refused = call("CreateRole", 3, "AccessDenied", "not authorized: role hyperpod-dev-us-west-2-worker", "iam")
    attributes = [{"AttributeKey": "EventSource", "AttributeValue": "iam.amazonaws.com"}]
    aws._expected["cloudtrail/us-east-1"].clear()
    aws.answer("cloudtrail/us-east-1", "lookup_events", {"Events": [refused]}, LookupAttributes=attributes)
    (found,) = errors._trail(stack(aws), ago(60))
    assert (found.what, "allow this principal" in found.next_step) == ("iam CreateRole", True)
    aws.assert_all_asked()


@pytest.mark.parametrize(
    ("region", "asked"),
    [("us-east-1", "us-east-1"), ("us-gov-east-1", "us-gov-west-1"), ("us-gov-west-1", "us-gov-west-1")],
)
def test_iam_is_one_for_each_partition(region: str, asked: str) -> None:
    account = StubbedAws(region)
    try:
        account.answer("cloudtrail", "lookup_events", {"Events": []})
        account.answer("resourcegroupstaggingapi", "get_resources", {"ResourceTagMappingList": []})
        if region != asked:
            account.answer(f"cloudtrail/{asked}", "lookup_events", {"Events": []})
        zone = {"us-east-1": "use1-az4", "us-gov-east-1": "usge1-az1", "us-gov-west-1": "usgw1-az1"}[region]
        here = stack(account, "dev", f"aws:region={region}", f"hyperpod:availabilityZoneId={zone}")
        assert list(errors._trail(here, ago(60))) == []
        account.assert_all_asked()
    finally:
        account.close()


def test_a_refused_delete_by_id_is_reported_with_the_resources_that_block_it(aws: StubbedAws) -> None:
    own, other = "subnet-0123456789abcdef0", "subnet-0fedcba9876543210"
    events = [
        call(
            "DeleteSubnet",
            3,
            "Client.DependencyViolation",
            f"The subnet '{one}' has dependencies and cannot be deleted.",
        )
        for one in (own, other)
    ]
    aws.answer("cloudtrail", "lookup_events", {"Events": events})
    nothing_else(aws, own)
    held = [{"NetworkInterfaceId": "eni-1", "Status": "in-use", "Description": "ELB app/k8s-web"}]
    where = [{"Name": "subnet-id", "Values": [own]}]
    aws.answer("ec2", "describe_network_interfaces", {"NetworkInterfaces": held}, Filters=where)
    (found,) = errors._trail(stack(aws), ago(60))
    assert f'in the way in {own}: eni-1 in-use "ELB app/k8s-web"' in found.message
    assert "what the interfaces' descriptions name" in found.next_step
    assert "hyperpod errors" not in found.next_step, "the hint must not lead back to this command"
    aws.assert_all_asked()


@pytest.mark.parametrize(
    ("text", "answer", "said"),
    [
        ("resource sg-0123456789abcdef0 has a dependent object", [], "no network interface is in sg-0123456789abcdef0"),
        ("something has a dependent object", None, "AWS does not say which resource"),
        ("vpc-0123456789abcdef0 has dependencies", "UnauthorizedOperation", "unknown: permission denied"),
        (
            "vpc-0123456789abcdef0 has dependencies",
            [{"NetworkInterfaceId": f"eni-{n}"} for n in range(9)],
            "and 4 more",
        ),
    ],
)
def test_what_is_in_the_way_is_told_or_why_not(text: str, answer: Any, said: str, aws: StubbedAws) -> None:
    if isinstance(answer, str):
        aws.refuse("ec2", "describe_network_interfaces", answer)
    elif answer is not None:
        aws.answer("ec2", "describe_network_interfaces", {"NetworkInterfaces": answer})
    if answer == []:
        aws.answer("ec2", "describe_security_groups", {"SecurityGroups": []}, GroupIds=["sg-0123456789abcdef0"])
    words, step = in_the_way(stack(aws), text)
    assert said in words
    assert "run the same command again" in step


@pytest.mark.parametrize(
    ("one", "operation", "code"),
    [
        ("vpc-0123456789abcdef0", "describe_vpcs", "InvalidVpcID.NotFound"),
        ("subnet-0123456789abcdef0", "describe_subnets", "InvalidSubnetID.NotFound"),
        ("sg-0123456789abcdef0", "describe_security_groups", "InvalidGroup.NotFound"),
    ],
)
def test_what_was_deleted_since_asks_for_nothing(one: str, operation: str, code: str, aws: StubbedAws) -> None:
    aws.answer("ec2", "describe_network_interfaces", {"NetworkInterfaces": []})
    aws.refuse("ec2", operation, code)
    assert in_the_way(stack(aws), f"{one} has dependencies") == (f"{one} no longer exists", "nothing to do")


def test_an_unused_interface_is_listed_with_the_command_that_deletes_it(aws: StubbedAws) -> None:
    found = [
        {"NetworkInterfaceId": "eni-1", "Status": "in-use"},
        {"NetworkInterfaceId": "eni-2", "Status": "available"},
    ]
    aws.answer("ec2", "describe_network_interfaces", {"NetworkInterfaces": found})
    _, step = in_the_way(stack(aws), "vpc-0123456789abcdef0 has dependencies")
    assert step.startswith("aws ec2 delete-network-interface --region us-west-2 --network-interface-id eni-2")
    assert "1 of 2 are unused" in step


def test_more_events_than_are_read_is_said_and_what_was_read_counts(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloudtrail, "MOST_EVENTS", 2)
    events = [call("CreateVpc", n, "VpcLimitExceeded", f"hyperpod-dev {n}") for n in range(3)]
    aws.answer("cloudtrail", "lookup_events", {"Events": events})
    nothing_else(aws)
    monkeypatch.setattr(errors, "_SOURCES", (("CloudTrail", errors._trail),))
    problems = errors.collect(stack(aws), timedelta(hours=1))
    assert len(problems.found) == 2
    assert problems.unknown == ["CloudTrail: only the newest 2 events of us-west-2 were read: use a smaller --hours"]


def test_more_recorded_events_than_are_read_is_said(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_MOST_EVENTS", 1)
    one = {"time": ago(5).isoformat(), "detail": {"ClusterStatus": "Failed"}}
    recorded(aws, one, one)
    monkeypatch.setattr(errors, "_SOURCES", (("recorded events", errors._recorded),))
    problems = errors.collect(stack(aws), timedelta(hours=1))
    assert (len(problems.found), problems.unknown) == (
        1,
        ["recorded events: only 1 events were read: use a smaller --hours"],
    )


def test_what_a_program_only_tried_is_no_mistake_and_ec2s_codes_are_told_without_whose_fault_it_was(
    aws: StubbedAws,
) -> None:
    tried = call("RunInstances", 1, "Client.DryRunOperation", "hyperpod-dev")
    failed = call("CreateVpc", 2, "Client.VpcLimitExceeded", "hyperpod-dev")
    aws.answer("cloudtrail", "lookup_events", {"Events": [tried, failed]})
    nothing_else(aws)
    assert [one.message for one in cloudtrail.refused(stack(aws), ago(60))] == ["VpcLimitExceeded: hyperpod-dev"]


def test_resources_that_cannot_be_listed_leave_the_calls_that_name_the_cluster(aws: StubbedAws) -> None:
    aws.refuse("resourcegroupstaggingapi", "get_resources", "AccessDeniedException")
    aws.answer("cloudtrail", "lookup_events", {"Events": [call("CreateVpc", 1, "VpcLimitExceeded", "hyperpod-dev")]})
    aws.refuse("cloudtrail/us-east-1", "lookup_events", "AccessDeniedException")
    found = cloudtrail.refused(stack(aws), ago(60))
    assert next(found).call == "ec2 CreateVpc"
    with pytest.raises(Failure, match=r"only by id are missing: permission denied: GetResources; .* in us-east-1"):
        next(found)


def test_what_could_not_be_asked_is_never_called_good(refusing: Callable[..., Aws], on: On) -> None:
    on(refusing("AccessDeniedException"))
    out, _ = ended(Exit.CANNOT_KNOW, "errors", "dev")
    assert "Nothing went wrong" not in out
    assert "some sources could not be queried" in out


@pytest.mark.parametrize("hours", ["nan", "1e9", "-5", "0", "inf", "2161"])
def test_a_time_that_cannot_be_looked_back_is_bad_input(hours: str) -> None:
    _, err = ended(Exit.BAD_INPUT, "errors", "dev", "--hours", hours)
    assert "2160" in err


def test_one_source_that_may_not_be_asked_hides_no_other(aws: StubbedAws) -> None:
    put(aws)
    aws._stubs["cloudtrail"]._queue.clear()
    aws.refuse("cloudtrail", "lookup_events", "AccessDeniedException")
    document = ended_json(Exit.FAILED, "errors", "dev")
    assert document["unknown"] == ["CloudTrail: permission denied: LookupEvents in us-west-2"]
    assert len(document["found"]) == 2


def test_cluster_events_are_reported_with_the_failure_message_of_each_event(aws: StubbedAws) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster() | {"NodeProvisioningMode": "Continuous"})
    for page in range(3):
        listed = [event(30 + page, "Error", "Instance creation failed"), event(31 + page, "Info", "Created")]
        more = {"NextToken": f"p{page + 1}"} if page < 2 else {}
        aws.answer("sagemaker", "list_cluster_events", {"Events": listed, **more}, ClusterName="hyperpod-dev")
        failure = {"EventMetadata": {"Instance": {"FailureMessage": "Lifecycle scripts did not run successfully"}}}
        details = {**event(30 + page, "Error", "Instance creation failed"), "EventDetails": failure}
        aws.answer("sagemaker", "describe_cluster_event", {"EventDetails": details})
    found = list(errors.cluster_events(stack(aws), ago(60)))
    assert [one.what for one in found] == ["Instance i-1"] * 3
    assert found[0].message == "Instance creation failed Lifecycle scripts did not run successfully"
    assert "last line of the node's log" in found[0].next_step
    # SageMaker has no events of a cluster without continuous provisioning, and refuses the question.
    aws.answer("sagemaker", "describe_cluster", cluster())
    assert list(errors.cluster_events(stack(aws), ago(60))) == []
    aws.assert_all_asked()


def test_node_health_and_state_changes_come_from_the_stacks_own_record(aws: StubbedAws) -> None:
    sick = {"HealthStatus": "Unhealthy", "HealthStatusReason": "NvidiaErrorTerminate", "Recommendation": "Replace it."}
    groups = [{"InstanceGroupName": "workers", "CurrentCount": 0, "TargetCount": 2}]
    details: list[dict[str, Any]] = [
        {"InstanceId": "i-1", "HealthSummary": sick},
        {"InstanceId": "i-2", "HealthSummary": {"HealthStatus": "Healthy"}},
        {"ClusterStatus": "Failed", "InstanceGroups": groups},
        {"ClusterStatus": "InService"},
    ]
    recorded(aws, *({"time": ago(5).isoformat(), "detail": detail} for detail in details))
    found = list(errors._recorded(stack(aws), ago(60)))
    assert [(one.what, one.message) for one in found] == [
        ("node i-1 Unhealthy", "NvidiaErrorTerminate Replace it."),
        ("cluster Failed", "workers 0 of 2"),
    ]
    assert list(errors._recorded(stack(aws, "dev", "hyperpod:validation=false"), ago(60))) == []


def test_operations_pending_after_an_interrupted_command_are_reported(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    urn = "urn:pulumi:dev::hyperpod::hyperpod:index:Network$aws:ec2/natGateway:NatGateway::network-nat"
    left = {"pending_operations": [{"type": "creating", "resource": {"urn": urn}}]}
    stack_of_pulumi = SimpleNamespace(export_stack=lambda: SimpleNamespace(deployment=left))
    monkeypatch.setattr(errors, "find_cli", lambda: tmp_path)
    monkeypatch.setattr(errors, "open_cli", lambda: None)
    monkeypatch.setattr(automation, "select_stack", lambda *_, **__: stack_of_pulumi)
    (problem,) = errors._state(stack(aws), NOW)
    assert problem.what == "network-nat"
    assert "creating was interrupted" in problem.message
    assert "pulumi refresh" in problem.next_step

    def no_backend(*_: object, **__: object) -> None:
        raise automation.CommandError(automation.CommandResult(stdout="", stderr="error: not logged in", code=1))

    monkeypatch.setattr(automation, "select_stack", no_backend)
    monkeypatch.setattr(errors, "_SOURCES", (("pulumi state", errors._state),))
    found = errors.collect(stack(aws), timedelta(hours=1))
    assert (found.found, found.unknown) == ([], ["pulumi state: Pulumi has no backend for its state"])
