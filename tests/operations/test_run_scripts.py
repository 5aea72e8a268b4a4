"""``run-scripts``: which nodes in which order, what happens to their jobs, and where it stops."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from operations.cluster import draining, run_scripts, sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.failures import Exit, cannot_know
from tests.operations.aws import StubbedAws, command, ended, ended_json, run, stack, with_nodes, with_session

RUN = ("node", "run-scripts", "dev", "--yes")
STEPS = [
    {"name": "fsx", "result": "ok", "seconds": 0.2, "detail": "mounted", "warnings": []},
    {"name": "slurm", "result": "degraded", "seconds": 1.5, "detail": "up", "warnings": ["no topology"]},
]


def said(status: str = "ok") -> str:
    """What the entry point prints."""
    found = {"status": status, "boot_seconds": 1.75, "changed": 3, "steps": STEPS}
    return f"step fsx ... ok\nsummary {json.dumps(found)}\n"


class Slurm:
    """The nodes, and the controller's Slurm. ``jobs`` are those that run, ``broken`` what a node says instead."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.states = {"ip-10-1-1-1": "idle", "ip-10-1-1-2": "mixed"}
        self.reasons: dict[str, str] = {}
        self.jobs: list[str] = []
        self.broken: dict[str, str | None] = {}

    def run(self, _target: object, node: Node, line: str, _timeout: float = 0, **_: float) -> Remote:
        if line.startswith("sinfo"):
            rows = (f"{name}|{state}|{self.reasons.get(name, 'none')}" for name, state in self.states.items())
            return Remote(code=0, output="".join(f"{row}\n" for row in rows))
        if "squeue" in line:
            self.did.append("squeue")
            running, self.jobs = self.jobs, self.jobs[1:]
            end = re.search(r"Name:(\|\w+)", line)
            return Remote(
                code=0, output="".join(f"{job}|ann|1|llama{end[1]}\n" if end else f"{job}\n" for job in running)
            )
        if "scontrol" in line:
            self.did.append(" ".join(shlex.split(line)[4:]))
            return Remote(code=0, output="")
        self.did.append(node.name)
        broken = self.broken.get(node.name, "")
        if broken is None:
            raise cannot_know("the session ended")
        if broken:
            return Remote(code=1, output=f"{said('failed')}{broken}\n")
        return Remote(code=0, output=said())


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, aws: StubbedAws) -> Slurm:
    with_nodes(aws)
    return answering(monkeypatch)


def answering(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """A Slurm that answers on the controller, and is asked again at once."""
    found = Slurm()
    monkeypatch.setattr(sessions, "run_remote", found.run)
    monkeypatch.setattr(draining, "_AGAIN_SECONDS", 0.0)
    return found


ONE, TWO = "ip-10-1-1-1", "ip-10-1-1-2"
DRAIN = "State=DRAIN Reason=hyperpod node run-scripts"


def test_the_controller_comes_first_and_workers_are_drained_one_after_the_other(slurm: Slurm) -> None:
    found = ended_json(Exit.GOOD, *RUN)
    plan, *did = slurm.did
    assert plan == "squeue"
    assert did == [
        "controller-1",
        *(f"NodeName={ONE} {DRAIN}", "squeue", "workers-1", f"NodeName={ONE} State=RESUME"),
        *(f"NodeName={TWO} {DRAIN}", "squeue", "workers-2", f"NodeName={TWO} State=RESUME"),
    ]
    assert [one["node"] for one in found["nodes"]] == ["controller-1", "workers-1", "workers-2"]
    first = {"status": "ok", "seconds": 1.75, "changed": 3, "steps": STEPS, "trouble": "", "out": False}
    assert found["nodes"][0] == {"node": "controller-1", **first}
    assert (found["not_run"], found["good"]) == ([], True)


def test_so_many_nodes_at_once_and_their_jobs_end_first(slurm: Slurm) -> None:
    slurm.jobs = ["7", "8", "9"]
    _, told = ended(Exit.GOOD, *RUN, "workers", "--at-once", "2")
    assert "7  llama  ann: goes on; its node waits for it" in told
    _, drained, *waited, one, two, resumed = slurm.did
    assert drained == f"NodeName={ONE},{TWO} {DRAIN}"
    assert waited == ["squeue"] * 3
    assert {one, two} == {"workers-1", "workers-2"}
    assert resumed == f"NodeName={ONE},{TWO} State=RESUME"


def test_without_draining_slurm_is_asked_for_nothing(slurm: Slurm) -> None:
    ended(Exit.GOOD, *RUN, "workers-2", "--no-drain")
    assert slurm.did == ["squeue", "workers-2"]


def test_a_node_that_somebody_else_has_taken_out_stays_out_and_one_of_an_earlier_run_comes_back(slurm: Slurm) -> None:
    slurm.states = {ONE: "drained", TWO: "drained"}
    slurm.reasons = {ONE: "ann looks at its disk", TWO: run_scripts.REASON}
    ended(Exit.GOOD, *RUN, "workers", "--at-once", "2")
    assert [line for line in slurm.did if "=" in line] == [f"NodeName={TWO} {DRAIN}", f"NodeName={TWO} State=RESUME"]


@pytest.mark.parametrize(
    ("broken", "why"), [("step slurm failed: no slurmd", "step slurm failed: no slurmd"), (None, "the session ended")]
)
def test_it_stops_at_the_first_that_fails_which_stays_out(slurm: Slurm, broken: str | None, why: str) -> None:
    slurm.broken = {"workers-1": broken}
    out, _ = ended(Exit.FAILED, *RUN)
    assert why in out
    assert "workers-1 gets no jobs until" in out
    assert "not run on workers-2" in out
    assert slurm.did[-1] == "workers-1"


def test_each_step_is_shown(slurm: Slurm) -> None:
    _, out, _ = run(*RUN, "controller")
    assert out.splitlines()[0] == "controller-1: ok after 1.8 s, 3 files changed"
    assert [line.split() for line in out.splitlines()[2:]] == [
        ["fsx", "0.20", "ok", "mounted"],
        ["slurm", "1.50", "degraded", "up;", "no", "topology"],
    ]


def test_nodes_whose_jobs_do_not_end_go_back_to_slurm_unchanged(slurm: Slurm) -> None:
    slurm.jobs = ["7"] * 9
    _, told = ended(Exit.FAILED, *RUN, "workers-1", "--timeout", "0")
    assert "did not end within 0 s" in told
    assert slurm.did[-1] == f"NodeName={ONE} State=RESUME"
    assert "workers-1" not in slurm.did


def test_no_script_runs_without_a_yes_or_for_a_name_that_is_none(slurm: Slurm, aws: StubbedAws) -> None:
    code, _, told = run("node", "run-scripts", "dev", "controller")
    assert (code, slurm.did) == (Exit.BAD_INPUT, ["squeue"])
    assert "Run the scripts on 1 nodes?" in told
    with_nodes(aws)
    code, _, told = run(*RUN, "wrokers-1")
    assert (code, slurm.did) == (Exit.BAD_INPUT, ["squeue"])
    assert "did you mean workers-1?" in told


def test_a_node_gets_the_scripts_from_the_bucket_and_leaves_no_copy(
    aws: StubbedAws, plugin: Path, tmp_path: Path
) -> None:
    """The real command line: the entry point's own output, to the last process of it, and its exit code."""
    entry = tmp_path / "entry.sh"
    entry.write_text(f"cat <<'END'\n{said('failed')}END\n(sleep 0.1; echo step x failed: why) &\nexit 3\n")
    noted = tmp_path / "aws-words"
    command(plugin, "aws", f'echo "$@" > {noted}; mkdir -p "${{@: -1}}"; cp {entry} "${{@: -1}}/on_create.sh"')
    command(plugin, "mktemp", f"mkdir {tmp_path}/run; echo {tmp_path}/run")
    with_nodes(aws)
    with_session(aws)
    found = run_scripts._one(stack(aws), _node())
    assert (found.status, found.trouble, found.changed) == ("failed", "step x failed: why", 3)
    words = noted.read_text().split()
    assert words[:2] == ["s3", "cp"]
    assert "--recursive" in words
    assert words[-2].endswith("/lifecycle")
    assert not (tmp_path / "run").exists()


def test_what_the_bucket_refuses_is_the_reason(aws: StubbedAws, plugin: Path, tmp_path: Path) -> None:
    command(plugin, "aws", "echo fatal error: Access Denied >&2; exit 1")
    command(plugin, "mktemp", f"mkdir {tmp_path}/run; echo {tmp_path}/run")
    with_nodes(aws)
    with_session(aws)
    found = run_scripts._one(stack(aws), _node())
    assert (found.status, found.trouble) == ("failed", "fatal error: Access Denied")


def _node() -> Node:
    known: dict[str, Any] = {"name": "workers-1", "group": "workers", "role": "worker", "status": "Running"}
    return Node(**known, instance_id="i-workers1", instance_type="ml.g5.16xlarge")
