"""The hosts' ``aws`` command: the CLI's notations, outputs, errors and permissions."""

import base64
import json
from typing import Any
from unittest.mock import patch

import pytest

from rehearsal.account import Live
from rehearsal.nodes.aws_cli import Caller
from rehearsal.nodes.aws_endpoint import Endpoint
from rehearsal.nodes.permissions import denied
from rehearsal.nodes.stack import Stack

# The nodes' tests use it as nodes do; the fast suite does not deploy a stack for it.
pytestmark = pytest.mark.slow
ADDRESS, KEY = "10.1.0.10", "ASIA0123456789ABCDEF"


@pytest.fixture(scope="module")
def endpoint(stack: Stack) -> Endpoint:
    caller = Caller("controller-1", stack.groups["controller"]["executionRole"])
    found = Endpoint(stack.account)
    found.callers[KEY] = caller
    return found


def aws(endpoint: Endpoint, *argv: str, slept: float = 0.0, key: str = KEY, **uploads: str) -> dict[str, Any]:
    return endpoint.answer("aws", ADDRESS, {"argv": list(argv), "slept": slept, "uploads": uploads, "key": key})


def _policy(role: str, statement: dict[str, Any]) -> dict[tuple[str, str], Live]:
    """One more policy of a role, in the account's books."""
    kind, document = "aws:iam/rolePolicy:RolePolicy", json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    return {(kind, f"{role}:more"): Live(kind, "more", f"{role}:more", {"role": role, "policy": document}, {})}


def test_describes_the_stack_s_file_system(endpoint: Endpoint, stack: Stack) -> None:
    found = json.loads(aws(endpoint, "fsx", "describe-file-systems", "--output", "json")["out"])["FileSystems"]
    assert next(tag["Value"] for tag in found[0]["Tags"] if tag["Key"] == "hyperpod:cluster-id").startswith(
        "hyperpod-dev-"
    )
    assert found[0]["Lifecycle"] == "AVAILABLE"
    assert found[0]["LustreConfiguration"]["MountName"]


def test_availability_is_by_the_virtual_clock(endpoint: Endpoint) -> None:
    endpoint.file_systems[0].ready_after = endpoint.now(0) + 60
    query = ("fsx", "describe-file-systems", "--query", "FileSystems[0].Lifecycle", "--output", "text")
    try:
        assert aws(endpoint, *query)["out"] == "CREATING\n"
        assert aws(endpoint, *query, slept=61.0)["out"] == "AVAILABLE\n"
    finally:
        endpoint.file_systems[0].ready_after = 0.0


def test_unknown_ids_and_operations_are_refused(endpoint: Endpoint) -> None:
    missing = aws(endpoint, "fsx", "describe-file-systems", "--file-system-ids", "fs-0123456789abcdef0")
    assert missing["rc"] == 254
    assert "(FileSystemNotFound) when calling the DescribeFileSystems operation" in missing["err"]
    assert aws(endpoint, "fsx", "describe-everything")["rc"] == 252
    assert aws(endpoint, "nosuch", "thing")["rc"] == 252
    assert aws(endpoint, "ec2", "describe-vpcs", "--nonsense", "1")["rc"] == 252


def test_shorthand_filters(endpoint: Endpoint) -> None:
    every = aws(endpoint, "ec2", "describe-vpcs", "--query", "Vpcs[].CidrBlock", "--output", "text")["out"].split()
    filters = f"Name=cidr,Values={every[0]},10.250.0.0/16"
    answer = aws(
        endpoint, "ec2", "describe-vpcs", "--filters", filters, "--query", "Vpcs[].CidrBlock", "--output", "text"
    )
    assert answer["rc"] == 0
    assert answer["out"].split() == [every[0]]


def test_a_role_may_do_what_its_policies_say_and_no_more(endpoint: Endpoint, stack: Stack) -> None:
    uri = f"s3://{stack.bucket}/{stack.prefix}"
    read = aws(endpoint, "s3", "cp", f"{uri}/on_create.sh", "/tmp/x/")
    assert read["rc"] == 0
    assert base64.b64decode(read["files"]["/tmp/x/on_create.sh"]).startswith(b"#!")
    written = aws(endpoint, "s3", "cp", "mine", f"{uri}/on_create.sh", mine=base64.b64encode(b"evil").decode())
    assert written["rc"] == 1
    assert "AccessDenied" in written["err"]
    denied = aws(
        endpoint, "ssm", "put-parameter", "--name", "/hyperpod/hyperpod-dev/x", "--value", "y", "--type", "String"
    )
    assert denied["rc"] == 254
    assert "not authorized to perform: ssm:PutParameter" in denied["err"]
    assert "AccessDenied" in aws(endpoint, "ssm", "get-parameter", "--name", "/other/x")["err"]
    assert "ParameterNotFound" in aws(endpoint, "ssm", "get-parameter", "--name", "/hyperpod/hyperpod-dev/x")["err"]


@pytest.mark.parametrize(
    ("resource", "condition", "answer"),
    [
        ("*", {}, None),
        ("arn:aws:fsx:us-west-2:123456789012:file-system/*", {}, "fsx:DescribeFileSystems on resource: *"),
        ("*", {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}, "fsx:DescribeFileSystems on resource: *"),
    ],
)
def test_a_grant_counts_where_its_resource_and_its_conditions_are_what_aws_decides_about(
    stack: Stack, resource: str, condition: dict[str, Any], answer: str | None
) -> None:
    statement = {"Effect": "Allow", "Action": "fsx:DescribeFileSystems", "Resource": resource, "Condition": condition}
    role = {("aws:iam/role:Role", "lister"): Live("aws:iam/role:Role", "lister", "lister", {"name": "lister"}, {})}
    with patch.dict(stack.account.live, role | _policy("lister", statement)):
        why = denied(stack.account, "arn:aws:iam::123456789012:role/lister", "fsx", "DescribeFileSystems", {})
    assert why is None if answer is None else answer in str(why)


def test_operations_ask_for_the_actions_of_the_reference(stack: Stack) -> None:
    role = stack.groups["controller"]["executionRole"]
    asked = {
        ("s3", "ListObjectsV2"): "s3:ListBucket",
        ("s3", "HeadObject"): "s3:GetObject",
        ("amp", "ListWorkspaces"): "aps:ListWorkspaces",
        ("efs", "DescribeFileSystems"): "elasticfilesystem:DescribeFileSystems",
    }
    for (service, operation), action in asked.items():
        assert f": {action} on resource" in str(denied(stack.account, role, service, operation, {"Bucket": "other"}))


def test_the_buckets_own_policy_keeps_nodes_from_writing(stack: Stack) -> None:
    role, bucket = stack.groups["controller"]["executionRole"], stack.bucket
    statement = {"Effect": "Allow", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::*/*"}
    with patch.dict(stack.account.live, _policy(role.rsplit("/", 1)[-1], statement)):
        assert denied(stack.account, role, "s3", "PutObject", {"Bucket": bucket, "Key": "on_create.sh"})


def test_workers_may_take_the_roles_of_the_clusters_people_and_no_other(stack: Stack) -> None:
    worker = stack.groups["workers"]["executionRole"]
    roles = f"arn:aws:iam::{stack.account.account_id}:role"
    for role, may in ((f"hyperpod/{stack.cluster_name}/ada", True), ("hyperpod/another/ada", False), ("ada", False)):
        request = {"RoleArn": f"{roles}/{role}", "RoleSessionName": "hyperpod-ada"}
        assert (denied(stack.account, worker, "sts", "AssumeRole", request) is None) == may, role


def test_sync_has_every_lifecycle_file(endpoint: Endpoint, stack: Stack) -> None:
    answer = aws(endpoint, "s3", "sync", f"s3://{stack.bucket}/{stack.prefix}", "/opt/x")
    assert {path.removeprefix("/opt/x/") for path in answer["files"]} == set(stack.lifecycle_files())


def test_strangers_have_no_credentials(endpoint: Endpoint) -> None:
    assert aws(endpoint, "sts", "get-caller-identity", key="ASIA00000000STRANGER")["rc"] == 253


def test_only_an_available_file_system_is_mounted(endpoint: Endpoint) -> None:
    ours = endpoint.file_systems[0]
    source = f"{ours.dns_name}@tcp:/{ours.mount_name}"
    assert endpoint.answer("lustre", ADDRESS, {"source": source})["folder"] == ours.id
    assert endpoint.answer("lustre", ADDRESS, {"source": source + "x"})["rc"] == 2
    assert endpoint.answer("lustre", ADDRESS, {"source": "fs-0.fsx@tcp:/x"})["rc"] == 1
    ours.ready_after = None
    try:
        assert endpoint.answer("lustre", ADDRESS, {"source": source})["rc"] == 5
    finally:
        ours.ready_after = 0.0
