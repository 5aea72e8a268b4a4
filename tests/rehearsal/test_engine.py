"""The embedded engine refuses what the real one refuses, and its clock runs independent resources in parallel."""

from pathlib import Path
from typing import Any

import pytest

from operations.engine.events import Event
from operations.project.loading import Project
from rehearsal.account import Account, Caller, guardduty
from rehearsal.engines.deployment import destroy, up
from rehearsal.engines.program import ProgramError
from tests.support import project

HEAD = "import pulumi, pulumi_aws as aws\nfrom pulumi import ResourceOptions\n"


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """Creates a project from a program's text."""

    def make(text: str) -> Project:
        (tmp_path / "__main__.py").write_text(HEAD + text)
        config = {"aws:region": "us-west-2"}
        return Project(folder=tmp_path, name="probe", stack="test", main=tmp_path / "__main__.py", config=config)

    return make


@pytest.fixture
def account() -> Any:
    with Account("us-west-2") as account:
        yield account


def test_two_resources_of_one_urn_are_refused(program: Any, account: Account) -> None:
    text = "for _ in range(2): aws.cloudwatch.LogGroup('logs', name='a')\n"
    assert (
        "Duplicate resource URN 'urn:pulumi:test::probe::aws:cloudwatch/logGroup:LogGroup::logs'"
        in up(program(text), account).failure
    )


def test_a_type_the_account_does_not_know_is_refused_already_in_the_preview(program: Any, account: Account) -> None:
    text = "aws.sqs.Queue('queue')\n"
    assert "does not know aws:sqs/queue:Queue" in up(program(text), account, preview=True).failure
    assert "does not know aws:sqs/queue:Queue" in up(program(text), account).failure


def test_a_program_that_stops_itself_says_why_without_a_traceback(program: Any, account: Account) -> None:
    with pytest.raises(ProgramError, match=r"^not today$"):
        up(program("raise pulumi.RunError('not today')\n"), account)


def test_what_a_program_warns_of_is_told_even_if_a_resource_fails(program: Any, account: Account) -> None:
    failed = up(program("pulumi.log.warn('look out')\naws.sqs.Queue('queue')\n"), account)
    assert (bool(failed.failure), failed.warnings) == (True, ["look out"])


def test_a_bug_in_the_program_is_shown_as_the_error_it_is(program: Any, account: Account) -> None:
    with pytest.raises(ZeroDivisionError):
        up(program("1 / 0\n"), account)


def test_independent_resources_are_under_way_at_the_same_time(program: Any, account: Account) -> None:
    text = "for n in range(4): aws.cloudwatch.LogGroup(f'logs-{n}', name=f'g{n}')\n"
    assert [(r.start, r.finish) for r in up(program(text), account).state.values()] == [(0, 3)] * 4


def test_a_deployment_leaves_no_file_open(program: Any, account: Account) -> None:
    folder = Path("/proc/self/fd")
    before = len(list(folder.iterdir()))
    assert not up(program("for n in range(9): aws.cloudwatch.LogGroup(f'l-{n}', name=f'g{n}')\n"), account).failure
    assert len(list(folder.iterdir())) == before


def test_a_resource_starts_when_the_last_it_depends_on_is_done(program: Any, account: Account) -> None:
    text = (
        "vpc = aws.ec2.Vpc('vpc', cidr_block='10.0.0.0/16')\n"
        "group = aws.ec2.SecurityGroup('group', vpc_id=vpc.id, description='d')\n"
        "logs = aws.cloudwatch.LogGroup('logs', name='g', opts=ResourceOptions(depends_on=[group]))\n"
    )
    times = {r.name: (r.start, r.finish) for r in up(program(text), account).state.values()}
    assert times == {"vpc": (0, 12), "group": (12, 17), "logs": (17, 20)}


def test_depending_on_a_component_is_depending_on_all_its_children(program: Any, account: Account) -> None:
    text = (
        "class Pair(pulumi.ComponentResource):\n"
        "    def __init__(self):\n"
        "        super().__init__('probe:index:Pair', 'pair')\n"
        "        aws.ec2.Vpc('pair-vpc', cidr_block='10.0.0.0/16', opts=ResourceOptions(parent=self))\n"
        "        self.register_outputs({})\n"
        "aws.cloudwatch.LogGroup('logs', name='g', opts=ResourceOptions(depends_on=[Pair()]))\n"
    )
    state = up(program(text), account).state
    assert next(r for r in state.values() if r.name == "logs").start == 12


def test_a_changed_input_updates_in_place_or_replaces_as_on_aws(program: Any, account: Account) -> None:
    first = up(program("aws.cloudwatch.LogGroup('logs', name='a', retention_in_days=7)\n"), account)
    longer = up(program("aws.cloudwatch.LogGroup('logs', name='a', retention_in_days=14)\n"), account, old=first.state)
    assert list(longer.changes.values()) == ["update"]
    renamed = up(
        program("aws.cloudwatch.LogGroup('logs', name='b', retention_in_days=14)\n"), account, old=longer.state
    )
    assert list(renamed.changes.values()) == ["replace"]
    groups = account.client("logs").describe_log_groups()["logGroups"]
    assert [g["logGroupName"] for g in groups] == ["b"]


def test_a_preview_creates_nothing_and_keeps_outputs_unknown(program: Any, account: Account) -> None:
    text = (
        "vpc = aws.ec2.Vpc('vpc', cidr_block='10.0.0.0/16')\npulumi.export('known', 1)\nvpc.id.apply(lambda i: 1 / 0)\n"
    )
    previewed = up(program(text), account, preview=True)
    assert not previewed.failure
    assert list(previewed.changes.values()) == ["create"]
    assert account.leftovers() == []


def test_secret_outputs_stay_secret(program: Any, account: Account) -> None:
    deployment = up(program("pulumi.export('token', pulumi.Output.secret('x'))\npulumi.export('open', 'y')\n"), account)
    assert deployment.secret_outputs == {"token"}


def test_after_a_failure_nothing_new_is_started(program: Any, account: Account) -> None:
    text = (
        "bad = aws.cloudwatch.LogGroup('bad', name='a', retention_in_days=31)\n"
        "aws.cloudwatch.LogGroup('after', name=bad.arn.apply(lambda a: 'b'))\n"
    )
    events: list[Event] = []
    failed = up(program(text), account, on_event=events.append)
    assert "31 days is not a retention" in failed.failure
    assert {event.resource.name for event in events} == {"bad"}
    assert account.leftovers() == []


@pytest.mark.slow
def test_destroy_goes_in_reverse_order_of_dependency() -> None:
    order: list[str] = []
    with Account("us-west-2") as account:
        state = up(project(), account).state
        needed = {r.urn: [u for u in r.dependencies if u in state and state[u].in_account] for r in state.values()}
        destroy(state, account, lambda event: order.append(event.resource.urn) if event.phase == "done" else None)
    gone = {urn: place for place, urn in enumerate(order)}
    assert len(gone) > 40
    assert not [(urn, before) for urn in gone for before in needed[urn] if gone[before] < gone[urn]]


@pytest.mark.slow
def test_what_cannot_be_deleted_stays_in_the_state_with_what_it_needs() -> None:
    with Account("us-west-2") as account:
        state = up(project(), account).state
        vpc = next(r for r in state.values() if r.type == "aws:ec2/vpc:Vpc")
        account.client("ec2").create_subnet(VpcId=vpc.id, CidrBlock="10.0.99.0/24")
        failures = destroy(state, account)
        assert len(failures) == 1
        assert failures[0].startswith("network-vpc (aws:ec2/vpc:Vpc): delete failed: DependencyViolation")
        assert vpc.urn in state
        assert any("subnets" in leftover for leftover in account.leftovers())


def test_what_guardduty_put_into_a_vpc_goes_with_it_unless_the_deployer_may_not(program: Any, account: Account) -> None:
    """As pulumi-aws does it: off the subnet first, then with the VPC."""
    text = """
vpc = aws.ec2.Vpc('vpc', cidr_block='10.0.0.0/16')
aws.ec2.Subnet('subnet', vpc_id=vpc.id, cidr_block='10.0.0.0/24', availability_zone_id='usw2-az1')
"""
    made = up(program(text), account)
    ids = {one.name: one.id for one in made.state.values()}
    guardduty.watch(account, ids["vpc"], [ids["subnet"]])
    may = ["ec2:DeleteSubnet", "ec2:DeleteVpc", "ec2:Describe*"]
    account.caller = Caller("arn:aws:iam::123456789012:role/deployer", [_allowing(may)])
    (failure,) = destroy(dict(made.state), account)
    assert f"DependencyViolation: The subnet '{ids['subnet']}' has dependencies" in failure
    account.caller.statements = [
        _allowing([*may, "ec2:ModifyVpcEndpoint", "ec2:DeleteVpcEndpoints", "ec2:DeleteSecurityGroup"])
    ]
    assert destroy(made.state, account) == []
    assert account.leftovers() == []


def _allowing(actions: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": ["*"]}
