"""Changes to a deployed stack: what they replace, what is refused and when, and what is left at the end."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from operations.engine.state import State
from operations.failures import Exit
from operations.project.loading import Project
from rehearsal.account import Account
from rehearsal.changes import Change, Deployed, Step, apply_step, parse_steps, step_to
from rehearsal.engines.deployment import destroy, up
from tests.operations.aws import ended
from tests.support import ROOT, config, few_files

HEADER = "import pulumi\nimport pulumi_aws as aws\nfrom pulumi import ResourceOptions\n"
KEYS = {"set", "created", "updated", "replaced", "deleted", "lost", "refused", "early", "seconds", "resources"}
KEYS |= {"hourly_usd"}


@pytest.fixture
def account() -> Iterator[Account]:
    with Account("us-west-2") as opened:
        yield opened


class Stack:
    """Deploys a small program, and then another one in its place."""

    def __init__(self, folder: Path, account: Account) -> None:
        self.folder, self.account = folder, account
        self.deployed = Deployed(config(), State(), {})

    @property
    def state(self) -> State:
        return self.deployed.state

    def project(self, text: str) -> Project:
        main_file = self.folder / "__main__.py"
        main_file.write_text(HEADER + text)
        return Project(self.folder, "small", "test", main_file, {"aws:region": "us-west-2"})

    def up(self, text: str) -> None:
        deployed = up(self.project(text), self.account)
        assert not deployed.failure, deployed.failure
        self.deployed = Deployed(config(), deployed.state, deployed.outputs)

    def then(self, text: str, began: float = 1000) -> Change:
        step = Step({}, self.project(text), config())
        change, self.deployed = apply_step(step, self.deployed, self.account, began=began)
        return change


@pytest.fixture
def stack(tmp_path: Path, account: Account) -> Stack:
    return Stack(tmp_path, account)


def test_a_change_names_what_it_creates_updates_replaces_and_deletes(stack: Stack) -> None:
    stack.up(
        "aws.cloudwatch.LogGroup('kept', name='kept', retention_in_days=7)\n"
        "aws.cloudwatch.LogGroup('renamed', name='a')\n"
        "aws.cloudwatch.LogGroup('gone', name='gone')\n"
    )
    change = stack.then(
        "aws.cloudwatch.LogGroup('kept', name='kept', retention_in_days=14)\n"
        "aws.cloudwatch.LogGroup('renamed', name='b')\n"
        "aws.cloudwatch.LogGroup('new', name='new')\n"
    )
    assert (change.created, change.updated, change.replaced, change.deleted) == (
        ["new"],
        ["kept"],
        ["renamed"],
        ["gone"],
    )
    assert change.refused is None
    # Three seconds for the parallel creates, then three for the deletes.
    assert change.seconds == 6
    assert set(change.as_json()) == KEYS
    shown = {
        one["name"]: (one["operation"], one["start"], one["finish"]) for one in change.resources if "operation" in one
    }
    assert shown == {
        "new": ("create", 0, 3),
        "kept": ("update", 0, 3),
        "renamed": ("replace", 0, 3),
        "gone": ("delete", 3, 6),
    }
    assert destroy(stack.state, stack.account) == []
    assert stack.account.leftovers() == []


def test_a_resource_with_a_fixed_name_is_deleted_with_its_dependents_before_it_is_replaced(
    stack: Stack,
) -> None:
    text = (
        "vpc = aws.ec2.Vpc('vpc', cidr_block='10.0.0.0/16')\n"
        "group = aws.ec2.SecurityGroup('group', name='mine', description='{description}', vpc_id=vpc.id)\n"
        "aws.vpc.SecurityGroupEgressRule('rule', security_group_id=group.id, ip_protocol='-1', cidr_ipv4='0.0.0.0/0')\n"
    )
    stack.up(text.format(description="one"))
    change = stack.then(text.format(description="two"))
    assert change.refused is None
    assert sorted(change.replaced) == ["group", "rule"]
    assert destroy(stack.state, stack.account) == []
    assert stack.account.leftovers() == []


def test_a_protected_resource_is_not_replaced_and_the_preview_says_so_already(stack: Stack) -> None:
    text = "aws.cloudwatch.LogGroup('logs', name='{}', opts=ResourceOptions(protect=True))\n"
    stack.up(text.format("a"))
    change = stack.then(text.format("b"))
    assert "it is protected, and name makes a new one" in str(change.refused)
    assert change.early
    gone = stack.then("")
    assert "delete failed: it is protected" in str(gone.refused)
    assert gone.early


def test_a_change_that_aws_refuses_half_way_leaves_nothing_behind(stack: Stack) -> None:
    stack.up("aws.cloudwatch.LogGroup('a', name='a')\n")
    change = stack.then(
        "a = aws.cloudwatch.LogGroup('a', name='b')\n"
        "aws.cloudwatch.LogGroup('z', name='z', retention_in_days=31, opts=ResourceOptions(depends_on=[a]))\n"
    )
    assert "31 days is not a retention" in str(change.refused)
    assert not change.early
    assert [resource.inputs["name"] for resource in stack.state.values() if resource.in_account] == ["b", "a"]
    assert destroy(stack.state, stack.account) == []
    assert stack.account.leftovers() == []


def test_an_ignored_change_is_none(stack: Stack) -> None:
    text = (
        "aws.cloudwatch.LogGroup('logs', name='a', retention_in_days={}, opts=ResourceOptions(ignore_changes=['{}']))\n"
    )
    stack.up(text.format(7, "retentionInDays"))
    change = stack.then(text.format(14, "retentionInDays"))
    assert change.updated == []
    assert stack.then(text.format(14, "skipDestroy")).updated == ["logs"]


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["size"], 'takes key=value, not "size"'),
        (["colour=red"], "colour"),
        (["clustername=x"], "clusterName"),
        (["size=huge"], "hyperpod:size"),
        (["other:size=small"], "keys of the program begin with"),
        (["fsx={"], "not JSON"),
    ],
)
def test_bad_input_is_said_before_the_first_deployment(texts: list[str], reason: str) -> None:
    assert reason in ended(Exit.BAD_INPUT, "rehearse", "--then", "size=medium", "--then", *texts)[1]


def test_every_update_is_on_top_of_those_before() -> None:
    first, second = parse_steps(ROOT, "slurm-gpu", [], [["size=medium", "hyperpod:protect=true"], ["size=large"]])
    assert first.set == {"size": "medium", "protect": "true"}
    assert second.set == {"size": "large"}
    assert second.config.settings.protect
    assert sum(group.count for group in second.config.worker_groups) > sum(g.count for g in first.config.worker_groups)


@pytest.mark.slow
def test_a_stack_becomes_what_another_file_says_and_stays_itself(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    text = (ROOT / "Pulumi.dev.yaml").read_text()
    (tmp_path / "Pulumi.before.yaml").write_text(text.replace("count: 2", "count: 2\n  hyperpod:protect: true"))
    (tmp_path / "Pulumi.dev.yaml").write_text(text + "  hyperpod:fsx: {storageGiB: 2400}\n")
    step = step_to(tmp_path, "before", "dev")
    assert step.project.stack == "before"
    assert step.set == {"fsx": '{"storageGiB":2400}', "protect": "false"} or set(step.set) == {"fsx", "protect"}
    assert (step.config.settings.fsx.storage_gib, step.config.settings.protect) == (2400, False)


@pytest.mark.slow
def test_the_command_makes_one_change_after_the_other(tmp_path: Path) -> None:
    result = tmp_path / "r.json"
    then = [
        "--then",
        'fsx={"storageGiB":4800} protect=true',
        "--then",
        'observability={"prometheus":"create","grafana":"create"}',
    ]
    with few_files():
        out, _ = ended(Exit.GOOD, "rehearse", "dev", *then, "--write", str(result))
    found: dict[str, Any] = json.loads(result.read_text())
    grown, observed = found["changes"]
    assert set(grown) == KEYS
    assert grown["set"] == {"fsx": {"storageGiB": 4800}, "protect": "true"}
    assert (grown["updated"], grown["replaced"], grown["refused"]) == (["storage-lustre"], [], None)
    assert grown["hourly_usd"] > 1
    assert "observability-grafana" in observed["created"]
    assert observed["seconds"] == 152
    assert found["leftovers"] == []
    assert "Change 2: observability=" in out
