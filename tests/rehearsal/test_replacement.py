"""Which changes replace a resource: every deployed type is in the table, and the rules work."""

from typing import Any

import pytest

from rehearsal.account import Account, Refused
from rehearsal.account.kubernetes_updates import check_update
from rehearsal.account.replacement import replacing, table
from rehearsal.account.schemas import replacing_properties
from tests.golden.stacks import GOLDEN, state_of

# CloudFormation's registry and the provider differ. The provider counts, since it deploys.
PROVIDER_KNOWS_BETTER = {
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
    "aws:eks/cluster:Cluster",
    "aws:ssm/document:Document",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
}


@pytest.mark.parametrize("stack", GOLDEN)
def test_every_input_of_every_type_that_pulumi_aws_deploys_has_been_looked_up(stack: str) -> None:
    unknown = {
        (resource.type, name)
        for resource in state_of(stack).values()
        if resource.in_account and resource.type.startswith("aws:")
        for name in resource.inputs
        if resource.type not in table() or not table()[resource.type].knows(name)
    }
    assert not unknown, f"look up what a change of these does, for rehearsal/account/replacement.csv: {unknown}"


def test_the_table_agrees_with_cloudformations_registry_where_it_says_so() -> None:
    wrong = {}
    for token, row in table().items():
        source = row.source
        if source.startswith("CFN ") and token not in PROVIDER_KNOWS_BETTER:
            fixed = {name.lower() for name in replacing_properties(f"AWS::{source.removeprefix('CFN ').split(';')[0]}")}
            in_place = {name for name in row.updates if name.lower() in fixed}
            if in_place:
                wrong[token] = in_place
    assert not wrong, f"the registry calls these create-only: {wrong}"


def test_every_row_names_its_source() -> None:
    assert {token for token, row in table().items() if not row.source.startswith(("CFN ", "TF ", "as "))} == set()


@pytest.mark.parametrize(
    ("rule", "old", "new", "replaced"),
    [
        ("name", "a", "b", True),
        ("name", "a", "a", False),
        ("name:less", 4800, 1200, True),
        ("name:less", 1200, 4800, False),
        ("name:less", {"key": 1}, None, True),
        ("name:less", None, {"key": 1}, False),
        ("name:presence", "10.0.0.0/16", "10.1.0.0/16", False),
        ("name:presence", "10.0.0.0/16", None, True),
        ("name/part", {"part": 1, "else": 1}, {"part": 1, "else": 2}, False),
        ("name/part", {"part": 1}, {"part": 2}, True),
    ],
)
def test_a_rule_of_the_table(rule: str, old: Any, new: Any, replaced: bool) -> None:
    assert replacing(frozenset({rule}), {"name": old}, {"name": new}) == ({"name"} if replaced else set())


def test_a_change_that_nobody_looked_up_is_no_guess() -> None:
    with Account("us-west-2") as account, pytest.raises(LookupError, match="colour does to aws:ec2/vpc:Vpc"):
        account.diff("aws:ec2/vpc:Vpc", {"colour": 1}, {"colour": 2})


def claim(size: str, storage_class: str = "") -> dict[str, Any]:
    spec = {"storageClassName": storage_class, "resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}


def test_a_claim_grows_only_where_a_class_provisioned_it_and_never_shrinks() -> None:
    check_update(claim("1200Gi", "gp3"), claim("4800Gi", "gp3"))
    with pytest.raises(Refused, match="only dynamically provisioned pvc can be resized"):
        check_update(claim("1200Gi"), claim("4800Gi"))
    with pytest.raises(Refused, match="can not be less than previous value"):
        check_update(claim("2Ti", "gp3"), claim("1200Gi", "gp3"))


def test_what_the_api_server_calls_immutable_is_not_patched() -> None:
    old = {"kind": "StorageClass", "metadata": {"name": "fast"}, "reclaimPolicy": "Delete"}
    with pytest.raises(Refused, match="reclaimPolicy: field is immutable"):
        check_update(old, {**old, "reclaimPolicy": "Retain"})
