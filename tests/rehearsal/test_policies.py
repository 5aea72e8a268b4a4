"""Policy checks: policies that AWS accepts but that grant nothing are refused (Service Authorization Reference)."""

import json
from typing import Any

import pytest

from rehearsal.account import Account, Refused
from rehearsal.account.authorization import actions
from rehearsal.account.grants import asked_about, granted
from rehearsal.account.policies import STAR_REASONS, check_policies, policy_faults

HERE = "us-west-2:123456789012"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
ANY_FILE_SYSTEM = f"arn:aws:fsx:{HERE}:file-system/*"
INTERFACES = f"arn:aws:ec2:{HERE}:network-interface/*"


def allow(action: str | list[str], resource: str | list[str], **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def faults(*statements: dict[str, Any], kind: Any = "identity", partition: str = "aws") -> str:
    return "; ".join(policy_faults({"Version": "2012-10-17", "Statement": list(statements)}, kind, partition))


def condition(key: str, value: str = "x", operator: str = "StringEquals") -> dict[str, Any]:
    return {operator: {key: value}}


@pytest.mark.parametrize(
    "statements",
    [
        [allow("fsx:DescribeFileSystems", "*")],
        [allow("s3:GetObject", "arn:aws:s3:::b/*"), allow("s3:ListBucket", "arn:aws:s3:::b")],
        [allow("cloudwatch:PutMetricData", "*", Condition=condition("cloudwatch:namespace"))],
        [allow("fsx:DeleteFileSystem", ANY_FILE_SYSTEM, Condition=condition("aws:ResourceTag/CSIVolumeName"))],
        # Both resource types of the action, although in two statements.
        [
            allow("ec2:DetachNetworkInterface", INTERFACES),
            allow("ec2:DetachNetworkInterface", "arn:aws:ec2:us-west-2:*:instance/*"),
        ],
        [allow("logs:CreateLogStream", f"arn:aws:logs:{HERE}:log-group:/a/b:*")],
        [allow("logs:DescribeLogStreams", f"arn:aws:logs:{HERE}:log-group:/a/*:log-stream:*")],
        [allow("logs:CreateLogGroup", f"arn:aws:logs:{HERE}:log-group:/a/*")],
        [allow("EKS-auth:assumeRoleForPodIdentity", f"arn:aws:eks:{HERE}:cluster/c")],
        [{"Effect": "Deny", "Action": "s3:*", "Resource": "*"}],
    ],
)
def test_what_grants_something_is_taken(statements: list[dict[str, Any]]) -> None:
    assert not faults(*statements)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (allow("fsx:DescribeFileSystems", ANY_FILE_SYSTEM), 'fsx:DescribeFileSystems has no resource type: only "*"'),
        (allow("fsx:DescribeFileSystem", "*"), "fsx:DescribeFileSystem is no action"),
        (allow("fxs:DescribeFileSystems", "*"), "fxs:DescribeFileSystems is no action"),
        (allow("s3:GetObject", "arn:aws:s3:::b"), "s3:GetObject is about accesspointobject, object"),
        (allow("s3:ListBucket", "arn:aws:s3:::b/*"), "s3:ListBucket is about accesspoint, bucket"),
        (allow("secretsmanager:GetSecretValue", "*"), 'is granted on "*" and takes a name: Secret'),
        (allow("ec2:DetachNetworkInterface", INTERFACES), "also asks for instance, on which nothing grants it"),
        (allow("logs:CreateLogStream", f"arn:aws:logs:{HERE}:log-group:/a/b"), "is about log-stream"),
        (allow("logs:DescribeLogStreams", f"arn:aws:logs:{HERE}:log-group:/a/b"), "is about log-group"),
        (
            allow("s3:GetObject", ["arn:aws:s3:::b/*", ANY_FILE_SYSTEM]),
            f"{ANY_FILE_SYSTEM} is none of what s3:GetObject are about",
        ),
        (
            allow("cloudwatch:PutMetricData", "*", Condition=condition("cloudwatch:Name")),
            "has no condition key cloudwatch:Name",
        ),
        (
            allow("fsx:DescribeFileSystems", "*", Condition=condition("aws:ResourceTag/a")),
            "has no condition key aws:ResourceTag/a",
        ),
        (allow("s3:GetObject", "arn:aws:s3:::b/*", Condition=condition("s3:prefix", operator="StringIs")), "StringIs"),
        (allow("*", "*"), "allows every action"),
        ({"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}, "allows every action"),
        ({"Effect": "Allow", "NotAction": "iam:Nothing", "Resource": "*"}, "iam:Nothing is no action"),
        ({"Effect": "Deny", "Action": "s3:PutObjcet*", "Resource": "*"}, "s3:PutObjcet* is no action"),
        ({"Effect": "Allow", "Action": "s3:GetObject"}, "exactly one of Resource and NotResource"),
        (allow("s3:GetObject", "b/*"), "Resource"),
    ],
)
def test_what_only_seems_to_grant_is_refused(statement: dict[str, Any], why: str) -> None:
    assert why in faults(statement)


@pytest.mark.parametrize(
    ("statement", "kind", "why"),
    [
        ({"Effect": "Allow", "Action": "sts:AssumeRole"}, "trust", "exactly one of Principal and NotPrincipal"),
        ({"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}, "trust", "allows everybody"),
        (
            {"Effect": "Allow", "Principal": {"Service": "sagemaker"}, "Action": "sts:AssumeRole"},
            "trust",
            "sagemaker is no service principal",
        ),
        (
            {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": "sts:AssumeRole"},
            "trust",
            "sts:TagSession",
        ),
        ({**allow("s3:GetObject", "arn:aws:s3:::b/*"), "Principal": {"AWS": "*"}}, "resource", "allows everybody"),
        (allow("s3:GetObject", "arn:aws:s3:::b/*"), "itself", "exactly one of Principal and NotPrincipal"),
    ],
)
def test_who_is_meant_is_judged_too(statement: dict[str, Any], kind: str, why: str) -> None:
    assert why in faults(statement, kind=kind)


def test_arns_are_of_the_accounts_own_partition() -> None:
    statement = allow("s3:GetObject", "arn:aws:s3:::b/*")
    assert "is of another partition than aws-us-gov" in faults(statement, partition="aws-us-gov")


def test_a_deployment_with_such_a_policy_is_refused_in_the_preview_already() -> None:
    with Account("us-west-2") as account:
        account.create("aws:iam/role:Role", "r", {"name": "r", "assumeRolePolicy": _trust()})
        policy = {"role": "r", "name": "p", "policy": _document(allow("fsx:DescribeFileSystems", ANY_FILE_SYSTEM))}
        for judge in (lambda: account.judge(ROLE_POLICY, policy), lambda: account.create(ROLE_POLICY, "p", policy)):
            with pytest.raises(Refused, match='only "\\*" grants it'):
                judge()
        good = {**policy, "policy": _document(allow("fsx:DescribeFileSystems", "*"))}
        made, _ = account.create(ROLE_POLICY, "p", good)
        with pytest.raises(Refused, match='only "\\*" grants it'):
            account.update(ROLE_POLICY, made, policy)


def test_a_policy_in_an_unknown_property_is_refused() -> None:
    with pytest.raises(Refused, match="does not judge"):
        check_policies("aws:sns/topic:Topic", {"policy": _document(allow("sns:Publish", "*"))}, "aws")


def test_reasons_for_a_star_are_given_for_actions_that_take_a_name() -> None:
    for name, reason in STAR_REASONS.items():
        assert actions(name)[0].types
        assert reason


def _trust() -> str:
    return _document({"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"})


def _document(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


# What is granted ------------------------------------------------------------------------------------------------------


def test_aws_asks_about_an_actions_own_resources() -> None:
    values = {"Partition": "aws", "Region": "r", "Account": "1", "BucketName": "b", "ObjectName": "k"}
    assert asked_about(actions("s3:GetObject")[0], values) == ["arn:aws:s3:::b/k"]
    assert asked_about(actions("fsx:DescribeFileSystems")[0], values) == ["*"]
    group = asked_about(actions("logs:DescribeLogStreams")[0], {**values, "LogGroupName": "/a/b"})
    assert group == ["arn:aws:logs:r:1:log-group:/a/b:log-stream:"]
    assert sorted(asked_about(actions("ec2:DetachNetworkInterface")[0], values)) == [
        "arn:aws:ec2:r:1:instance/*",
        "arn:aws:ec2:r:1:network-interface/*",
    ]


@pytest.mark.parametrize(
    ("statement", "context", "answer"),
    [
        ({}, {}, True),
        ({"Condition": condition("aws:ResourceTag/a", "b")}, {}, False),
        ({"Condition": condition("aws:ResourceTag/a", "b")}, {"AWS:resourcetag/A": "b"}, True),
        ({"Condition": condition("aws:ResourceTag/a", "b")}, {"aws:ResourceTag/a": "c"}, False),
        ({"Condition": condition("aws:ResourceTag/a", "b", "StringNotEquals")}, {}, True),
        ({"Condition": condition("aws:ResourceTag/a", "b", "StringNotEquals")}, {"aws:ResourceTag/a": "b"}, False),
        ({"Condition": condition("aws:ResourceTag/a", "b", "StringEqualsIfExists")}, {}, True),
        ({"Condition": condition("aws:ResourceTag/a", "b*", "StringLike")}, {"aws:ResourceTag/a": "bc"}, True),
        ({"Condition": condition("aws:ResourceTag/a", "false", "Null")}, {}, False),
        ({"Condition": condition("aws:ResourceTag/a", "false", "Null")}, {"aws:ResourceTag/a": ""}, True),
        ({"Condition": condition("aws:SecureTransport", "true", "Bool")}, {"aws:SecureTransport": "true"}, True),
        ({"Condition": condition("aws:ResourceTag/a", "1", "NumericLessThan")}, {"aws:ResourceTag/a": "0"}, False),
        ({"Resource": "arn:aws:fsx:us-west-2:*:file-system/*"}, {}, True),
        ({"Resource": "arn:aws:fsx:*/fs-1"}, {}, False),
        ({"Action": "fsx:delete*"}, {}, True),
        ({"Effect": "Deny"}, {}, False),
    ],
)
def test_a_statement_grants_where_action_resource_and_conditions_hold(
    statement: dict[str, Any], context: dict[str, str], answer: bool
) -> None:
    resource = f"arn:aws:fsx:{HERE}:file-system/fs-1"
    given = {**allow("fsx:DeleteFileSystem", ANY_FILE_SYSTEM), **statement}
    assert granted([given], [], "fsx:DeleteFileSystem", resource, context) is answer


def test_a_resources_own_deny_wins() -> None:
    own, other = allow("s3:PutObject", "arn:aws:s3:::b/*"), {"Effect": "Deny", "Action": "s3:Put*"}
    assert granted([own], [], "s3:PutObject", "arn:aws:s3:::b/k", {})
    assert not granted([own], [{**other, "Resource": "arn:aws:s3:::b/*"}], "s3:PutObject", "arn:aws:s3:::b/k", {})
