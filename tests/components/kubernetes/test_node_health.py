"""Nodes' health on Kubernetes: what the plug-in says of a node's results, by node-problem-detector's contract."""

import os
import subprocess
from pathlib import Path

import pytest

from components.kubernetes.node_health import MONITOR, SCRIPT


@pytest.mark.parametrize(
    ("results", "reason", "age", "code", "said"),
    [
        (True, "", 0, 0, "all checks pass"),
        (True, "efa: 31 of 32 EFA devices\nclock: off\n", 0, 1, "efa: 31 of 32 EFA devices;clock: off;"),
        (True, "efa: 31 of 32 EFA devices\n", 3600, 2, "the checks run no more"),
        (False, "", 0, 2, "the checks have not run yet"),
    ],
)
def test_a_nodes_results_become_its_condition(
    tmp_path: Path, results: bool, reason: str, age: int, code: int, said: str
) -> None:
    (tmp_path / "health.sh").write_text(SCRIPT)
    folder = tmp_path / "health"
    folder.mkdir()
    if results:
        (folder / "results.json").write_text("{}")
        (folder / "reason").write_text(reason)
        then = (folder / "results.json").stat().st_mtime - age
        os.utime(folder / "results.json", (then, then))
    done = subprocess.run(["sh", str(tmp_path / "health.sh"), str(folder)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (code, said)


def test_the_rule_sets_a_condition_that_it_declares() -> None:
    assert {rule["condition"] for rule in MONITOR["rules"]} == {one["type"] for one in MONITOR["conditions"]}
