"""Parliament, a public linter of IAM policies, has nothing to say of any policy that a stack deploys or asks for, but
for what is explained here. Its rules are another's judgement, beside those of `rehearsal/account/policies.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import parliament
import pytest

from rehearsal.account.authorization import actions
from rehearsal.account.matching import overlaps
from rehearsal.account.policies import _POLICIES, listed
from tests.golden.stacks import GOLDEN, deployed
from tests.rehearsal.test_iam_documents import written

ROLE = "arn:aws:iam::123456789012:role/its"
# An issue, the action it is about, and why it is none.
REASONS: dict[tuple[str, str], str] = {
    ("CREDENTIALS_EXPOSURE", "ecr:getauthorizationtoken"): "nodes pull images; the token opens what the role may pull",
    ("CREDENTIALS_EXPOSURE", "sts:assumerole"): "the roles of people; root gives each to whom it is named for",
    ("PERMISSIONS_MANAGEMENT_ACTIONS", "ec2:createnetworkinterfacepermission"): (
        "HyperPod attaches interfaces to its instances (SageMaker Developer Guide, IAM role for SageMaker HyperPod); "
        "conditions limit it to the stack's subnet and groups"
    ),
    ("PERMISSIONS_MANAGEMENT_ACTIONS", "kms:creategrant"): (
        "services attach encrypted volumes by grants; kms:GrantIsForAWSResource limits it to theirs (AWS KMS Developer "
        "Guide, condition keys)"
    ),
}
# A key whose values are ARNs, although their type is String (CloudWatch Logs User Guide, "Encrypt log data in
# CloudWatch Logs using AWS Key Management Service", whose policy compares it with ArnEquals).
_ARNS = "kms:EncryptionContext:aws:logs:arn"


def policies(name: str) -> Iterator[tuple[str, str, list[Any]]]:
    """Every policy of a stack, and of its deployer: whose it is, its kind, its statements."""
    for resource in deployed(name).state.values():
        for key, kind in _POLICIES.get(resource.type, {}).items():
            if isinstance(text := resource.inputs.get(key), str):
                yield f"{resource.name} {key}", kind, listed(json.loads(text)["Statement"])
    made = written(name)
    for who, documents in (("deploy", made.deploy), ("operate", made.operate)):
        yield who, "identity", [statement for document in documents for statement in document["Statement"]]


@cache
def findings(text: str, community: bool = True) -> list[Any]:
    """What Parliament says of a policy, with the rules of its community."""
    return list(parliament.analyze_policy_string(text, include_community_auditors=community).findings)


def explained(finding: Any, statements: list[Any]) -> bool:
    """Whether a finding is none: Parliament looks at one statement at a time, and its lists are older."""
    if finding.issue == "RESOURCE_MISMATCH":
        return all(
            any(
                fnmatchcase(wanted["action"].lower(), pattern.lower()) and overlaps(resource, wanted["required_format"])
                for statement in statements
                for pattern in listed(statement.get("Action", []))
                for resource in listed(statement.get("Resource", []))
            )
            for wanted in finding.detail
        )
    if finding.issue == "UNKNOWN_ACTION":
        return bool(actions(finding.detail.removeprefix("Unknown action ")))
    if finding.issue == "UNKNOWN_CONDITION_FOR_ACTION":
        key, name = finding.detail.removeprefix("Unknown condition ").split(" for action ")
        return any(action.knows(key, action.types) for action in actions(name))
    if finding.issue == "MISMATCHED_TYPE" and "ArnLike" in finding.detail:
        keys = {key for one in statements for key in one.get("Condition", {}).get("ArnLike", {})}
        return keys - {"aws:SourceArn", "aws:PrincipalArn"} == {_ARNS}
    named = finding.location.get("actions", [])
    return bool(named) and all((finding.issue, action) in REASONS for action in named)


# Between them these two have every kind of policy but an endpoint's.
FAST = ("dev", "eks-teams")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in GOLDEN]
)
def test_nothing_unexplained_is_found(name: str) -> None:
    left = set()
    for where, kind, statements in policies(name):
        # A trust policy has no resource, which Parliament does not know.
        whole = [{"Resource": ROLE, **one} if kind == "trust" else one for one in statements]
        text = json.dumps({"Version": "2012-10-17", "Statement": whole}, sort_keys=True)
        for finding in findings(text, kind == "identity"):
            # Of an endpoint's or a key's own policy, "*" is what passes through it, or the key.
            of_itself = kind == "itself" and finding.issue == "RESOURCE_STAR"
            if not of_itself and not explained(finding, statements):
                left.add(f"{where}: {finding.issue} {finding.detail} {finding.location}")
    assert left == set(), "\n".join(sorted(left))


@pytest.mark.parametrize(
    ("action", "resource", "issue"),
    [
        ("ec2:CreateVpcEndpoint", "arn:aws:ec2:us-west-2:123456789012:vpc/*", "RESOURCE_MISMATCH"),
        ("s3:GetObjekt", "*", "UNKNOWN_ACTION"),
        ("iam:*", "*", "RESOURCE_POLICY_PRIVILEGE_ESCALATION"),
    ],
)
def test_what_is_wrong_is_found_and_not_explained_away(action: str, resource: str, issue: str) -> None:
    statement = {"Effect": "Allow", "Action": action, "Resource": resource}
    found = findings(json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    assert [one.issue for one in found if not explained(one, [statement])], issue
