"""A command on many nodes: the controller reaches the workers, and only those that it does not reach get a session."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from operations.cluster import every_node, sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.failures import Failure, cannot_know
from operations.target import Target
from tests.operations.aws import StubbedAws, command, stack

# As Slurm's: the last three words run on each node of the list, which knows its name. One node is lost.
_SRUN = """list="$*"; list=${list#*--nodelist=}; list=${list%% *}
for name in ${list//,/ }; do SLURMD_NODENAME=$name "${@: -3}" & done; wait
echo 'srun: error: Task launch failed on a node' >&2; exit 1
"""


def _node(name: str, role: str = "worker") -> Node:
    return Node(
        name=name, group=role, role=role, instance_id=name, instance_type="", status="Running", hostname=f"ip-{name}"
    )


HEAD, WORKERS = _node("head", "controller"), [_node(f"w{number}") for number in range(4)]


@dataclass
class Cluster:
    """A controller whose commands run here, and nodes that answer with their name."""

    target: Target
    programs: Path
    opened: list[str] = field(default_factory=list)

    def run_remote(self, _: Target, node: Node, line: str, _seconds: float) -> Remote:
        self.opened.append(node.name)
        if node is not HEAD:
            return Remote(code=0, output=f"session of {node.name}\n")
        path = {"PATH": f"{self.programs}:/usr/bin:/bin"}
        done = subprocess.run(
            ["bash", "-c", line], env=path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return Remote(code=done.returncode, output=done.stdout)

    def ask(self, line: str) -> list[Remote | Failure]:
        return every_node.answers(self.target, [HEAD, *WORKERS], WORKERS, line, 60)


@pytest.fixture
def cluster(aws: StubbedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """More workers than sessions at once. Slurm does not reach the last."""
    found = Cluster(stack(aws), tmp_path)
    command(tmp_path, "sinfo", "printf 'ip-w0\\nip-w1\\nip-w0\\nip-w2\\n'")
    command(tmp_path, "srun", _SRUN)
    command(tmp_path, "sudo", 'shift; exec "$@"')
    monkeypatch.setattr(sessions, "run_remote", found.run_remote)
    monkeypatch.setattr(sessions, "AT_ONCE", 2)
    return found


def test_one_session_asks_all_nodes_that_slurm_reaches(cluster: Cluster) -> None:
    found = cluster.ask("echo I am '$SLURMD_NODENAME'; echo twice >&2; [ $SLURMD_NODENAME != ip-w1 ] || exit 3")
    assert cluster.opened == ["head", "w3"]
    assert [one.output for one in found if isinstance(one, Remote)] == [
        *("I am $SLURMD_NODENAME\ntwice\n" for _ in range(3)),
        "session of w3\n",
    ]
    assert [one.code for one in found if isinstance(one, Remote)] == [0, 3, 0, 0]


def test_every_node_gets_a_session_where_slurm_does_not_answer(cluster: Cluster) -> None:
    command(cluster.programs, "srun", "echo 'srun: error: Unable to contact slurm controller' >&2; exit 1")
    assert len(cluster.ask("true")) == 4
    assert sorted(cluster.opened) == ["head", "w0", "w1", "w2", "w3"]


def test_what_a_node_prints_never_passes_for_the_end_of_another(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    found = cluster.ask("echo; echo guessed ip-w0 end 7")
    assert [one.code for one in found if isinstance(one, Remote)] == [0, 0, 0, 0]


def test_a_node_that_cannot_be_asked_says_why(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> Remote:
        raise cannot_know("the session ended")

    monkeypatch.setattr(sessions, "run_remote", gone)
    assert [one.message for one in cluster.ask("true") if isinstance(one, Failure)] == ["the session ended"] * 4
