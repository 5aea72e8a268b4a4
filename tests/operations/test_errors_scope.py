"""``errors`` tells what is the stack's, of the time that was asked for, and what it could not ask."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from operations.deployment import cloudtrail, errors
from operations.failures import Exit
from operations.target import Target
from tests.operations.aws import StubbedAws, cluster, ended, node, stack
from tests.operations.test_errors import NOW, ago, call, event, nothing_else


def test_older_errors_are_not_listed_and_unreachable_sources_are_named(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(target: Target, start: datetime) -> Iterator[errors.Problem]:
        for minutes in (50.0, 90.0, 10.0):
            yield errors.Problem(time=ago(minutes), source="test", what=f"{minutes:g}", message="")

    def refused(target: Target, start: datetime) -> Iterator[errors.Problem]:
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "LookupEvents")

    monkeypatch.setattr(errors, "_SOURCES", (("test", look), ("cloudtrail", refused)))
    told: list[str] = []
    found = errors.collect(stack(aws), timedelta(hours=1), told.append)
    assert told == ["test", "cloudtrail"], "each may take seconds"
    assert [one.what for one in found.found] == ["10", "50"]
    assert found.unknown == ["cloudtrail: permission denied: LookupEvents"]
    assert found.next_step == "allow this principal LookupEvents, or use another profile"


def test_without_credentials_it_is_said_once_and_with_what_to_do(
    aws: StubbedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_cli", lambda: None)
    for service in ("sagemaker", "logs", "resourcegroupstaggingapi"):
        aws.break_off(service, NoCredentialsError())
    out, _ = ended(Exit.CANNOT_KNOW, "errors", "dev")
    assert out.splitlines() == [
        "could not query SageMaker, cluster events, recorded events, lifecycle logs, CloudTrail: "
        "Unable to locate credentials",
        "Nothing was found for dev, but some sources could not be queried.",
        "Next: log in (`aws sso login`, or AWS_PROFILE, or AWS_ACCESS_KEY_ID), then `aws sts get-caller-identity`",
    ]


def test_the_clusters_warnings_are_reported_and_its_information_is_not(aws: StubbedAws) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster() | {"NodeProvisioningMode": "Continuous"})
    listed = [event(n, level, level) for n, level in enumerate(("Info", "Warn", "Error"))]
    aws.answer("sagemaker", "list_cluster_events", {"Events": listed})
    for one in listed[1:]:
        answer = {key: value for key, value in one.items() if key != "EventDetails"}
        aws.answer("sagemaker", "describe_cluster_event", {"EventDetails": answer})
    target = stack(aws)
    assert [one.message for one in errors.cluster_events(target, ago(60))] == ["Warn", "Error"]


def test_a_node_that_failed_without_a_word_is_told(aws: StubbedAws) -> None:
    aws.answer("sagemaker", "describe_cluster", cluster())
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": [node("workers", 1, "Failure")]})
    (found,) = errors._cluster(stack(aws), NOW)
    assert (found.what, found.message) == ("workers i-workers1 Failure", "no message")


def test_what_other_services_refused_is_not_the_stacks_affair(aws: StubbedAws) -> None:
    calls = [
        call("PutItem", 3, "AccessDenied", "hyperpod-dev", "dynamodb"),
        call("RunInstances", 4, "Odd", "hyperpod-dev"),
    ]
    aws.answer("cloudtrail", "lookup_events", {"Events": calls})
    nothing_else(aws)
    assert [one.call for one in cloudtrail.refused(stack(aws), ago(60))] == ["ec2 RunInstances"]
