"""Who may be the roles that the program makes."""

from __future__ import annotations

import json

import pytest

from tests.golden.stacks import state_of
from tests.support import of_type


@pytest.mark.parametrize("stack", ["slurm-gpu", "eks-gpu"])
def test_a_service_may_be_a_role_for_this_account_alone(stack: str) -> None:
    for role in of_type(state_of(stack), "iam/role:Role"):
        for statement in json.loads(role.inputs["assumeRolePolicy"])["Statement"]:
            if not role.name.startswith("eks-cluster"):  # pulumi-eks makes that one
                assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == "123456789012", role.name
