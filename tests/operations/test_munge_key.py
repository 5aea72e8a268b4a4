"""``rotate-munge``: every node is prepared before any changes, and who does not follow is named."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from operations.aws import Aws
from operations.cluster import munge_key, sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from stack.failures import Exit, Failure, cannot_know
from tests.operations.aws import NODES as AWS_NODES
from tests.operations.aws import StubbedAws, run, run_json, stack, with_nodes

DIGEST = "0123456789abcdef" * 4
NODES = ("controller-1", "workers-1", "workers-2")
ROTATE = ("rotate-munge", "dev", "--yes")


class Nodes:
    """What the nodes answer; ``broken`` by name: what one says instead, None where its session ends."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.broken: dict[str, str | None] = {}
        self.end: dict[str, list[str]] = {"late": [], "silent": []}

    def run(self, _target: object, node: Node, line: str, _timeout: float) -> Remote:
        part = line.removeprefix("sudo -n ").replace(munge_key.COMMAND, "").strip()
        self.asked.append((node.name, part))
        broken = self.broken.get(node.name, "")
        if broken is None:
            raise cannot_know("the session ended")
        if broken:
            return Remote(code=1, output=f"{broken}\n")
        known = {"prepare": {"digest": DIGEST}, f"wait {DIGEST}": {}}
        return Remote(code=0, output=json.dumps(known.get(part, self.end)) + "\n")


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, aws: StubbedAws, on: Callable[[Aws], None]) -> Nodes:
    with_nodes(aws)
    on(aws)
    found = Nodes()
    monkeypatch.setattr(sessions, "run_remote", found.run)
    return found


def test_every_node_is_prepared_before_any_changes(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run_json(capsys, *ROTATE)
    assert code == Exit.GOOD
    assert found == {"digest": DIGEST[:12], "nodes": [*NODES], "late": [], "silent": [], "later": [], "good": True}
    first, *prepared, last = nodes.asked
    assert first == ("controller-1", "prepare")
    assert sorted(prepared) == [(name, f"wait {DIGEST}") for name in NODES]
    assert last == ("controller-1", f"setsid --fork --wait  switch {DIGEST}")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "the session ended"),
        ("hyperpod-munge-key: somebody else replaces it", "somebody else replaces it"),
        (f"sudo: {munge_key.COMMAND}: command not found", "booted with scripts that cannot change the key"),
    ],
)
def test_where_a_node_cannot_be_prepared_none_changes(
    nodes: Nodes, capsys: pytest.CaptureFixture[str], said: str | None, why: str
) -> None:
    nodes.broken = {"workers-2": said}
    code, _, told = run(capsys, *ROTATE)
    assert code == Exit.FAILED
    told = " ".join(told.split())
    assert "no key was changed: workers-2" in told
    assert why in told
    assert "--leave-out workers-2" in told
    assert not any("switch" in part for _, part in nodes.asked)


def test_a_node_that_is_left_out_is_not_asked_and_told_of(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    nodes.broken = {"workers-2": None}
    code, out, told = run(capsys, *ROTATE, "--leave-out", "workers-2")
    assert code == Exit.GOOD
    assert out == f"2 of 2 nodes use the new key, {DIGEST[:12]}\n"
    assert "left out: workers-2. They take the key when they boot." in told
    assert "workers-2" not in {name for name, _ in nodes.asked}


def test_who_has_the_old_key_and_who_is_silent_is_named_by_the_name_that_verbs_take(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    host = str(AWS_NODES[-1]["PrivateDnsHostname"]).split(".")[0]
    nodes.end = {"late": [host], "silent": ["ip-10-9-9-9"]}
    code, out, _ = run(capsys, *ROTATE)
    assert code == Exit.FAILED
    assert "2 of 3 nodes" in out
    assert "workers-2 has the old key" in out
    assert "ip-10-9-9-9 has the new key, and does not answer Slurm" in out


def test_without_a_yes_nothing_is_asked_of_a_node(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, told = run(capsys, "rotate-munge", "dev")
    assert (code, nodes.asked) == (Exit.BAD_INPUT, [])
    assert "change the key on 3 nodes?" in " ".join(told.split())


def test_the_key_of_hyperpods_image_is_hyperpods(aws: StubbedAws) -> None:
    with pytest.raises(Failure, match="which HyperPod itself hands out"):
        munge_key.chosen(stack(aws, "dev", 'slurm={"setup":"image"}'), ())
