"""``hyperpod-validate`` passes a healthy node and names what is wrong with a sick one."""

import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperpod_commands import validate
from hyperpod_commands.cluster import Trouble
from hyperpod_node.facts.model import Probe
from hyperpod_node.host.settings import Settings
from hyperpod_node.network import metadata_guard

from tests.lifecycle.rig import group, record

_Usage = namedtuple("_Usage", "total used free")
_PING = "Slurmctld(primary) at ip-10-1-0-10 is UP\n"

# By the Lustre Operations Manual and sosreport's pull request 3749.
LNET = """net:
    - net type: lo
      local NI(s):
        - nid: 0@lo
          status: up
          statistics:
              send_count: 5
    - net type: tcp
      local NI(s):
        - nid: 10.1.0.12@tcp
          status: up
          interfaces:
              0: ens32
          statistics:
              send_count: {tcp}
              recv_count: 0
    - net type: efa
      local NI(s):
        - nid: 10.1.0.40@efa
          status: {status}
          statistics:
              send_count: {efa}
        - nid: 10.1.0.41@efa
          status: up
          statistics:
              send_count: 0
"""


CONTROLLER = group("controller", "ml.m5.xlarge")


class Node:
    """A healthy worker, whose parts a test may break."""

    def __init__(self, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.own = record(group("workers", "ml.p5.48xlarge"), transport="efa-rdma", fsx_mount=str(tmp_path / "fsx"))
        self.state, self.ping, self.devices, self.credentials = "IDLE+CLOUD", _PING, 8, ["MUNGE:one"]
        self.lnet: tuple[str, int, int] = ("up", 40_000, 900)
        self.sinfo, self.partitions = "n1|gpu\nn1|dev\nn2|gpu\nn3|us\n", ""
        self.asked: list[list[str]] = []
        self.mounted, self.commands = {str(tmp_path / "fsx")}, tmp_path / "bin"
        self.summary = tmp_path / "summary.json"
        self.step = {"name": "fsx", "result": "ok", "warnings": [], "detail": ""}
        (tmp_path / "fsx").mkdir()
        self.commands.mkdir()
        for name in ("run-nccl-test", "run-nccom-test", "run-nanogpt"):
            (self.commands / name).touch(0o755)
        patch.setattr(validate, "SUMMARY", str(self.summary))
        patch.setattr(validate, "BIN", str(self.commands))
        patch.setattr(validate, "record", lambda: self.own)
        patch.setattr(validate, "run", self._run)
        self.opened = ""
        patch.setattr(metadata_guard, "exposure", lambda host: self.opened)
        patch.setattr(validate, "devices", lambda gres: self.devices if gres.startswith("gpu") else 0)
        patch.setattr(os.path, "ismount", lambda path: str(path) in self.mounted)
        patch.setattr(shutil, "disk_usage", lambda path: _Usage(100 << 30, 58 << 30, 42 << 30))
        patch.setattr(subprocess, "run", self._unmunge)
        patch.setattr(sys, "argv", ["hyperpod-validate", "--json"])

    def _run(self, argv: list[str], timeout: float = 120) -> str:
        self.asked.append(argv)
        name = os.uname().nodename.split(".")[0]
        shown = f"NodeName={name} Arch=x86_64 State={self.state} ThreadsPerCore=1\n"
        seconds, answer = {
            "munge -n": (10, self.credentials[0]),
            "lnetctl net show -v": (10, LNET.format(status=self.lnet[0], efa=self.lnet[1], tcp=self.lnet[2])),
            "scontrol ping": (20, self.ping),
            f"scontrol show node {name} -o": (20, shown if self.state else "\n"),
            "sinfo --all --noheader --Node --format=%N|%R": (20, self.sinfo),
            "scontrol show partition --oneliner": (20, self.partitions),
        }[" ".join(argv)]
        assert timeout == seconds
        return answer

    def _unmunge(self, argv: list[str], *, input: str, **more: Any) -> None:
        assert argv == ["unmunge"]
        assert more == {"check": True, "timeout": 10, "stdout": subprocess.DEVNULL, "universal_newlines": True}
        if input != "MUNGE:one":
            raise subprocess.CalledProcessError(15, argv)

    def judged(self, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, tuple[bool, str]]]:
        """The exit code, and what each check said."""
        steps = {"status": "ok", "boot_seconds": 2.61, "steps": [self.step]}
        self.summary.write_text(json.dumps(steps))
        code = validate.main()
        found = json.loads(capsys.readouterr().out)
        assert found["passed"] is (code == 0)
        assert (found["role"], found["hostname"]) == (self.own.group.role, os.uname().nodename)
        return code, {one["name"]: (one["passed"], one["detail"]) for one in found["checks"]}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A healthy worker."""
    return Node(tmp_path, monkeypatch)


def test_a_healthy_worker_passes_and_says_what_was_seen(
    node: Node, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, found = node.judged(capsys)
    assert code == 0
    assert found == {
        "boot": (True, "ok after 2.6 s"),
        "shared file system": (True, f"{tmp_path}/fsx is writable, 42 GiB free"),
        "munge": (True, "encoded and decoded a credential"),
        "slurm": (True, "idle+cloud"),
        "topology": (True, "the controller's"),
        "accelerators": (True, "8 gpu devices"),
        "transport": (True, "efa-rdma"),
        "lustre network": (True, "TCP, as the stack and the instance type have it"),
        "metadata": (True, "only root reaches instance metadata"),
        "commands": (True, f"{tmp_path}/bin"),
    }
    assert list(Path(node.own.parameters.fsx_mount).iterdir()) == []


@pytest.mark.parametrize(
    ("lnet", "passes", "said"),
    [
        (("up", 40_000, 900), True, "2 EFA interfaces; 40000 messages over EFA, 900 over TCP"),
        # Nobody has read or written anything yet.
        (("up", 0, 900), True, "2 EFA interfaces; 0 messages over EFA, 900 over TCP"),
        (("up", 0, 100_000), False, "all of 100000 messages went over TCP: the security groups"),
        (("down", 40_000, 900), False, "1 of 2 EFA interfaces are up in LNet: TCP has the rest"),
    ],
)
def test_a_file_system_that_fell_back_to_tcp_is_seen(
    node: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    lnet: tuple[str, int, int], passes: bool, said: str,
) -> None:  # fmt: skip
    node.own, node.lnet = record(replace(node.own.group, lustre_efa_interfaces=2), fsx_efa=True), lnet
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = node.judged(capsys)[1]["lustre network"]
    assert found[0] is passes
    assert found[1].startswith(said)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert node.judged(capsys)[1]["lustre network"] == (True, "only root may ask LNet")


TREE = """# HyperPod
- topology: tree
  cluster_default: {default}
  tree:
    switches:
      - switch: root
        children: leaf-[0-1]
      - switch: leaf-0
        nodes: "n[1-2]"
- topology: block
  cluster_default: false
  block:
    blocks:
      - block: cb-001
        nodes: n3,n4
"""
FLAT = "- topology: flat\n  cluster_default: true\n  flat: true\n"
GPU, US = "PartitionName=gpu Nodes=n[1-2] Topology={}\n", "PartitionName=us Nodes=n3 Topology=block\n"
REFUSED = "jobs that ask for them are refused, and no other gets them, until HyperPod has added them"


@pytest.mark.parametrize(
    ("files", "partitions", "said"),
    [
        ({}, "", "no map"),
        ({"topology.yaml": TREE.format(default="true")}, GPU.format("tree") + US, "3 nodes"),
        # The default is for partitions that name none, and a node is well in any of its own.
        ({"topology.yaml": TREE.format(default="true")}, US, "3 nodes"),
        ({"topology.yaml": TREE.format(default="false") + FLAT}, US, "3 nodes"),
        ({"topology.yaml": TREE.format(default="true").replace("n[1-2]", "n1")}, GPU.format("tree") + US, "n2"),
        ({"topology.yaml": TREE.format(default="true").replace("n3,", "")}, GPU.format("tree") + US, "n3"),
        ({"topology.yaml": TREE.format(default="true")}, GPU.format("tree"), "n3"),
        ({"topology.yaml": FLAT + TREE.format(default="false")}, GPU.format("block") + "PartitionName=us\n", "n2"),
        ({"topology.yaml": "[]\n"}, "", "3 nodes"),
        ({"topology.conf": "SwitchName=s Nodes=n[1-3]\n"}, "", "3 nodes"),
        ({"topology.conf": "SwitchName=s Nodes=n[1-2]\n"}, "", "n3"),
    ],
)
def test_a_controller_names_the_nodes_that_hyperpods_map_lacks(
    node: Node, capsys: pytest.CaptureFixture[str], tmp_path: Path, files: dict[str, str], partitions: str, said: str
) -> None:
    node.own, node.partitions = record(replace(node.own.group, role="controller")), partitions
    node.patch.setattr(Settings, "from_environment", lambda: Settings(slurm_etc=str(tmp_path)))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    good, detail = node.judged(capsys)[1]["topology"]
    assert good is (not said.startswith("n") or said == "no map")
    if not good:
        (name,) = files
        then = REFUSED if name == "topology.yaml" else "Slurm plans without it until HyperPod has added them"
        said = f"the map of the network ({name}) lacks {said}: {then}"
    assert detail == said


@pytest.mark.parametrize("state", ["IDLE", "MIXED+CLOUD", "ALLOCATED"])
def test_a_worker_that_takes_jobs_passes(node: Node, capsys: pytest.CaptureFixture[str], state: str) -> None:
    node.state = state
    assert node.judged(capsys)[1]["slurm"] == (True, state.lower())


@pytest.mark.parametrize(
    "state",
    ["IDLE+DRAIN", "ALLOCATED+DRAIN", "DOWN", "IDLE*", "MIXED+FAIL", "IDLE+DOWN", "IDLE+CLOUD*", "FUTURE", "DOWN*", ""],
)
def test_a_worker_that_takes_no_jobs_fails_with_its_state(
    node: Node, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    node.state = state
    code, found = node.judged(capsys)
    assert code == 1
    assert [name for name, (good, _) in found.items() if not good] == ["slurm"]
    assert found["slurm"] == (False, f"this node is {state or 'UNKNOWN'}")


def _unmounted(node: Node) -> None:
    node.mounted.clear()


def _foreign_credential(node: Node) -> None:
    node.credentials[0] = "MUNGE:another"


def _controller_down(node: Node) -> None:
    node.ping = "Slurmctld(primary) at ip-10-1-0-10 is DOWN\n"


def _seven_gpus(node: Node) -> None:
    node.devices = 7


def _on_tcp(node: Node) -> None:
    node.own = replace(node.own, transport="tcp", probe=Probe(0, None, "fi_info"))


def _metadata_open(node: Node) -> None:
    node.opened = "every user reaches 169.254.169.254"


def _commands_gone(node: Node) -> None:
    for name in ("run-nanogpt", "run-nccl-test"):
        (node.commands / name).unlink()


def _command_not_executable(node: Node) -> None:
    (node.commands / "run-nccom-test").chmod(0o644)


def _step_degraded(node: Node) -> None:
    node.step |= {"result": "degraded", "warnings": ["home is on the root volume"]}


def _step_failed(node: Node) -> None:
    node.step |= {"result": "failed", "detail": "no file system"}


def _nothing_recorded(node: Node) -> None:
    node.patch.setattr(validate, "SUMMARY", str(node.summary.with_name("none")))


@pytest.mark.parametrize(
    ("broken", "check", "said"),
    [
        (_unmounted, "shared file system", "{node}/fsx is not mounted"),
        (_foreign_credential, "munge", "Command '['unmunge']' returned non-zero exit status 15."),
        (_controller_down, "slurm", "Slurmctld(primary) at ip-10-1-0-10 is DOWN"),
        (_seven_gpus, "accelerators", "7 of 8 gpu devices in /dev"),
        (
            _on_tcp,
            "transport",
            "tcp, but ml.p5.48xlarge should have efa-rdma; probe: 0 EFA devices, RDMA read None (fi_info)",
        ),
        (_metadata_open, "metadata", "every user reaches 169.254.169.254"),
        (_commands_gone, "commands", "missing in {node}/bin: run-nccl-test, run-nanogpt"),
        (_command_not_executable, "commands", "missing in {node}/bin: run-nccom-test"),
        (_step_degraded, "boot", "ok: fsx: home is on the root volume"),
        (_step_failed, "boot", "ok: fsx: no file system"),
        (_nothing_recorded, "boot", "[Errno 2] No such file or directory: '{node}/none'"),
    ],
)
def test_a_sick_worker_fails_by_the_one_check_with_the_reason(
    node: Node, capsys: pytest.CaptureFixture[str], broken: Callable[[Node], None], check: str, said: str
) -> None:
    broken(node)
    code, found = node.judged(capsys)
    assert code == 1
    assert [name for name, (good, _) in found.items() if not good] == [check]
    assert found[check][1] == said.format(node=node.summary.parent)


def test_the_transport_is_what_the_type_can_do(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.own = record(group("workers", "ml.g5.48xlarge"), transport="efa-rdma")
    assert node.judged(capsys)[1]["transport"] == (
        False,
        "efa-rdma, but ml.g5.48xlarge should have efa-sendrecv; "
        "probe: 0 EFA devices, RDMA read None (not looked for)",
    )  # fmt: skip
    node.own = replace(node.own, transport="efa-sendrecv")
    assert node.judged(capsys)[1]["transport"] == (True, "efa-sendrecv")


def test_a_skipped_step_is_no_fault(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.step |= {"result": "skipped"}
    assert node.judged(capsys)[0] == 0


def test_a_controller_is_judged_by_its_daemon_and_has_no_accelerators(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.own = replace(node.own, parameters=record(CONTROLLER, fsx_mount=node.own.parameters.fsx_mount).parameters)
    node.own = replace(node.own, transport="tcp", instance=record(CONTROLLER).instance)
    code, found = node.judged(capsys)
    assert code == 0
    assert found["slurm"] == (True, _PING.strip())
    assert found["accelerators"] == (True, "none on this type")
    assert found["transport"] == (True, "tcp")
    assert not any(argv[1:2] == ["show"] for argv in node.asked)


def test_people_get_a_line_for_each_check_and_the_verdict_last(
    node: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["hyperpod-validate"])
    node.summary.write_text(json.dumps({"status": "ok", "boot_seconds": 2.6, "steps": []}))
    assert validate.main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "PASS"
    node.devices = 7
    assert validate.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["PASS"] * 5 + ["FAIL"] + ["PASS"] * 4 + ["FAIL"]
    assert lines[5] == "FAIL  accelerators        7 of 8 gpu devices in /dev"


def test_a_node_that_never_booted_is_told_apart(
    node: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def record() -> dict[str, Any]:
        raise Trouble("no record")

    monkeypatch.setattr(validate, "record", record)
    assert validate.main() == 2
    assert capsys.readouterr().err == "hyperpod-validate: no record\n"
