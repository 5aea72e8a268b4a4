"""What the rehearsal of the nodes prints; no node is needed for that."""

import io
import time
from types import SimpleNamespace

import pytest
from rich.console import Console, RenderableType

from rehearsal.checks import Check
from rehearsal.nodes.checks import scripts_succeeded
from rehearsal.nodes.outcome import Node, Outcome
from rehearsal.nodes.recovery import Recovery
from rehearsal.nodes.rehearse import _performer
from rehearsal.nodes.show import Progress, booted
from tests.rehearsal.command import main


def node(name: str, seconds: float, began: float, took: float) -> Node:
    """A node whose longest step is this one."""
    step = {"name": "fsx", "result": "ok", "began": began, "seconds": took}
    return Node(name, "worker", "ml.g5.16xlarge", "efa", seconds, [step])


def printed(shown: RenderableType) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=100).print(shown)
    return text.getvalue().splitlines()


def test_a_boot_is_told_with_its_longest_step() -> None:
    _, slow, fast = printed(booted([node("a", 8.0, 4.0, 3.9), node("b", 2.5, 0.0, 0.5)]))
    assert slow.split() == ["a", "g5.16xlarge", "efa", "8.00", "fsx", "3.90"]
    assert fast.split()[-3:] == ["2.50", "fsx", "0.50"]


def test_the_check_of_the_scripts_has_the_scripts_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {"a": SimpleNamespace(code=0, seconds=3.2), "b": SimpleNamespace(code=0, seconds=5.5)}
    shown: list[Check] = []
    outcome = Outcome(stack="dev")
    progress = Progress(Console(file=io.StringIO()))
    monkeypatch.setattr(progress, "check", shown.append)
    perform = _performer(SimpleNamespace(scripts=runs), outcome, progress)  # type: ignore[arg-type]
    assert perform("scripts", scripts_succeeded)
    assert perform("another", lambda cluster: "well")
    assert [check.seconds for check in shown] == [5.5, shown[1].seconds]
    assert shown[1].seconds < 1


def test_sentences_are_not_broken_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(project: object, config: object, outcome: Outcome, *_: object, **__: object) -> None:
        outcome.checks.append(Check("scripts", True, "2 scripts"))
        outcome.recovery = Recovery(lost_at_step=3, noticed_seconds=1, node_back_seconds=2, resumed_after_seconds=3)

    monkeypatch.setattr("rehearsal.nodes.requirements.missing", lambda _: [])
    monkeypatch.setattr("rehearsal.nodes.rehearse.run", run)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["nodes"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(said) == 3
    assert said[0] == "Rehearsing the nodes of dev: Slurm with GPUs in us-west-2"
    assert said[1].endswith("training again after 3.0 s, 0 steps lost.")


def test_a_terminal_names_what_takes_its_time_and_a_log_has_no_line_of_it() -> None:
    for terminal in (True, False):
        written = io.StringIO()
        progress = Progress(Console(file=written, force_terminal=terminal, width=80))
        with progress.doing("loss of a worker"):
            time.sleep(0.15)
        assert ("loss of a worker" in written.getvalue()) is terminal
