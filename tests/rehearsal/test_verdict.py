"""The end of a rehearsal: one line of what a stack takes, and a command that works as it is printed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.config import parse
from operations.terminal.command_line import called
from rehearsal.commands import deployment
from rehearsal.nodes import requirements
from rehearsal.outcome import Outcome
from rehearsal.reports.verdict import verdict
from tests.rehearsal.command import main
from tests.support import ROOT, project


def ended(stack: str = "dev", **settings: Any) -> tuple[str, str]:
    chosen = project(stack, **settings)
    return verdict(Outcome(config=parse(chosen.config), project=chosen, cluster_seconds=1093))


def test_the_verdict_says_time_money_quotas_and_the_next_command() -> None:
    said, following = ended()
    assert said == (
        "dev is good: up in 19 minutes on AWS, $11.37 an hour; "
        "quotas to have: 2 x ml.g5.16xlarge for cluster usage, 1 x ml.m5.2xlarge for cluster usage"
    )
    assert following == f"{called()} quotas dev"


def test_the_command_is_printed_as_it_can_be_typed_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("hyperpod", "python"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert called() == "venv/bin/hyperpod"
    monkeypatch.setenv("PATH", str(folder))
    assert called() == "hyperpod"
    # That of another clone is not this one.
    (tmp_path / "hyperpod").write_text("#!/bin/sh\n")
    (tmp_path / "hyperpod").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{folder}")
    assert called() == "venv/bin/hyperpod"


@pytest.mark.parametrize(("stack", "which"), [("dev", "nodes"), ("eks-gpu", "eks")])
def test_all_goes_on_with_the_nodes_or_kubernetes_and_the_same_keys(
    stack: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def record(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(words[1:])
        return subprocess.CompletedProcess(words, 1)

    monkeypatch.setattr("subprocess.run", record)
    chosen = parse(project(stack).config)
    assert deployment.the_rest(stack, chosen, ["hyperpod:size=small"], None) == 1
    assert asked == [
        [str(ROOT / "hyperpod.py"), "rehearse", which, stack, "--if-possible", "--config", "hyperpod:size=small"]
    ]


def test_make_rehearse_is_one_command() -> None:
    words = ["make", "--dry-run", "--old-file=venv/.ready", "rehearse", "STACK=eks-gpu", "ARGS=--keep-up"]
    # A make around this one has its say in what this one prints.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "venv/bin/hyperpod rehearse eks-gpu --all --keep-up"


def test_nodes_that_were_not_rehearsed_say_how_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    monkeypatch.setattr(requirements, "_PACKAGES", {"/nowhere/munged": "munge"})
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["nodes", "dev", "--if-possible"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("The nodes were not rehearsed: this machine lacks root, Debian packages, Slurm 24.11")
    assert said[1] == f"  sudo make node-packages && sudo {called()} rehearse nodes dev"
    assert requirements.how(["overlay: the kernel has none"], "dev") == f"sudo {called()} rehearse nodes dev"
    # What a stack of the other kind lacks is not said.
    assert main(["nodes", "eks-gpu", "--if-possible"]) == 0
    assert capsys.readouterr() == ("", "")
