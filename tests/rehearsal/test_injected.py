"""What a rehearsal is asked to make fail has to be something that the stack has."""

from dataclasses import replace
from pathlib import Path

import pytest

from components.config import Config
from operations.failures import Exit, Failure
from operations.project.loading import Project
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from rehearsal.existing import prepare
from rehearsal.injected import injected
from tests.support import config


@pytest.fixture
def small(tmp_path: Path) -> tuple[Project, Config]:
    """A program with two resources, and a configuration for an account."""
    (tmp_path / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(
        "import pulumi_aws as aws\n"
        'vpc = aws.ec2.Vpc("net", cidr_block="10.0.0.0/16")\n'
        'aws.ec2.Subnet("sub", vpc_id=vpc.id, cidr_block="10.0.0.0/24")\n'
    )
    return Project(tmp_path, "small", "dev", tmp_path / "__main__.py", {"aws:region": "us-west-2"}), config()


@pytest.mark.parametrize(
    "fail",
    [
        [],
        ["ml.g5.16xlarge=capacity"],
        ["net", "aws:ec2/subnet:Subnet=unavailable", "Vpc", "aws:ec2/vpc:Vpc::net"],
        ["#1", "#2"],
    ],
)
def test_what_the_stack_has_can_be_made_to_fail(small: tuple[Project, Config], fail: list[str]) -> None:
    faults, quotas = injected(fail, ["vpcs=0", "ml.g5.16xlarge=1"], small)
    assert (len(faults), quotas) == (len(fail), {"vpcs": 0, "ml.g5.16xlarge": 1})


@pytest.mark.parametrize(
    ("fail", "quota", "message", "hint"),
    [
        (["sbu"], [], 'stack dev has no resource and no type "sbu"', "did you mean sub?"),
        (["Vcp"], [], 'no type "Vcp"', "did you mean Vpc?"),
        (["net", "nothing-at-all"], [], "--fail nothing-at-all", "it has, for example, net, sub"),
        (["ml.p5.48xlarge=capacity"], [], "--fail ml.p5.48xlarge", "it has, for example, net, sub"),
        (["#3"], [], "stack dev creates 2 resources", ""),
        ([], ["elastic-ips=1"], 'stack dev uses no quota "elastic-ips"', "it uses ml.g5.16xlarge, ml.m5.2xlarge, vpcs"),
        ([], ["vpc=1"], "--quota vpc", "did you mean vpcs?"),
    ],
)
def test_what_matches_nothing_of_the_stack_is_refused_with_what_was_meant(
    small: tuple[Project, Config], fail: list[str], quota: list[str], message: str, hint: str
) -> None:
    with pytest.raises(Failure) as refused:
        injected(fail, quota, small)
    assert message in refused.value.message
    assert refused.value.hint == hint
    assert refused.value.code == Exit.BAD_INPUT


def test_what_a_later_change_adds_can_fail_as_well(small: tuple[Project, Config], tmp_path: Path) -> None:
    later = tmp_path / "later"
    later.mkdir()
    (later / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (later / "__main__.py").write_text('import pulumi_aws as aws\naws.ec2.Eip("address")\n')
    changed = (replace(small[0], folder=later, main=later / "__main__.py"), small[1])
    assert injected(["address"], ["elastic-ips=0"], small, changed)[0]


def test_what_existed_before_the_stack_neither_fails_nor_counts(small: tuple[Project, Config]) -> None:
    network = {
        "vpcId": "vpc-0123456789abcdef0",
        "privateSubnetId": "subnet-0123456789abcdef0",
        "securityGroupIds": ["sg-0123456789abcdef0"],
    }
    existing = config(network=network)
    faults, _ = injected(["Vpc=error"], [], (small[0], existing))
    with Account("us-west-2", faults=faults) as account:
        prepare(account, existing)
        assert "net (aws:ec2/vpc:Vpc): create failed" in up(small[0], account).failure
        assert faults[0].hits == 1
    faults, _ = injected(["#1=error"], [], (small[0], existing))
    with Account("us-west-2", faults=faults) as account:
        prepare(account, existing)
        assert account.creates == 0, "what existed before counts"
        assert "create failed" in up(small[0], account).failure
