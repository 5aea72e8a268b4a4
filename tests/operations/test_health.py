"""``health``: the results of the nodes' own checks, as the nodes leave them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from operations.aws import Aws
from operations.cluster import sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from stack.failures import Exit, cannot_know
from tests.operations.aws import StubbedAws, run, run_json, with_nodes

On = Callable[[Aws], None]
NOW = 1_800_000_000


def results(**changes: Any) -> dict[str, Any]:
    """What hyperpod-health files."""
    return {
        "time": NOW - 40,
        "done": "drained",
        "checks": {
            "ecc": {"status": "bad", "detail": "GPU 3: row remap failed"},
            "clock": {"status": "ok", "detail": ""},
            "nvlink": {"status": "unknown", "detail": "command not found: nvidia-smi"},
        },
        **changes,
    }


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The nodes' answers by name, to change; and, under their command lines, who was asked what."""
    well = results(checks={"clock": {"status": "ok", "detail": ""}}, done="nothing to do")
    said = {"workers-1": f"{NOW}\n{json.dumps(well)}\n", "workers-2": f"{NOW}\n{json.dumps(results(), indent=2)}\n"}

    def run_remote(target: object, node: Node, line: str, timeout: float) -> Remote:
        if line.startswith("sinfo"):
            return Remote(code=0, output="ip-10-1-1-1|idle|none\nip-10-1-1-2|drained|hyperpod-health: ecc\n")
        said[f"{node.name} ran"] = line
        if said[node.name] == "gone":
            raise cannot_know("the session ended")
        return Remote(code=0, output=said[node.name])

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    return said


def test_a_table_shows_each_worker_what_is_bad_and_what_was_done(
    asked: dict[str, str], aws: StubbedAws, on: On, capsys: pytest.CaptureFixture[str]
) -> None:
    with_nodes(aws)
    on(aws)
    code, out, _ = run(capsys, "health", "dev")
    assert code == Exit.FAILED
    rows = {line.split()[1]: line.split() for line in out.splitlines()[2:4]}
    assert rows["workers-1"] == ["PASS", "workers-1", "idle", "1", "40", "s", "well"]
    assert rows["workers-2"] == ["FAIL", "workers-2", "drained", "3", "40", "s", "ecc"]
    assert "workers-2: ecc: GPU 3: row remap failed" in out
    assert "workers-2: drained" in out
    assert "controller" not in out, "head nodes are HyperPod's to look after"
    assert asked["workers-1 ran"].endswith("cat /run/hyperpod-health/results.json")
    assert "bin/hyperpod-health" not in asked["workers-1 ran"]


def test_machines_get_every_check_and_now_runs_them_first(
    asked: dict[str, str], aws: StubbedAws, on: On, capsys: pytest.CaptureFixture[str]
) -> None:
    with_nodes(aws)
    on(aws)
    code, found = run_json(capsys, "health", "dev", "--now")
    assert code == Exit.FAILED
    assert found[1]["bad"] == {"ecc": "GPU 3: row remap failed"}
    assert found[1]["unknown"] == {"nvlink": "command not found: nvidia-smi"}
    assert (found[0]["state"], found[0]["status"]) == ("idle", "PASS")
    assert asked["workers-1 ran"].startswith("sudo -n /opt/hyperpod/bin/hyperpod-health")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("gone", "the session ended"),
        (f"{NOW}\ncat: /run/hyperpod-health/results.json: No such file or directory\n", "no results yet: cat:"),
        (f"{NOW}\n{json.dumps(results(time=NOW - 3600, checks={}))}\n", "last ran 60 minutes ago"),
        (f"{NOW}\n[]\n", "no results yet"),
    ],
)
def test_a_node_that_says_nothing_of_use_is_unknown_and_never_well(
    answer: str, said: str, asked: dict[str, str], aws: StubbedAws, on: On, capsys: pytest.CaptureFixture[str]
) -> None:
    asked["workers-2"] = answer
    with_nodes(aws)
    on(aws)
    code, out, _ = run(capsys, "health", "dev")
    assert code == Exit.CANNOT_KNOW
    assert said in out
