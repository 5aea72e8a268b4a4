"""slurmd on a worker: registered, or left to register when the controller comes to know the node."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hyperpod_node.host import accelerators, units
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import controller, worker

from tests.lifecycle.rig import FakeHost, World
from tests.lifecycle.slurm_rig import ready, two_controllers


def test_a_worker_fetches_its_configuration_from_all_controllers(world: World) -> None:
    host = world.node("worker")
    two_controllers(host)
    controller.run(ready(host))
    drop_in = host.text("/etc/systemd/system/slurmd.service.d/10-hyperpod.conf")
    assert "\nEnvironment=HYPERPOD_CONTROLLERS=10.1.0.10,10.1.0.20\n" in drop_in
    assert "ExecStart=\nExecStart=/usr/sbin/slurmd --conf-server ${HYPERPOD_CONTROLLERS} -D -s $OPTIONS\n" in drop_in
    assert "LimitMEMLOCK=infinity" in drop_in
    assert host.active == {"slurmd"}


@pytest.mark.parametrize(
    "command",
    [
        "/opt/slurm/sbin/slurmd -D $SLURMD_OPTIONS",
        "/opt/slurm/sbin/slurmd --conf-server=old:6817 -D $SLURMD_OPTIONS",
        "/opt/slurm/sbin/slurmd --conf-server old -D $SLURMD_OPTIONS",
    ],
)
def test_conf_server_is_there_once_and_the_rest_stays(command: str) -> None:
    wanted = "/opt/slurm/sbin/slurmd --conf-server ${HYPERPOD_CONTROLLERS} -D $SLURMD_OPTIONS"
    assert worker.with_server(command) == wanted


def test_a_controller_that_replaces_another_is_asked_at_slurmds_next_start(world: World) -> None:
    host = world.node("worker")
    controller.run(ready(host))
    drop_in = host.text("/etc/systemd/system/slurmd.service.d/10-hyperpod.conf")
    assert "EnvironmentFile=-/run/hyperpod-controllers\n" in drop_in
    assert "ExecStartPre=-/opt/hyperpod/bin/hyperpod-conf-server /fsx/.hyperpod/slurm/controller.json\n" in drop_in


def test_slurmd_is_not_started_before_a_controller_answers(world: World) -> None:
    host = world.node("worker")
    world.controller_up = False

    def later() -> None:
        assert "slurmd" not in host.active or world.controller_up
        world.controller_up = host.clock > 1400

    host.on_sleep = later
    controller.run(ready(host))
    assert "slurmd" in host.active


def test_a_controller_that_never_answers_ends_the_wait(world: World) -> None:
    world.controller_up = False
    with pytest.raises(StepError, match=r"no controller answered at 10.1.0.10:6817 within 900 s"):
        controller.run(ready(world.node("worker")))


def shows(host: FakeHost, state: str) -> None:
    host.commands["scontrol"] = lambda h, args, stdin: Result(0, f"NodeName=x State={state} CPUs=8\n")


@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED", "MIXED+CLOUD", "IDLE+PLANNED"])
def test_a_node_that_takes_jobs_is_success(world: World, state: str) -> None:
    host = world.node("worker")
    shows(host, state)
    controller.run(ready(host))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("IDLE*", r"did not show this node as idle within 300 s: IDLE\*"),
        ("IDLE+CLOUD+POWERED_DOWN", "did not show this node as idle within 300 s: IDLE.CLOUD.POWERED_DOWN"),
        ("IDLE+DRAIN Reason=hand [root@2026]", "keeps this node down: hand"),
        (
            "DOWN+INVALID_REG Reason=gres/gpu count reported lower than configured (0 < 8) [slurm@2026]",
            r"keeps this node down: gres/gpu count reported lower than configured \(0 < 8\)",
        ),
        ("DOWN Reason=Action:Replace [root@2026]", "keeps this node down: Action:Replace"),
    ],
)
def test_a_node_that_accepts_no_jobs_is_a_failure_with_its_reason(world: World, state: str, said: str) -> None:
    host = world.node("worker")
    shows(host, state)
    with pytest.raises(StepError, match=said):
        controller.run(ready(host))


def test_where_the_image_starts_slurmd_a_node_waits_for_its_accelerators_to_be_known(world: World) -> None:
    host = world.node("worker")
    shows(host, "DOWN+INVALID_REG Reason=gres/gpu count reported lower than configured (0 < 8) [slurm@2026]")
    node = ready(host)
    node.parameters_ = replace(node.parameters, setup="image")
    with pytest.raises(StepError, match="did not show this node as idle within 300 s"):
        controller.run(node)


@pytest.mark.parametrize(("ran", "ends"), [("active", True), ("inactive", False)])
def test_a_node_that_was_drained_while_it_lived_may_have_its_scripts_again(world: World, ran: str, ends: bool) -> None:
    """Also with a job on it; a node that boots has to take jobs."""
    host = world.node("worker")
    shows(host, "MIXED+DRAIN Reason=hyperpod node run-scripts [root@2026]")
    if ran == "active":
        host.active.add("slurmd")
    if ends:
        assert controller.run(ready(host)).endswith(", mixed, drained")
    else:
        with pytest.raises(StepError, match=r"did not show this node as idle within 300 s: MIXED\+DRAIN"):
            controller.run(ready(host))


def test_a_reason_that_this_boot_settled_is_taken_away(world: World) -> None:
    host = world.node("worker")
    state = ["DOWN Reason=Node unexpectedly rebooted [slurm@2026]"]

    def scontrol(h: FakeHost, args: object, stdin: object) -> Result:
        if args[1] == "update":  # type: ignore[index]
            state[0] = "IDLE"
        return Result(0, f"NodeName=x State={state[0]}\n")

    host.commands["scontrol"] = scontrol
    controller.run(ready(host))
    assert host.ran("scontrol", "update", "NodeName=x", "State=RESUME")


def test_a_worker_that_the_controller_does_not_know_yet_may_register_later(world: World) -> None:
    """HyperPod writes the line of a node that joins later minutes after its scripts have ended."""
    host = world.node("worker")
    host.commands["scontrol"] = lambda h, args, stdin: Result(1, "", f"Node {args[3]} not found")
    node, began = ready(host), host.clock
    assert controller.run(node) == "10.1.0.10:6817 does not know ip-10-1-0-12 yet; slurmd starts by itself once it does"
    assert host.clock == began
    assert not node.warnings
    assert "slurmd" in host.enabled
    assert host.ran("systemctl", "start", "--no-block", "slurmd")
    drop_in = host.text("/etc/systemd/system/slurmd.service.d/10-hyperpod.conf")
    assert "[Unit]\nConditionPathExists=\nStartLimitIntervalSec=0\n" in drop_in
    assert "\nRestart=always\n" in drop_in


def test_a_worker_that_slurm_knows_by_hyperpods_name_is_known(world: World) -> None:
    host = world.node("worker")

    def scontrol(h: FakeHost, args: Sequence[str], stdin: object) -> Result:
        if args[3] == "workers-1":
            return Result(0, "NodeName=workers-1 NodeHostName=ip-10-1-0-12 State=IDLE+CLOUD\n")
        return Result(1, "", f"Node {args[3]} not found")

    host.commands["scontrol"] = scontrol
    assert controller.run(ready(host)).endswith(", idle")


def test_scontrol_finds_the_controller_before_slurmd_has_fetched_a_configuration(world: World) -> None:
    host, seen = world.node("worker"), []
    run = host.execute

    def execute(args: tuple[str, ...], timeout: float, stdin: str | Path | None, env: Mapping[str, str]) -> Result:
        if args[0] == "scontrol":
            seen.append(Path(env["SLURM_CONF"]).read_text())
        return run(args, timeout, stdin, env)

    host.execute = execute  # type: ignore[method-assign]
    controller.run(ready(host))
    assert "\nSlurmctldHost=ip-10-1-0-10(10.1.0.10)\nSlurmctldPort=6817\n" in seen[0]


def test_a_slurmd_that_does_not_run_says_its_own_reason(world: World) -> None:
    host = world.node("worker")
    host.commands["scontrol"] = lambda h, args, stdin: Result(0, "NodeName=x State=IDLE+CLOUD+POWERED_DOWN\n")
    host.commands["systemctl"] = lambda h, args, stdin: Result(3 if args[1] == "is-active" else 0)
    host.commands["journalctl"] = lambda h, args, stdin: Result(
        0, "slurmd: error: one\nslurmd: fatal: Unable to bind listen port (6818): Address already in use\nslurmd: x\n"
    )
    reason = r"IDLE\+CLOUD\+POWERED_DOWN; slurmd is not running: slurmd: fatal: Unable to bind listen port"
    with pytest.raises(StepError, match=reason):
        controller.run(ready(host))
    lines = str(units.LOG_LINES)
    (asked,) = {call for call in host.calls if call[0] == "journalctl"}
    assert asked[1:] == ("--unit", "slurmd", "--boot", "--lines", lines, "--output", "cat", "--no-pager")


def test_a_full_disk_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    host = world.node("worker")
    host.commands["scontrol"] = lambda h, args, stdin: Result(0, "NodeName=x State=DOWN*\n")
    host.commands["systemctl"] = lambda h, args, stdin: Result(3 if args[1] == "is-active" else 0)
    monkeypatch.setattr(host, "free", lambda name: 4096)
    with pytest.raises(StepError, match=r"slurmd is not running: the disk of /var/spool/slurmd is full"):
        controller.run(ready(host))


def test_accelerators_of_a_kind_that_is_not_known_are_none(host: FakeHost) -> None:
    assert [accelerators.found(host, kind) for kind in ("gpu", "neuron", "", "other")] == [8, 0, 0, 0]
