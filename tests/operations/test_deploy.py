"""``deploy``, ``preview``, ``destroy``: the same scenarios on the embedded engine, and on the CLI where it is there."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import boto3
import pytest
from pulumi import automation

from components.common.names import CLUSTER_ID_TAG
from operations import records
from operations.aws import Aws
from operations.deployment import deploy, engines, errors, leftovers
from operations.deployment.engines import Engine
from operations.deployment.leftovers import Audit
from operations.deployment.tagged import Leftover
from operations.engine.events import Event
from operations.engine.pulumi_cli import Command, CommandRun
from operations.failures import Exit
from operations.target import Target
from rehearsal import verb_engine as rehearse
from rehearsal.account import Account, Fault
from tests.operations.small import LOGS, PROGRAM, needs_cli

ENGINES = [
    pytest.param("embedded", id="embedded"),
    pytest.param("pulumi", id="pulumi", marks=[pytest.mark.engine, needs_cli, pytest.mark.slow]),
]


@pytest.fixture(params=ENGINES)
def engine_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "embedded":
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return str(request.param)


def opened(chosen: Target, *fail: str) -> AbstractContextManager[tuple[Engine, Account]]:
    return rehearse.rehearsed(chosen, fail=fail)


def groups() -> set[str]:
    """The log groups that the account has."""
    return {one["logGroupName"] for one in Aws("us-west-2").pages("logs", "describe_log_groups", "logGroups")}


def test_a_preview_says_what_would_be_and_creates_nothing(engine_kind: str, project: Callable[..., Target]) -> None:
    chosen = project()
    with opened(chosen) as (engine, _):
        report = deploy.run(chosen, engine, "preview")
        assert groups() == set()
    assert (report.succeeded, report.code) == (True, Exit.GOOD)
    assert sorted(report.changes) == ["first (create)", "later (create)"]
    assert report.counts["create"] in (2, 3)  # the CLI counts the stack itself as well


def test_deploying_gives_outputs_and_hides_secrets(engine_kind: str, project: Callable[..., Target]) -> None:
    chosen = project()
    with opened(chosen) as (engine, _):
        report = deploy.run(chosen, engine, "up")
        assert groups() == {"a", "b"}
    assert report.outputs == {"name": "b", "password": "[secret]"}
    assert "hunter2" not in json.dumps(report.__dict__, default=str)
    assert report.code == Exit.GOOD


def test_deploying_again_changes_only_what_changed(engine_kind: str, project: Callable[..., Target]) -> None:
    chosen = project()
    with opened(chosen) as (engine, _):
        deploy.run(chosen, engine, "up")
        again = deploy.run(chosen, engine, "up")
        assert (again.changes, set(again.counts)) == ([], {"same"})
        (chosen.project.folder / "__main__.py").write_text(PROGRAM.format(days=14))
        changed = deploy.run(chosen, engine, "up")
        assert changed.changes == ["later (update)"]
        refreshed = deploy.run(chosen, engine, "refresh")
        assert (refreshed.succeeded, refreshed.changes) == (True, [])


@pytest.mark.slow
def test_destroying_leaves_nothing_and_names_what_aws_made_itself(
    engine_kind: str, project: Callable[..., Target]
) -> None:
    chosen = project()
    nodes = "/aws/sagemaker/Clusters/hyperpod-dev/abcdef123456"
    with opened(chosen) as (engine, account):
        deploy.run(chosen, engine, "up")
        boto3.client("logs", region_name="us-west-2").create_log_group(logGroupName=nodes)
        report = deploy.destroy(chosen, engine)
        assert report.succeeded
        assert report.audit is not None
        assert [(one.kind, one.id) for one in report.audit.leftovers] == [("log group", nodes)]
        # AWS's own remains are no failure of the stack's.
        assert report.code == Exit.GOOD
        again = deploy.destroy(chosen, engine, remove_leftovers=True)
        assert again.audit is not None
        assert again.audit.removed == [f"log group {nodes}"]
        assert groups() == set()
        assert account.leftovers() == []


def test_the_first_cause_is_named_and_the_rest_stays_the_rest(engine_kind: str, project: Callable[..., Target]) -> None:
    chosen = project()
    with opened(chosen, "later") as (engine, _):
        report = deploy.run(chosen, engine, "up")
        assert groups() == {"a"}
        assert (report.succeeded, report.code) == (False, Exit.FAILED)
        assert report.cause is not None
        assert (report.cause.resource, report.cause.type) == ("later", LOGS)
        assert report.cause.text == str(Fault().error())
        assert report.others == []
        assert "deploy again" in report.next_step
        deploy.keep(chosen, report)
        (kept,) = records.read(chosen, errors.DEPLOYMENTS)
        assert (kept["command"], kept["cause"]["resource"]) == ("up", "later")
        # Half of it is there: destroying still works.
        assert deploy.destroy(chosen, engine).code == Exit.GOOD
        assert groups() == set()


def test_a_program_that_refuses_says_why_itself(engine_kind: str, project: Callable[..., Target]) -> None:
    chosen = project("import pulumi\nraise pulumi.RunError('2 problems in the configuration, nothing was created')\n")
    with opened(chosen) as (engine, _):
        report = deploy.run(chosen, engine, "preview")
    assert str(report.cause) == "2 problems in the configuration, nothing was created"
    assert "where the message says" in report.next_step


PROTECTED = """
import pulumi
import pulumi_aws as aws
aws.cloudwatch.LogGroup("held", name="held", opts=pulumi.ResourceOptions(protect=True))
"""


@pytest.mark.slow
def test_a_destroy_that_fails_names_the_interfaces_that_aws_forgot_and_nothing_of_the_stacks(
    engine_kind: str, project: Callable[..., Target]
) -> None:
    chosen = project(PROTECTED)
    with opened(chosen) as (engine, _):
        deploy.run(chosen, engine, "up")
        ec2 = boto3.client("ec2", region_name="us-west-2")
        tags = [{"ResourceType": "vpc", "Tags": [{"Key": CLUSTER_ID_TAG, "Value": chosen.names.cluster_id}]}]
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags)["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
        forgotten = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
        report = deploy.destroy(chosen, engine)
        assert report.code == Exit.FAILED
        assert "protect" in str(report.cause)
        assert report.audit is not None
        assert [one.id for one in report.audit.leftovers] == [forgotten]
        assert "--remove-leftovers, then destroy again" in report.next_step
        again = deploy.destroy(chosen, engine, remove_leftovers=True)
        assert again.audit is not None
        assert again.audit.removed == [f"network interface {forgotten}"]
        assert groups() == {"held"}


CHAIN = """
import pulumi_aws as aws
before = "start"
for number in range(30):
    before = aws.cloudwatch.LogGroup(f"group-{number}", name=f"g{number}", tags={"after": before}).arn
"""


@pytest.mark.slow
def test_cancelling_ends_cleanly_and_the_next_run_continues(engine_kind: str, project: Callable[..., Target]) -> None:
    chosen = project(CHAIN)
    with opened(chosen) as (engine, _):
        once = threading.Event()

        def stop(event: Event) -> None:
            if event.phase == "done" and not once.is_set():
                once.set()
                engine.cancel()

        ended = engine.execute("up", stop)
        assert ended.cancelled
        there = len(groups())
        assert 1 <= there < 30
        report = deploy.run(chosen, engine, "up")
        assert report.succeeded, report.cause
        assert len(groups()) == 30
        assert report.counts["create"] == 30 - there
        assert deploy.destroy(chosen, engine).code == Exit.GOOD


class Cancelled:
    """An engine whose command is cancelled."""

    title = "test"

    def execute(self, *_: object) -> CommandRun:
        return CommandRun(failed=True, cancelled=True)

    def cancel(self) -> None:
        """Nothing is in progress."""

    def unsure(self) -> list[str]:
        """The CLI does not answer either."""
        raise automation.CommandError(automation.CommandResult(stdout="", stderr="no", code=1))


@pytest.mark.parametrize(
    ("succeeded", "audit", "code"),
    [
        (True, None, Exit.GOOD),
        (False, None, Exit.FAILED),
        (True, Audit(), Exit.GOOD),
        (True, Audit(leftovers=[Leftover(kind="VPC", id="vpc-1", by_aws=False, command="")]), Exit.FAILED),
        (True, Audit(leftovers=[Leftover(kind="log group", id="/a", by_aws=True, command="")]), Exit.GOOD),
        (True, Audit(unknown=["VPC: AccessDenied"]), Exit.CANNOT_KNOW),
        (False, Audit(unknown=["VPC: AccessDenied"]), Exit.FAILED),
    ],
)
def test_a_destroy_is_good_where_everything_was_looked_at_and_nothing_of_the_stack_is_left(
    succeeded: bool, audit: Audit | None, code: Exit
) -> None:
    report = deploy.Report(stack="dev", command="destroy", engine="any", succeeded=succeeded, audit=audit)
    assert report.code == code


def test_a_cancelled_command_has_its_own_exit_code_and_next_step(project: Callable[..., Target]) -> None:
    report = deploy.run(project(), Cancelled(), "up")  # type: ignore[arg-type]
    assert report.code == Exit.CANCELLED
    assert "run the same command to continue" in report.next_step


def test_after_a_cancelled_destroy_nothing_is_looked_for(
    project: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "audit", lambda target: pytest.fail("what is left is no leftover yet"))
    report = deploy.destroy(project(), Cancelled(), remove_leftovers=True)  # type: ignore[arg-type]
    assert (report.code, report.audit) == (Exit.CANCELLED, None)


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["in front", "in the background"])
def started(request: pytest.FixtureRequest) -> Iterator[None]:
    """How a shell starts a program: Ctrl-C is ignored in the background."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_lets_the_work_end_by_itself(number: signal.Signals) -> None:
    stopped = threading.Event()

    def work() -> str:
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        assert stopped.wait(10)
        return "ended"

    before = signal.getsignal(number)
    assert engines.attend(work, stopped.set) == "ended"
    assert signal.getsignal(number) is before


class Interrupted:
    """An engine whose command has nothing left to do when Ctrl-C reaches it."""

    title = "an engine"

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def execute(self, *_: object) -> CommandRun:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        assert self._stopped.wait(10)
        return CommandRun(counts={"create": 3})

    def discard(self, *_: object) -> CommandRun:
        return self.execute()

    def cancel(self) -> None:
        self._stopped.set()

    def outputs(self) -> dict[str, object]:
        return {}


@pytest.mark.parametrize(
    ("command", "discard", "code"),
    [
        ("preview", [], Exit.CANCELLED),
        ("refresh", [], Exit.CANCELLED),
        ("destroy", ["urn"], Exit.CANCELLED),
        # Nothing follows, and nothing is left to be done.
        ("up", [], Exit.GOOD),
    ],
)
def test_after_ctrl_c_no_other_command_follows_one_that_had_nothing_left_to_do(
    command: Command, discard: list[str], code: Exit, project: Callable[..., Target]
) -> None:
    report = deploy.run(project(), Interrupted(), command, discard=discard)  # type: ignore[arg-type]
    assert (report.code, report.succeeded) == (code, code == Exit.GOOD)
    assert ("nothing more was started" in report.next_step) == (code == Exit.CANCELLED)


def test_a_failed_cluster_brings_its_nodes_last_words(
    project: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    chosen = project("import pulumi_aws as aws\naws.cloudwatch.LogGroup('hyperpod-cluster', name='x')\n")
    monkeypatch.setattr(deploy, "HYPERPOD_CLUSTER", LOGS)
    with opened(chosen, "hyperpod-cluster=lifecycle") as (engine, _):
        logs = boto3.client("logs", region_name="us-west-2")
        group, stream = "/aws/sagemaker/Clusters/hyperpod-dev/abcdef123456", "LifecycleConfig/workers/i-0123"
        logs.create_log_group(logGroupName=group)
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        now = int(time.time() * 1000)
        lines = [f"line {number}" for number in range(30)] + ["step fsx failed: no file system has the tag"]
        events = [{"timestamp": now + number, "message": line} for number, line in enumerate(lines)]
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)
        report = deploy.run(chosen, engine, "up")
    (log,) = report.node_logs
    assert (log.stream, len(log.lines), log.lines[-1]) == (stream, 12, lines[-1])
    assert "last line of the node's log" in report.next_step
