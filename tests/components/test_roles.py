"""Who may be the roles that the program makes."""

from __future__ import annotations

import json

import pytest

from tests.golden.stacks import state_of
from tests.support import of_type, one

ROLE = "iam/role:Role"


@pytest.mark.parametrize("stack", ["slurm-gpu", "eks-gpu"])
def test_a_service_may_be_a_role_for_this_account_alone(stack: str) -> None:
    for role in of_type(state_of(stack), ROLE):
        for statement in json.loads(role.inputs["assumeRolePolicy"])["Statement"]:
            if not role.name.startswith("eks-cluster"):  # pulumi-eks makes that one
                assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == "123456789012", role.name


def test_published_permissions_have_the_guides_own_trust() -> None:
    """SageMaker Developer Guide, "IAM role for SageMaker HyperPod"; the roles of other services
    stay with this account."""
    roles = {role.name: json.loads(role.inputs["assumeRolePolicy"]) for role in of_type(state_of("slurm-closed"), ROLE)}
    trusted = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    assert {name for name, policy in roles.items() if policy["Statement"] == [trusted]} == {
        "identity-controller",
        "identity-login",
        "identity-worker",
    }
    assert "Condition" in roles["network-flow-logs"]["Statement"][0]


@pytest.mark.parametrize("stack", ["slurm-closed", "eks-teams"])
def test_grafanas_role_is_the_stacks_as_the_api_asks(stack: str) -> None:
    """Amazon Managed Grafana API Reference, CreateWorkspace, permissionType: "Use only the CUSTOMER_MANAGED permission
    type when creating a workspace with the API"; workspaceDataSources: not to be used."""
    workspace = one(state_of(stack), "observability-grafana", "Workspace").inputs
    assert workspace["permissionType"] == "CUSTOMER_MANAGED"
    assert "roleArn" in workspace
    assert "dataSources" not in workspace
