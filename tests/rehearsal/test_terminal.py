"""The rehearsal's tree of components."""

from __future__ import annotations

import io

from rich.console import Console

from rehearsal.reports.terminal import Progress
from stack.events import Event
from stack.state import ResourceState


def test_the_tree_has_when_a_resource_is_made_and_how_long_its_deletion_takes() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    progress = Progress(console)
    kind = "aws:fsx/lustreFileSystem:LustreFileSystem"
    storage = ResourceState("urn:pulumi:dev::p::x::lustre", kind, "lustre", True, "", start=12, finish=672)

    def drawn() -> str:
        with console.capture() as captured:
            console.print(progress._render())
        return captured.get()

    progress.event(Event("done", "create", storage))
    assert "lustre  11:12" in drawn()
    progress.act = "destroy"
    progress.event(Event("start", "delete", storage))
    assert "lustre  takes " in drawn()
    assert "11:12" not in drawn()
