"""``deploy``, ``preview``, ``destroy``: the same scenarios on the embedded engine, and on the CLI where it is there."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import boto3
import pytest
from pulumi import automation
from rich.console import Console

from operations import deploy, engines, errors, records, rehearse, target
from operations.advice import next_step
from operations.aws import Aws
from operations.deploy_commands import counted, open_engine
from operations.engines import Engine
from operations.failures import Exit, Failure, explain
from operations.live import Progress
from operations.target import Target
from rehearsal.account import Account
from rehearsal.commands import CommandRun
from rehearsal.events import Event
from rehearsal.project import load_project
from rehearsal.state import ResourceState
from tests.operations.aws import run
from tests.support import ROOT

LOGS = "aws:cloudwatch/logGroup:LogGroup"
needs_cli = pytest.mark.skipif(shutil.which("pulumi") is None, reason="there is no Pulumi CLI on PATH")
ENGINES = [
    pytest.param("embedded", id="embedded"),
    pytest.param("pulumi", id="pulumi", marks=[pytest.mark.engine, needs_cli, pytest.mark.slow]),
]
# Two groups, the second after the first; the configuration decides the second's retention.
PROGRAM = """
import pulumi
import pulumi_aws as aws
days = len(pulumi.Config("hyperpod").require_object("workers")[0]["name"])
first = aws.cloudwatch.LogGroup("first", name="a")
later = aws.cloudwatch.LogGroup("later", name="b", retention_in_days={days}, tags={{"of": first.arn}})
pulumi.export("name", later.name)
pulumi.export("password", pulumi.Output.secret("hunter2"))
"""


@pytest.fixture(params=ENGINES)
def engine_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "embedded":
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return str(request.param)


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Target]:
    """A stack of a small program, with a configuration that the verbs accept."""

    def make(text: str = PROGRAM.format(days=7)) -> Target:
        for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
            shutil.copy(ROOT / name, tmp_path / name)
        (tmp_path / "__main__.py").write_text(text)
        return replace(target.load("dev", root=tmp_path), aws=Aws("us-west-2"))

    return make


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
        assert report.cause.text == "InternalFailure: injected failure"
        assert report.others == []
        assert "operations errors dev" in report.next_step
        deploy.keep(chosen, report)
        (kept,) = records.read(chosen, errors.DEPLOYMENTS)
        assert (kept["command"], kept["cause"]["resource"]) == ("up", "later")
        # Half of it is there: destroying still works.
        assert deploy.destroy(chosen, engine).code == Exit.GOOD
        assert groups() == set()


@pytest.mark.parametrize(
    ("cause", "step"),
    [
        ("InsufficientInstanceCapacity: not enough in this zone", "another zone"),
        ("LifecycleScriptFailed: exited with a non-zero code", "last line of the node's log"),
        ("ResourceLimitExceeded: ml.p5.48xlarge for cluster usage is 0", "quotas dev"),
        ("AccessDenied: not authorized to perform iam:CreateRole", "let this principal"),
        ("DependencyViolation: the vpc has dependencies", "errors dev"),
        ("something new", "errors dev"),
    ],
)
def test_the_next_step_fits_the_cause(cause: str, step: str) -> None:
    assert step in next_step(cause, "dev")


def test_a_program_that_refuses_says_why_itself(engine_kind: str, project: Callable[..., Target]) -> None:
    chosen = project("import pulumi\nraise pulumi.RunError('2 problems in the configuration, nothing was created')\n")
    with opened(chosen) as (engine, _):
        report = deploy.run(chosen, engine, "preview")
    assert str(report.cause) == "2 problems in the configuration, nothing was created"
    assert "mend the configuration" in report.next_step


CHAIN = """
import pulumi_aws as aws
before = "start"
for number in range(60):
    before = aws.cloudwatch.LogGroup(f"group-{number}", name=f"g{number}", tags={"after": before}).arn
"""


def test_cancelling_ends_cleanly_and_the_next_run_goes_on(engine_kind: str, project: Callable[..., Target]) -> None:
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
        assert 1 <= there < 60
        report = deploy.run(chosen, engine, "up")
        assert report.succeeded, report.cause
        assert len(groups()) == 60
        assert report.counts["create"] == 60 - there
        assert deploy.destroy(chosen, engine).code == Exit.GOOD


class Cancelled:
    """An engine whose command is cancelled."""

    title = "test"

    def execute(self, *_: object) -> CommandRun:
        return CommandRun(failed=True, cancelled=True)

    def cancel(self) -> None:
        """Nothing is in progress."""


def test_a_cancelled_command_has_its_own_exit_code_and_next_step(project: Callable[..., Target]) -> None:
    report = deploy.run(project(), Cancelled(), "up")  # type: ignore[arg-type]
    assert report.code == Exit.CANCELLED
    assert "goes on where it stopped" in report.next_step


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_lets_the_work_end_by_itself(number: signal.Signals) -> None:
    stopped = threading.Event()

    def work() -> str:
        threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        assert stopped.wait(10)
        return "ended"

    before = signal.getsignal(signal.SIGTERM)
    assert engines.attend(work, stopped.set) == "ended"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_failed_cluster_brings_its_nodes_last_words(
    project: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    chosen = project("import pulumi_aws as aws\naws.cloudwatch.LogGroup('hyperpod-cluster', name='x')\n")
    monkeypatch.setattr(deploy, "CLUSTER_TYPE", LOGS)
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


# The verbs themselves ------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, project: Callable[..., Target]) -> Target:
    """The verbs see the small program, and no CLI."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    chosen = project()
    monkeypatch.setattr(target, "load", lambda stack, overrides=None: chosen)
    return chosen


def test_the_verbs_rehearse_from_preview_to_audit(small: Target, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "deploy", "dev", "--rehearse")
    assert code == Exit.GOOD
    assert "dev is deployed: 2 resources changed" in out
    assert "password  [secret]" in out
    assert "embedded engine" in err
    code, out, _ = run(capsys, "destroy", "dev", "--rehearse", "--json")
    document = json.loads(out)
    assert (code, document["exit_code"], document["audit"]["leftovers"]) == (Exit.GOOD, 0, [])
    code, out, _ = run(capsys, "preview", "dev", "--rehearse")
    assert (code, out.splitlines()[-1]) == (Exit.GOOD, "dev: 2 to create.")
    assert not (small.project.folder / records.FOLDER).exists(), "a rehearsal is no deployment"


def test_a_failed_deployment_reads_well(small: Target, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "deploy", "dev", "--rehearse", "--fail", "later=capacity")
    assert code == Exit.FAILED
    lines = out.splitlines()
    assert lines[0].startswith("up of dev failed after")
    assert lines[1] == "What failed first:"
    assert lines[2].strip().startswith(f"later ({LOGS}): InsufficientInstanceCapacity")
    assert lines[-1].startswith("Next: AWS has no such instances now")


def test_faults_and_other_settings_are_for_rehearsals_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("--fail", "x"), ("--config", "hyperpod:size=large")):
        code, _, err = run(capsys, "deploy", "dev", "--yes", *words)
        assert code == Exit.BAD_INPUT
        assert "--rehearse" in err


def test_a_bad_configuration_is_refused_with_every_problem_before_anything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--config", "hyperpod:size=huge", "--config", "aws:region=us-west-9")
    code, _, err = run(capsys, "deploy", "dev", "--rehearse", *words)
    assert code == Exit.BAD_INPUT
    assert "hyperpod:size" in err
    assert "aws:region" in err
    assert "nothing was created" in err


@pytest.mark.engine
@needs_cli
@pytest.mark.slow
def test_the_real_cli_deploys_the_default_stack_and_scales_it_without_touching_the_file_system(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = (ROOT / "Pulumi.dev.yaml").read_text()
    code, out, err = run(capsys, "scale", "workers", "3", "--stack", "dev", "--rehearse", "--json")
    assert code == Exit.GOOD
    assert json.loads(out)["counts"]["update"] == 2
    assert "Rehearsing on Pulumi " in err
    assert (ROOT / "Pulumi.dev.yaml").read_text() == before


@pytest.mark.slow
def test_ctrl_c_during_a_rehearsal_ends_with_130() -> None:
    program = (
        "import os, signal, sys\nfrom operations import live\nfrom operations.cli import main\n"
        "seen = live.Progress.event\n"
        "def event(self, happened):\n"
        "    seen(self, happened)\n"
        "    if happened.resource.name == 'network-vpc': os.kill(os.getpid(), signal.SIGINT)\n"
        "live.Progress.event = event\nsys.exit(main(['deploy', 'dev', '--rehearse', '--json']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == Exit.CANCELLED
    assert json.loads(done.stdout)["cancelled"]
    assert "Cancelling" in done.stderr


# The CLI: found, offered, installed -----------------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a CLI."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_cli_that_was_installed_before_is_found(bare: Path) -> None:
    assert engines.find_cli() is None
    program = next_to(bare)
    assert engines.find_cli() == program.parent.parent
    assert str(engines.open_cli().version) == "3.300.0"


def next_to(home: Path) -> Path:
    """What `PulumiCommand.install` makes."""
    program = home / ".pulumi" / "versions" / metadata.version("pulumi") / "bin" / "pulumi"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho v3.300.0\n")
    program.chmod(0o755)
    return program


def test_without_a_cli_one_is_installed_where_that_was_asked_for(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automation.PulumiCommand, "install", lambda: next_to(bare))
    with pytest.raises(Failure, match="no Pulumi CLI") as missing:
        engines.open_cli()
    assert missing.value.code == Exit.CANNOT_KNOW
    assert "--install-cli" in missing.value.hint
    assert str(engines.open_cli(install=True).version) == "3.300.0"


def test_an_installation_without_network_is_explained(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("Temporary failure in name resolution")

    monkeypatch.setattr(automation.PulumiCommand, "install", fail)
    with pytest.raises(Failure, match="could not be installed: Temporary failure") as failed:
        engines.open_cli(install=True)
    assert failed.value.code == Exit.CANNOT_KNOW


@pytest.mark.engine
@needs_cli
@pytest.mark.slow
def test_a_real_stack_is_made_once_with_the_plugins_of_the_programs_sdks(
    project: Callable[..., Target], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    monkeypatch.setenv("PULUMI_BACKEND_URL", (tmp_path / "state").as_uri())
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "secret")
    installed: list[tuple[str, str]] = []
    monkeypatch.setattr(automation.LocalWorkspace, "install_plugin", lambda _, name, at: installed.append((name, at)))
    chosen = project()
    with pytest.raises(automation.StackNotFoundError) as missing:
        engines.open_stack(chosen, create=False)
    failure = explain(missing.value)
    assert failure is not None
    assert failure.code == Exit.BAD_INPUT
    assert engines.open_stack(chosen, create=True).title.startswith("Pulumi ")
    assert engines.open_stack(chosen, create=False)
    assert installed[:4] == [(name, f"v{metadata.version(f'pulumi-{name}')}") for name in engines._PACKAGES]


def test_an_eks_stack_gets_the_charts_that_it_lacks_before_the_engine_starts(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought: list[str] = []
    monkeypatch.setattr(
        "operations.deploy_commands.faults", lambda chart, folder: [chart.name][: chart.name != "kueue"]
    )
    monkeypatch.setattr("operations.charts.bring", lambda chart: brought.append(chart.name))
    with (
        pytest.raises(Failure, match="no Pulumi CLI"),
        open_engine(target.load("eks-gpu"), False, None, create=True, install_cli=False),
    ):
        pass
    assert brought == ["HyperPodHelmChart"]


# What is shown ----------------------------------------------------------------------------------------------------


def happened(phase: Any, name: str = "nat", kind: str = "aws:ec2/natGateway:NatGateway", error: str = "") -> Event:
    parent = "urn:pulumi:dev::hyperpod::hyperpod:index:Network::network"
    urn = f"urn:pulumi:dev::hyperpod::hyperpod:index:Network${kind}::{name}"
    return Event(phase, "create", ResourceState(urn=urn, type=kind, name=name, custom=True, parent=parent), error)


def test_a_log_has_a_line_for_each_resource_with_elapsed_and_usual_time() -> None:
    text = io.StringIO()
    with Progress("up dev", Console(file=text, width=100)) as progress:
        progress.event(happened("start"))
        progress.event(happened("done"))
        progress.event(happened("start", "rule", "aws:ec2/route:Route"))
        progress.event(happened("failed", "rule", "aws:ec2/route:Route", "RouteAlreadyExists"))
    lines = text.getvalue().splitlines()
    assert lines[0] == "up dev"
    assert lines[1].split() == ["…", "create", "nat", "takes", "about", "1:45"]
    assert lines[2].split() == ["✓", "create", "nat", "0:00", "of", "about", "1:45"]
    assert lines[3].split() == ["✗", "create", "rule", "0:00", "of", "about", "0:12", "RouteAlreadyExists"]
    assert len(lines) == 4


def test_a_terminal_has_a_tree_of_components_with_what_is_in_progress() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    progress = Progress("up dev", console, total=9)
    progress.event(happened("start"))
    for number in range(6):
        progress.event(happened("start", f"endpoint-{number}", "aws:ec2/vpcEndpoint:VpcEndpoint"))
    progress.event(happened("start", "vpc", "aws:ec2/vpc:Vpc"))
    progress.event(happened("done", "vpc", "aws:ec2/vpc:Vpc"))
    with console.capture() as captured:
        console.print(progress._render())
    text = captured.get()
    assert "up dev  0:00, 1 of 9 done" in text
    assert "network  1/8" in text
    assert "create nat  0:00 of about 1:45" in text
    assert "and 3 more in progress" in text
    assert "vpc" not in text.replace("endpoint", "")


def test_counts_are_said_in_words() -> None:
    assert counted({"create": 3, "same": 2, "import": 1}) == "3 to create, 2 as is, 1 import"
    assert counted({}) == "nothing to do"


def test_a_stack_is_read_with_the_projects_own_rules(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no stack"):
        target.load("nope")
    assert load_project(ROOT, "dev").name == target.load("dev").project.name
