"""Where HyperPod's image sets Slurm up, the scripts wait for it, do what it lacks, and leave the rest alone."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperpod_node.__main__ import boot
from hyperpod_node.boot import steps
from hyperpod_node.boot.runner import Step
from hyperpod_node.facts import parameters
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import controller, munge
from hyperpod_node.storage import fsx

from tests.lifecycle.fake_commands import add_mount
from tests.lifecycle.rig import LIFECYCLE, FakeHost, World
from tests.lifecycle.slurm_rig import ready
from tests.rows import each

ACCOUNTING = {"setup": "image", "accounting": {"database": "local"}}
SOURCE = "fs-0a.fsx.us-west-2.amazonaws.com@tcp:/abcdefgh"
# By role, what the image starts.
DAEMONS = {
    "controller": {"munge", "slurmctld", "mariadb", "slurmdbd"},
    "login": {"munge"},
    "worker": {"munge", "slurmd"},
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, settings={"slurm": {"setup": "image"}})


def set_up(world: World, role: str) -> FakeHost:
    """A node on which the image has done its part."""
    host = world.node(role)
    host.active |= DAEMONS[role]
    image_mounts(host)
    return host


def image_mounts(host: FakeHost) -> None:
    host.path("/fsx").symlink_to(host.world.shared)
    add_mount(host, SOURCE, "/fsx", "lustre")


def test_a_node_comes_up_without_what_is_the_images(world: World) -> None:
    for role in DAEMONS:
        host = set_up(world, role)
        before = host.text("/etc/fstab")
        assert boot(host) == 0, host.text("/var/log/hyperpod/summary.json")
        said = {step["name"]: step for step in json.loads(host.text("/var/log/hyperpod/summary.json"))["steps"]}
        assert {step["result"] for step in said.values()} <= {"ok", "skipped"}
        assert said["fsx"]["detail"] == f"{SOURCE} is mounted at /fsx by the image"
        assert host.text("/etc/fstab") == before
        assert not host.ran("mount")
        assert not {*DAEMONS[role]} - host.active
        units = {path.parent.name for path in host.path("/etc/systemd/system").glob("*.service.d/*")}
        assert units == ({"slurmctld.service.d"} if role == "controller" else set())
        assert "id_rsa" in host.text("/etc/ssh/ssh_config.d/50-hyperpod.conf")
        assert not host.path("/home/ubuntu/.ssh").exists()


def test_the_controller_lays_the_stacks_settings_over_a_slurmctld_that_runs(world: World) -> None:
    host = set_up(world, "controller")
    assert boot(host) == 0
    assert "\nProlog=hyperpod-prolog-gate\n" in host.text("/opt/slurm/etc/hyperpod.conf")
    assert host.path("/opt/slurm/etc/hyperpod-prolog-gate").stat().st_mode & 0o111
    assert [call for call in host.calls if call[:3] == ("systemctl", "restart", "slurmctld")]
    assert [call for call in host.calls if call[:2] == ("scontrol", "reconfigure")]


def test_a_mount_that_the_image_does_not_make_is_named(world: World) -> None:
    host = world.node("worker")
    with pytest.raises(StepError, match="HyperPod has not mounted /fsx, which InstanceStorageConfigs names"):
        fsx.run(host.node())
    late = world.node("worker")
    late.on_sleep = lambda: None if "/fsx" in late.mounts() else image_mounts(late)
    assert fsx.run(late.node()) == f"{SOURCE} is mounted at /fsx by the image"


def test_munge_and_slurmctld_are_waited_for_and_not_started(world: World) -> None:
    host = set_up(world, "controller")
    host.fail["munge"] = Result(1, "", "munge: Error: Failed to access socket")
    with pytest.raises(StepError, match="MUNGE does not accept its own credential"):
        munge.run(host.node())
    world.controller_up = False
    with pytest.raises(StepError, match="the image did not start slurmctld"):
        controller.run(ready(host))
    assert not [call for call in host.calls if call[:2] in (("systemctl", "start"), ("systemctl", "restart"))]


@pytest.mark.parametrize("first", [True, False])
def test_a_job_that_came_before_the_prolog_is_no_reason_to_stay_drained(world: World, first: bool) -> None:
    host = set_up(world, "worker")
    if not first:
        host.write("/etc/hyperpod/prolog.env", "")
    drained = ["State=IDLE+DRAIN Reason=Prolog error"]

    def scontrol(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if "State=RESUME" in args:
            drained[0] = "State=IDLE"
        return Result(0, f"NodeName=ip-10-1-0-12 {drained[0]} [root@2026]\n" if "show" in args else "")

    host.commands["scontrol"] = scontrol
    said = controller.run(ready(host))
    assert ("drained" in said, drained[0] == "State=IDLE") == (not first, first)


def test_a_node_drained_for_too_few_accelerators_is_resumed_once_it_has_all(world: World) -> None:
    """Its slurmd was up before the controller's scripts had said how many it has."""
    host = set_up(world, "worker")
    states = iter(["IDLE+DRAIN+INVALID_REG", "IDLE+DRAIN+INVALID_REG", "IDLE+DRAIN", "IDLE"])
    resumed_at: list[str] = []
    shown = [""]

    def scontrol(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if "State=RESUME" in args:
            resumed_at.append(shown[0])
            return Result(0, "")
        shown[0] = next(states)
        why = " Reason=gres/gpu count reported lower than configured (0 < 8) [slurm@2026]"
        return Result(0, f"NodeName=ip-10-1-0-12 State={shown[0]}{why if 'DRAIN' in shown[0] else ''}\n")

    host.commands["scontrol"] = scontrol
    assert controller.run(ready(host)).endswith("idle")
    assert resumed_at == ["IDLE+DRAIN"]


def test_a_node_watches_the_mode_of_the_prolog_that_slurmctld_sends(world: World) -> None:
    host = set_up(world, "worker")
    assert boot(host) == 0
    assert "PathChanged=/run/slurm/conf/hyperpod-prolog-gate" in host.text(
        "/etc/systemd/system/hyperpod-prolog-gate.path"
    )
    assert "hyperpod-prolog-gate.path" in host.active
    assert ("systemctl", "start", "--no-block", "hyperpod-prolog-gate.service") in host.calls


@each({step.name: step for step in steps.ALL})
def test_every_step_says_what_it_does_in_which_mode(step: Step) -> None:
    assert step.modes
    assert set(step.modes) <= {"scripts", "image"}
    assert "scripts" in step.modes


def test_all_has_every_step_that_a_node_may_have(world: World) -> None:
    world.ship([{"name": "ada", "uid": 2001}])
    every = {"fsx": {"homeStorageGiB": 64, "efa": True, "storageGiB": 19200}, "security": {"sshOnlyWithJob": True}}
    slurm_keys = {"accounting": {"database": "local"}, "containers": True}
    world.render(**every, slurm=slurm_keys)
    names = {step.name for step in steps.for_orchestrator(world.node("worker").node())}
    assert names == {step.name for step in steps.ALL}
    del every["fsx"]["efa"]  # type: ignore[attr-defined]
    world.render(**every, slurm=ACCOUNTING)
    found = {step.name: step for step in steps.for_orchestrator(world.node("worker").node())}
    assert names - found.keys() == {"lnet", "containers", "database", "accounting"}
    assert all(need in found for step in found.values() for need in step.needs)


def test_the_file_of_other_stacks_is_what_it_was(tmp_path: Path) -> None:
    told = json.loads((World(tmp_path).source / parameters.FILE_NAME).read_text())
    assert "setup" not in told
    assert parameters.parse(told, "here").setup == "scripts"


def gate(folder: Path, seconds: int) -> subprocess.Popen[str]:
    """The prolog that slurmctld sends, on a node with an own prolog that says so, and no prolog.env."""
    prolog = folder / "hyperpod-prolog"
    prolog.write_text("#!/bin/sh\necho checked; exit 3\n")
    prolog.chmod(0o755)
    variables = {"HYPERPOD_STATE": folder, "HYPERPOD_HEALTH": folder / "health", "HYPERPOD_BIN": folder}
    environment = {name: str(value) for name, value in variables.items()}
    environment = {**os.environ, **environment, "HYPERPOD_GATE_SECONDS": str(seconds)}
    command = ["bash", str(LIFECYCLE / "slurm/prolog-gate.sh")]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_job_waits_for_the_scripts_and_then_meets_the_nodes_own_prolog(tmp_path: Path) -> None:
    waiting = gate(tmp_path, 60)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.1)
    (tmp_path / "prolog.env").touch()
    assert waiting.communicate(timeout=10)[0] == "checked\n"
    assert waiting.returncode == 3


def test_a_job_that_waits_too_long_goes_back_to_the_queue_and_the_health_check_knows_why(tmp_path: Path) -> None:
    assert gate(tmp_path, 0).wait(10) == 1
    assert "scripts have not ended" in (tmp_path / "health/prolog-failed").read_text()
