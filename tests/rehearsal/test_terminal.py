"""The rehearsal in a terminal and in a log."""

import io
import re

import pytest
from rich.console import Console

from operations.engine.events import Event
from operations.engine.state import ResourceState
from operations.failures import Exit
from rehearsal.changes import Change
from rehearsal.reports.terminal import Progress, changed
from tests.operations.aws import ended
from tests.support import few_files


def test_a_component_has_when_a_resource_is_made_and_how_long_its_deletion_takes() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    progress = Progress(console)
    kind = "aws:fsx/lustreFileSystem:LustreFileSystem"
    storage = ResourceState("urn:pulumi:dev::p::x::lustre", kind, "lustre", True, "", start=12, finish=672)

    def drawn() -> str:
        with console.capture() as captured:
            console.print(progress._render())
        return captured.get()

    progress.event(Event("done", "create", storage))
    assert "at 11:12, lustre" in drawn()
    progress.act = "destroy"
    progress.event(Event("start", "delete", storage))
    assert ", lustre" in drawn().partition("takes ")[2]
    assert "11:12" not in drawn()


@pytest.mark.slow
def test_components_have_a_line_each_with_bars_on_one_axis_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(force_terminal=True, color_system=None, width=80)
    monkeypatch.setattr("rehearsal.commands.deployment.console_beside", lambda _: terminal)
    with few_files():
        out, _ = ended(Exit.GOOD, "rehearse", "dev")
    printed = out.partition("Critical path")[2]
    lines = printed.partition("Components by start")[2].split("\n\n")[0].splitlines()[2:]
    assert [line.split()[0] for line in lines][-2:] == ["storage", "hyperpod"]
    network = next(line for line in lines if "network" in line)
    assert network.split()[2:] == ["0:00", "2:13", "████"]
    assert lines[-1].split()[1:4] == ["1", "2:13", "16:00"]
    assert lines[-1].index("█") == network.index("█") + 3, "where the network ends"
    assert max(map(len, lines)) <= 80
    assert re.search(r"clusterArn .*:cluster/[a-z0-9]{12}\n", printed), "what people copy is whole"
    assert "✗" not in printed
    assert "lifecycle-on_create.sh" not in printed, "no line per resource"


def test_a_comparison_of_equal_stacks_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80).print(changed(1, Change(set={})))
    assert capsys.readouterr().out.split("\n")[1:] == [
        "Change 1: no setting differs",
        "  takes 0:00, +$0.00 an hour",
        "  nothing changes",
        "",
    ]


def test_a_change_whose_price_is_unknown_is_no_change_without_cost(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80).print(changed(1, Change(set={}, hourly_usd=None)))
    assert "takes 0:00, what it costs more or less is unknown" in capsys.readouterr().out


def test_words_are_broken_between_words_in_a_terminal_and_indented_from_then_on() -> None:
    change = Change(
        set={}, hourly_usd=-1.5, created=["identity-controller-metrics", "identity-worker-metrics", "rules"]
    )
    printed = []
    for terminal in (True, False):
        out = io.StringIO()
        Console(file=out, force_terminal=terminal, color_system=None, width=60, soft_wrap=not terminal).print(
            changed(1, change)
        )
        printed.append(out.getvalue().splitlines()[2:])
    assert printed[0] == [
        "  takes 0:00, -$1.50 an hour",
        "  created  identity-controller-metrics,",
        "    identity-worker-metrics, rules",
    ]
    assert printed[1][1] == "  created  identity-controller-metrics, identity-worker-metrics, rules"
