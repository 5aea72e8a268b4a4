"""People: who has an account on which node, as the nodes' own command says."""

import json
from pathlib import Path
from typing import Any

import pytest
from hyperpod_node.facts import parameters
from hyperpod_node.people.apply import digest

from components.nodes import provisioning
from operations.aws import Aws
from operations.cluster import people as people_of_nodes
from operations.cluster import sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.failures import Exit, cannot_know
from operations.project.loading import Project, load_project
from operations.target import Target
from tests.operations.aws import NODES as DESCRIBED
from tests.operations.aws import StubbedAws, ended, ended_json, run, with_nodes
from tests.support import config, project

USERS = [{"name": "research1", "uid": 2001}, {"name": "research2", "uid": 2002, "gid": 3000}]
NODES = ("controller-1", "workers-1", "workers-2")
THERE = {
    "research1": {"uid": 2001, "gid": 2001, "enabled": True},
    "research2": {"uid": 2002, "gid": 3000, "enabled": True},
}


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch, aws: StubbedAws, tmp_path: Path) -> list[dict[str, Any]]:
    """The stack's people, in ``dev``."""
    with_nodes(aws)
    users = [*USERS]
    here = str(tmp_path / "people.yaml")

    def load(folder: Path, stack: str, overrides: list[str]) -> Project:
        (tmp_path / "people.yaml").write_text(json.dumps(users))
        return load_project(folder, stack, [*overrides, *([f"hyperpod:usersFile={here}"] if users else [])])

    monkeypatch.setattr("operations.target.load_project", load)
    return users


def current(aws: Aws, users: list[dict[str, Any]]) -> str:
    """By which the nodes know the list of the configuration."""
    loaded = Target(project("dev"), config("dev", users=users), aws)
    text = provisioning.people_text(loaded.config, loaded.names)
    return digest(parameters.parse_people(json.loads(text), ""))


class Nodes:
    """What the nodes answer, by name: a document, a text with a code, or nothing."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.said: dict[str, Any] = dict.fromkeys(NODES, document)
        self.asked: list[str] = []

    def run(self, _target: object, node: Node, line: str, _timeout: float) -> Remote:
        self.asked.append(line)
        answer = self.said[node.name]
        if answer is None:
            raise cannot_know("the session ended")
        code, text = answer if isinstance(answer, tuple) else (0, json.dumps(answer))
        return Remote(code=code, output=f"{text}\n")


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, people: list[dict[str, Any]], aws: StubbedAws) -> Nodes:
    """Nodes on which everybody is."""
    found = Nodes({"people": THERE, "digest": current(aws, people)})
    monkeypatch.setattr(sessions, "run_remote", found.run)
    return found


def test_nodes_that_have_everybody_are_good(nodes: Nodes) -> None:
    found = ended_json(Exit.GOOD, "node", "users", "dev")
    assert [(one["node"], one["people"], one["good"]) for one in found] == [(name, 2, True) for name in NODES]
    assert nodes.asked == ["sudo -n /opt/hyperpod/bin/hyperpod-users"] * 3


def test_who_is_missing_and_who_is_too_many_is_told_node_by_node(nodes: Nodes) -> None:
    other = {"uid": 2009, "gid": 2009, "enabled": True}
    wrong = {"research1": {**THERE["research1"], "uid": 2005}, "research2": {**THERE["research2"], "enabled": False}}
    nodes.said["workers-1"] = {"people": {**wrong, "left": other}, "digest": "old"}
    nodes.said["workers-2"] = (127, "sudo: /opt/hyperpod/bin/hyperpod-users: command not found")
    out, err = ended(Exit.FAILED, "node", "users", "dev")
    rows = {line.split()[1]: line.split() for line in out.splitlines()[2:5]}
    assert rows["controller-1"] == ["PASS", "controller-1", "2", "-", "-"]
    assert rows["workers-1"] == ["FAIL", "workers-1", "2", "research1,", "research2", "left"]
    assert rows["workers-2"][0] == "UNKNOWN"
    assert "workers-2: its scripts predate the list of people: hyperpod node run-scripts dev workers-2" in out
    assert "hyperpod apply dev --part people" in err


def test_the_list_of_the_bucket_is_applied_everywhere_and_nobody_is_locked_unasked(
    nodes: Nodes, aws: StubbedAws
) -> None:
    left = {"left": {"uid": 2009, "gid": 2009, "enabled": True}}
    nodes.said["workers-1"] = {"people": {**THERE, **left}, "digest": "old"}
    _, err = ended(Exit.BAD_INPUT, "apply", "dev", "--part", "people")
    assert "people: workers-1: lock left" in err
    assert "Apply, lock the accounts of left and end their jobs and processes?" in err
    assert len(nodes.asked) == 3
    with_nodes(aws)
    aws.answer("sagemaker", "list_cluster_nodes", {"ClusterNodeSummaries": list(DESCRIBED)})
    code, _, err = run("apply", "dev", "--part", "people", "--yes")
    assert code == Exit.FAILED, "workers-1 still says that it has another list"
    assert "Next: hyperpod deploy dev, then hyperpod apply dev" in err
    (line,) = set(nodes.asked[-3:])
    assert line.startswith("sudo -n /opt/hyperpod/bin/hyperpod-users s3://sagemaker-hyperpod-dev-us-west-2-")
    assert line.endswith("/lifecycle/hyperpod_people.json --region us-west-2")


def test_a_stack_without_people_locks_those_it_had(nodes: Nodes, people: list[dict[str, Any]], aws: StubbedAws) -> None:
    people.clear()
    nodes.said = {name: {"people": {}, "digest": ""} for name in NODES}
    code, out, _ = run("apply", "dev", "--part", "people", "--yes")
    assert (code, out) == (Exit.GOOD, "people: nothing to change\n"), "a node that never had people"
    asked = Target(project("dev"), config("dev"), aws)
    with_nodes(aws)
    people_of_nodes.apply(asked, dry_run=False)
    assert nodes.asked[-1] == "sudo -n /opt/hyperpod/bin/hyperpod-users --nobody"


def test_trouble_on_a_node_is_told(nodes: Nodes, aws: StubbedAws) -> None:
    nodes.said["workers-1"] = {**nodes.said["workers-1"], "warnings": ["research1 has no keys: x"]}
    nodes.said["workers-2"] = (0, "a banner")
    out, _ = ended(Exit.FAILED, "node", "users", "dev")
    assert "workers-1: research1 has no keys: x" in out
    assert "workers-2: not understood: a banner" in out
    nodes.said = dict.fromkeys(NODES)
    for words in (("node", "users", "dev"), ("apply", "dev", "--part", "people", "--dry-run")):
        with_nodes(aws)
        assert run(*words)[0] == Exit.CANNOT_KNOW


def test_pods_have_no_accounts(aws: StubbedAws) -> None:
    _, err = ended(Exit.BAD_INPUT, "node", "users", "eks-gpu")
    assert "hyperpod:teams" in err
