"""Who may be the roles that the program makes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden.stacks import BOUNDARY, GOLDEN, state_of, told
from tests.support import of_type

ROLE = "iam/role:Role"
# Services that a policy admits for any account, and their actions: docs/security.md gives the reasons.
WITHOUT_CONDITION = {
    # A condition would drop every event (EventBridge User Guide, "Using resource-based policies", Amazon SNS).
    "events.amazonaws.com": {"sns:Publish", "kms:Decrypt", "kms:GenerateDataKey*", "logs:CreateLogStream"},
    "delivery.logs.amazonaws.com": {"logs:CreateLogStream"},
    "logs.us-west-2.amazonaws.com": {"kms:DescribeKey"},
    "eks.amazonaws.com": {"sts:AssumeRole", "sts:TagSession"},
    "sagemaker.amazonaws.com": {"sts:AssumeRole"},
    # "Create an IAM role for HyperPod autoscaling with Karpenter", the same guide: no condition either.
    "hyperpod.sagemaker.amazonaws.com": {"sts:AssumeRole"},
}


def statements(found: Any) -> Iterator[dict[str, Any]]:
    """Every statement of a policy that lets services in, anywhere below."""
    if isinstance(found, dict):
        if found.get("Effect") == "Allow" and "Service" in (found.get("Principal") or ()):
            yield found
        found = list(found.values())
    for part in found if isinstance(found, list) else ():
        yield from statements(part)


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_services_are_let_in_without_a_condition_only_where_they_say_nothing_to_compare() -> None:
    """In everything that the golden configurations deploy; ``Principal`` may be "*", of which no service is a part."""
    seen: dict[str, set[str]] = {}
    for name in GOLDEN:
        for statement in statements(told(name)):
            if "Condition" not in statement:
                for service in listed(statement["Principal"]["Service"]):
                    seen.setdefault(service, set()).update(listed(statement["Action"]))
    assert seen == WITHOUT_CONDITION


@pytest.mark.parametrize("stack", ["slurm-gpu", "slurm-closed", "eks-gpu"])
def test_a_service_may_be_a_role_for_this_account_alone_but_hyperpod_a_nodes_as_in_its_guide(stack: str) -> None:
    """SageMaker Developer Guide, "IAM role for SageMaker HyperPod": no condition, and none is known to hold there."""
    trusted = [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}]
    nodes = 0
    for role in of_type(state_of(stack), ROLE):
        statements = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
        if role.name.startswith("identity-"):
            assert statements == trusted, role.name
            nodes += 1
        elif not role.name.startswith("eks-cluster"):  # pulumi-eks makes that one
            for statement in statements:
                assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == "123456789012", role.name
    assert nodes


@pytest.mark.parametrize(
    ("stack", "boundary"), [("slurm-closed", BOUNDARY), ("eks-teams", BOUNDARY), ("eks-gpu", None)]
)
def test_every_role_has_the_permissions_boundary(stack: str, boundary: str | None) -> None:
    """The one that pulumi-eks makes too, for which it has no argument."""
    found = {role.name: role.inputs.get("permissionsBoundary") for role in of_type(state_of(stack), ROLE)}
    assert found == dict.fromkeys(found, boundary)
    assert ("eks-cluster-eksRole-role" in found) == stack.startswith("eks")
    assert len(found) > 2
