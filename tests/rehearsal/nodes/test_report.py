"""The node rehearsal's HTML report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rehearsal.nodes.report import page, write_report


@pytest.fixture
def found() -> dict[str, Any]:
    """A result in the documented form."""
    steps = [
        {"name": "fsx", "seconds": 0.5, "result": "ok", "began": 0.1},
        {"name": "slurm", "seconds": 1.0, "result": "failed", "began": 0.6},
    ]
    node = {"name": "workers-1", "role": "worker", "instance_type": "ml.p5.48xlarge", "transport": "efa-rdma"}
    return {
        "stack": "dev",
        "passed": False,
        "failure": "",
        "nodes": [{**node, "boot_seconds": 2.0, "steps": steps}],
        "all_idle_seconds": 2.0,
        "checks": [{"name": "all idle", "passed": False, "detail": "not idle: <down>", "seconds": 0.1}],
        "recovery": {
            "resumed_after_seconds": 8.0,
            "steps_lost": 3,
            "noticed_seconds": 2.0,
            "node_back_seconds": 4.0,
            "lost_at_step": 43,
            "checkpoint": 40,
        },
        "leftovers": [],
    }


def test_a_step_is_drawn_where_it_began_and_as_long_as_it_took(found: dict[str, Any]) -> None:
    (block,) = page(found)["timeline"]["blocks"]
    fsx, slurm = block["rows"]
    assert slurm["width"] == pytest.approx(2 * fsx["width"])
    assert slurm["x"] == pytest.approx(fsx["x"] + fsx["width"])
    assert slurm["y"] > fsx["y"]


def test_what_follows_the_loss_of_a_worker_adds_up(found: dict[str, Any]) -> None:
    marks = page(found)["recovery_marks"]
    assert [mark["share"] for mark in marks] == [25.0, 25.0, 50.0]
    assert marks[-1]["until"] == 8.0


def test_the_page_says_what_failed_and_escapes_it(found: dict[str, Any], tmp_path: Path) -> None:
    write_report(found, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "not passed" in text
    assert "not idle: &lt;down&gt;" in text
    assert 'class="row failed"' in text


def test_a_run_that_ended_before_any_node_was_up_has_a_page_too(found: dict[str, Any], tmp_path: Path) -> None:
    found |= {"nodes": [], "recovery": None, "failure": "ended by SIGTERM"}
    write_report(found, tmp_path / "page.html")
    assert "ended by SIGTERM" in (tmp_path / "page.html").read_text()
