"""The verbs ``deploy``, ``preview`` and ``destroy``: what they print, how they end, and where the CLI comes from."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pulumi import automation

from operations import records, target
from operations.commands.deploy import open_engine
from operations.commands.deploy_report import _show_success, counted, tally
from operations.deployment import deploy, engines, leftovers
from operations.deployment.deploy import Report
from operations.deployment.errors import DEPLOYMENTS
from operations.deployment.leftovers import Audit
from operations.engine.pulumi_cli import Cause, CommandRun
from operations.failures import Exit, Failure, advice, explain
from operations.project.loading import load_project
from operations.project.stack_file import ProjectError
from operations.target import Target
from rehearsal.verb_engine import EmbeddedEngine, rehearsed
from tests.operations.aws import ended, run
from tests.operations.small import LOGS, Planning, needs_cli
from tests.support import ROOT

# The verbs themselves ------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, project: Callable[..., Target]) -> Target:
    """The verbs see the small program, and no CLI."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    chosen = project()
    monkeypatch.setattr(target, "load", lambda stack, overrides=None: chosen)
    return chosen


def test_the_verbs_rehearse_from_preview_to_audit(small: Target) -> None:
    out, err = ended(Exit.GOOD, "deploy", "dev", "--rehearse")
    assert "dev was rehearsed, not deployed: 2 resources changed in 0:0" in out
    assert " here, in about 0:0" in out, "what passes here is told from what AWS takes"
    assert "create" not in err.split("up dev")[0], "a preview makes nothing"
    assert "password  [secret]" in out
    assert "embedded engine" in err
    code, out, _ = run("destroy", "dev", "--rehearse", "--json")
    document = json.loads(out)
    assert (code, document["exit_code"], document["audit"]["leftovers"]) == (Exit.GOOD, 0, [])
    code, out, _ = run("preview", "dev", "--rehearse")
    assert (code, out.splitlines()[-1]) == (Exit.GOOD, "dev: 2 to create.")
    assert not (small.project.folder / records.FOLDER).exists(), "a rehearsal is no deployment"


def test_a_quiet_deployment_prints_its_result_and_nothing_before(small: Target) -> None:
    code, out, err = run("deploy", "dev", "--rehearse", "--quiet")
    assert (code, err) == (Exit.GOOD, "")
    assert out.startswith("dev was rehearsed, not deployed: 2 resources changed")


def test_a_failed_deployment_reads_well(small: Target) -> None:
    out, _ = ended(Exit.FAILED, "deploy", "dev", "--rehearse", "--fail", "later=capacity")
    lines = out.splitlines()
    assert lines[0].startswith("Rehearsed up of dev failed after 0:0")
    assert lines[1] == "What failed first:"
    assert lines[2].strip().startswith(f"later ({LOGS}): NotStabilized: We currently do not")
    assert lines[-2].startswith("Next: AWS has no such instances in this zone now")
    assert lines[-1] == "More: hyperpod explain HP017, or docs/troubleshooting.md#hp017"


def test_an_interrupted_rehearsal_does_not_send_anyone_to_the_real_stack(
    small: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = CommandRun(causes=[Cause(text="declined")], failed=True, cancelled=True)
    monkeypatch.setattr(EmbeddedEngine, "_up", lambda *_: cancelled)
    out, _ = ended(Exit.CANCELLED, "deploy", "dev", "--rehearse", "--config", "hyperpod:tags={}")
    assert "\nNext: hyperpod deploy dev --rehearse --config 'hyperpod:tags={}'    # AWS was not touched" in out
    assert "Cancelled rehearsed up of dev after" in out
    assert "hyperpod destroy" not in out


def test_an_interrupt_outside_of_the_engine_names_the_same_command(
    small: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EmbeddedEngine, "unsure", interrupted)
    _, err = ended(Exit.CANCELLED, "deploy", "dev", "--rehearse")
    assert "\nCancelled.\nNext: hyperpod deploy dev --rehearse    # AWS was not touched" in err
    assert "Traceback" not in err


def test_what_nobody_has_foreseen_is_mended_and_rehearsed_again(small: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "matching", lambda text: None)
    out, _ = ended(Exit.FAILED, "deploy", "dev", "--rehearse", "--fail", "later=error")
    assert out.splitlines()[-2] == "Next: fix what the message names, then rehearse again"


def test_resources_are_counted_as_they_are_shown_whatever_the_engine_counts() -> None:
    report = Report("dev", "up", "any", succeeded=True, counts={"create": 5, "same": 1}, changes=["a (create)"] * 3)
    assert tally(report) == {"create": 3, "same": 1}
    assert tally(Report("dev", "destroy", "any", succeeded=True, counts={"delete": 4})) == {"delete": 4, "same": 0}


def test_one_resource_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    done = Report(stack="dev", command="up", engine="", succeeded=True, changes=["hyperpod-cluster (update)"])
    _show_success(done, "0:01", rehearse=False)
    assert capsys.readouterr().out == "dev is deployed: 1 resource changed in 0:01.\n"


def test_a_second_update_is_predicted_by_itself(small: Target) -> None:
    with rehearsed(small) as (engine, _):
        first, second = (deploy.run(small, engine, "up") for _ in range(2))
    assert first.predicted_seconds > 0
    assert second.predicted_seconds == 0


def test_faults_and_other_settings_are_for_rehearsals_alone() -> None:
    for words in (("--fail", "x"), ("--config", "hyperpod:size=large")):
        _, err = ended(Exit.BAD_INPUT, "deploy", "dev", "--yes", *words)
        assert "--rehearse" in err


def test_a_bad_configuration_is_refused_with_every_problem_before_anything() -> None:
    words = ("--config", "hyperpod:size=huge", "--config", "aws:region=us-west-9")
    _, err = ended(Exit.BAD_INPUT, "deploy", "dev", "--rehearse", *words)
    assert "hyperpod:size" in err
    assert "aws:region" in err
    assert "nothing was created" in err


@pytest.fixture
def planning(small: Target, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Planning]:
    """The verbs on a real stack, whose engine only notes what it is told; nobody is there to answer."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)

    def make(account: Any = None, **ends: Any) -> Planning:
        engine = Planning(**ends)
        monkeypatch.setattr("operations.commands.deploy.open_engine", lambda *_, **__: nullcontext((engine, account)))
        return engine

    return make


@pytest.mark.parametrize(
    ("verb", "did", "question"),
    [("deploy", ["preview"], "Deploy?"), ("destroy", [], "including its file system and all data on it?")],
)
def test_nothing_is_deployed_or_destroyed_without_a_yes(
    verb: str, did: list[str], question: str, planning: Callable[..., Planning]
) -> None:
    engine = planning()
    code, _, err = run(verb, "dev")
    assert (code, engine.did) == (Exit.BAD_INPUT, did)
    assert question in err


def test_a_plan_that_failed_is_not_carried_out(planning: Callable[..., Planning]) -> None:
    engine = planning(failed=True, causes=[Cause(text="the configuration is wrong")])
    code, out, _ = run("deploy", "dev", "--yes")
    assert (code, engine.did) == (Exit.FAILED, ["preview"])
    assert "the configuration is wrong" in out


def test_a_deployment_is_remembered_and_a_preview_is_not(small: Target, planning: Callable[..., Planning]) -> None:
    planning()
    assert run("preview", "dev")[0] == Exit.GOOD
    assert records.read(small, DEPLOYMENTS) == []
    assert run("deploy", "dev", "--yes")[0] == Exit.GOOD
    (kept,) = records.read(small, DEPLOYMENTS)
    assert (kept["command"], kept["succeeded"]) == ("up", True)


@pytest.mark.parametrize("words", [(), ("--remove-leftovers",)])
def test_what_aws_made_is_removed_only_where_that_is_said(
    words: tuple[str, ...], planning: Callable[..., Planning], monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Audit] = []
    monkeypatch.setattr(leftovers, "audit", lambda target: Audit())
    monkeypatch.setattr(leftovers, "remove", lambda target, audit: removed.append(audit))
    engine = planning()
    assert run("destroy", "dev", "--yes", *words)[0] == Exit.GOOD
    assert (engine.did, len(removed)) == (["destroy"], len(words))


def test_an_embedded_account_is_searched_whole(
    planning: Callable[..., Planning], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "audit", lambda target: Audit())
    planning(account=SimpleNamespace(leftovers=lambda: ["a thing without a tag"]))
    out, _ = ended(Exit.FAILED, "destroy", "dev", "--rehearse")
    assert "a thing without a tag" in out


@pytest.mark.parametrize("create", [True, False])
def test_a_stack_is_made_only_where_it_is_deployed(
    create: bool, small: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    install = SimpleNamespace(install_plugin=lambda name, _: called.append(name))
    opened: Any = SimpleNamespace(workspace=install, name="dev")
    monkeypatch.setenv("PULUMI_DEBUG_PROVIDERS", "aws:1,kubernetes:2")  # these run already, as a served rehearsal's do

    def opens(name: str) -> Callable[..., Any]:
        def called_with(**_: object) -> Any:
            called.append(name)
            return opened

        return called_with

    for name in ("create_or_select_stack", "select_stack"):
        monkeypatch.setattr(automation, name, opens(name))
    monkeypatch.setattr(engines, "open_cli", lambda install: SimpleNamespace(version="3.0.0"))
    engines.open_stack(small, create=create)
    assert called == ["create_or_select_stack" if create else "select_stack", "aws-native", "eks"]


@pytest.mark.engine
@needs_cli
@pytest.mark.slow
def test_the_real_cli_deploys_the_default_stack_and_scales_it_without_touching_the_file_system() -> None:
    before = (ROOT / "Pulumi.dev.yaml").read_text()
    out, err = ended(Exit.GOOD, "scale", "dev", "workers", "3", "--rehearse", "--json")
    # The cluster alone: how many nodes there are is no fact that nodes are given.
    assert json.loads(out)["counts"]["update"] == 1
    assert "Rehearsing on Pulumi " in err
    assert (ROOT / "Pulumi.dev.yaml").read_text() == before


@pytest.mark.slow
def test_ctrl_c_during_a_rehearsal_ends_with_130() -> None:
    program = (
        "import os, signal, sys, hyperpod\nhyperpod.join()\n"
        "from operations.deployment import progress\nfrom operations.cli import main\n"
        "seen = progress.Progress.event\n"
        "def event(self, happened):\n"
        "    seen(self, happened)\n"
        "    if happened.resource.name == 'network-vpc': os.kill(os.getpid(), signal.SIGINT)\n"
        "progress.Progress.event = event\nsys.exit(main(['deploy', 'dev', '--rehearse', '--json']))\n"
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
        "operations.deployment.preflight.faults", lambda chart, folder: [chart.name][: chart.name != "kueue"]
    )
    monkeypatch.setattr("operations.deployment.charts.bring", lambda chart: brought.append(chart.name))
    monkeypatch.setattr("operations.deployment.preflight.require_aws_cli", lambda: None)
    with (
        pytest.raises(Failure, match="no Pulumi CLI"),
        open_engine(target.load("eks-gpu"), False, None, create=True, install_cli=False),
    ):
        pass
    assert brought == ["HyperPodHelmChart"]


@pytest.mark.parametrize("create", [True, False])
def test_an_eks_stack_without_the_aws_cli_stops_before_anything_is_done(
    create: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(Failure, match="needs the AWS CLI on PATH") as missing,
        open_engine(target.load("eks-gpu"), False, None, create=create, install_cli=False),
    ):
        pass
    assert missing.value.code == Exit.CANNOT_KNOW
    assert "getting-started-install" in missing.value.hint


# What is shown ----------------------------------------------------------------------------------------------------


def test_counts_are_said_in_words() -> None:
    assert counted({"create": 3, "same": 2, "import": 1}) == "3 to create, 2 unchanged, 1 import"
    assert counted({}) == "nothing to do"


def test_a_stack_is_read_with_the_projects_own_rules(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="no stack"):
        target.load("nope")
    assert load_project(ROOT, "dev").name == target.load("dev").project.name
