"""The node rehearsal's HTML report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rehearsal.nodes.report import page, write_report
from tests.rehearsal.pages import nodes_result


@pytest.fixture
def found() -> dict[str, Any]:
    """A result in the documented form."""
    return nodes_result()


def test_a_step_is_drawn_where_it_began_and_as_long_as_it_took(found: dict[str, Any]) -> None:
    (node,) = page(found)["timeline"]
    fsx, slurm = (row.bars[0] for row in node.rows)
    assert slurm.width == pytest.approx(2 * fsx.width)
    assert slurm.left == pytest.approx(fsx.left + fsx.width)
    assert (node.kind, node.open) == ("failed", True)


def test_what_follows_the_loss_of_a_worker_adds_up(found: dict[str, Any]) -> None:
    marks = page(found)["recovery_marks"]
    assert [mark["share"] for mark in marks] == [25.0, 25.0, 50.0]
    assert marks[-1]["until"] == 8.0


def test_the_page_says_what_failed_and_escapes_it(found: dict[str, Any], tmp_path: Path) -> None:
    write_report(found, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "not passed" in text
    assert "not idle: &lt;down&gt;" in text
    assert 'class="level-2 failed"' in text


def test_a_run_that_ended_before_any_node_was_up_has_a_page_too(found: dict[str, Any], tmp_path: Path) -> None:
    found |= {"nodes": [], "recovery": None, "failure": "ended by SIGTERM"}
    write_report(found, tmp_path / "page.html")
    assert "ended by SIGTERM" in (tmp_path / "page.html").read_text()
