"""systemd is asked to read its units again where it must be, and otherwise not: that takes time from a boot."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hyperpod_node.__main__ import boot
from hyperpod_node.host import units
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import controller, munge

from tests.lifecycle.rig import FakeHost, Killed, World

DROP_IN = "/etc/systemd/system/slurmd.service.d/10-hyperpod.conf"


def ready(host: FakeHost) -> FakeHost:
    """A worker on which slurmd runs, as its image has it."""
    host.path("/fsx").symlink_to(host.world.shared)
    host.active.add("slurmd")
    return host


def systemctl(host: FakeHost) -> list[str]:
    return [" ".join(call[1:]) for call in host.calls if call[0] == "systemctl"]


@pytest.mark.parametrize("role", ["controller", "login", "worker"])
def test_a_first_boot_does_not_make_systemd_read_all_units_again(world: World, role: str) -> None:
    host, hooks = world.node(role, real_time=True), []
    execute = host.execute

    def noted(args: tuple[str, ...], timeout: float, stdin: str | Path | None, env: Mapping[str, str]) -> Result:
        if args[:2] in (("systemctl", "enable"), ("systemctl", "disable")):
            hooks.append(env.get("SYSTEMCTL_SKIP_SYSV"))
        return execute(args, timeout, stdin, env)

    host.execute = noted  # type: ignore[method-assign]
    if role != "controller":
        boot(world.node("controller", real_time=True))
    assert boot(host) == 0
    said = systemctl(host)
    assert "daemon-reload" not in said
    changed = [line for line in said if line.startswith(("enable", "disable"))]
    assert changed
    assert all("--no-reload" in line for line in changed)
    assert set(hooks) == {"1"}


def test_a_unit_that_systemd_knew_before_its_files_changed_is_read_again_and_restarted(world: World) -> None:
    host = ready(world.node("worker"))
    controller.run(host.node())
    said = systemctl(host)
    assert said.index("daemon-reload") < said.index("restart slurmd")
    before = said.count("daemon-reload")
    controller.run(host.node())
    assert systemctl(host).count("daemon-reload") == before


def test_a_run_that_was_killed_before_systemd_knew_is_made_up_for(world: World) -> None:
    host = ready(world.node("worker"))
    execute = host.execute

    def killed(args: tuple[str, ...], timeout: float, stdin: str | Path | None, env: Mapping[str, str]) -> Result:
        if args[:2] == ("systemctl", "daemon-reload"):
            raise Killed
        return execute(args, timeout, stdin, env)

    host.execute = killed  # type: ignore[method-assign]
    with contextlib.suppress(Killed):
        controller.run(host.node())
    assert host.read(DROP_IN)
    again = world.node("worker")
    controller.run(again.node())
    assert again.ran("systemctl", "daemon-reload")


def test_a_unit_that_must_not_run_stops_and_cannot_start_again(world: World) -> None:
    host = world.node("login")
    host.active.update(("slurmd", "slurmctld"))
    host.enabled.update(("slurmd", "slurmctld"))
    units.prevent(host, "login", "slurmctld", "slurmd", "not-installed")
    assert (host.active & {"slurmd", "slurmctld"}, host.enabled) == (set(), set())
    for unit in ("slurmd", "slurmctld"):
        assert f"ConditionPathExists=/etc/hyperpod/runs-{unit}" in host.text(
            f"/etc/systemd/system/{unit}.service.d/10-hyperpod.conf"
        )
    assert host.read("/etc/systemd/system/not-installed.service.d/10-hyperpod.conf") is None


def test_a_daemon_that_runs_and_would_not_after_a_reboot_is_enabled(world: World) -> None:
    host = world.node("controller")
    host.path("/fsx").symlink_to(world.shared)
    host.active.add("munge")
    munge.run(host.node())
    assert "munge" in host.enabled
    assert not host.ran("systemctl", "restart")


def test_a_unit_that_failed_may_start_again(world: World) -> None:
    host = world.node("controller")
    host.commands["systemctl"] = lambda h, args, stdin: Result(0, "A=\n\nActiveState=failed\nUnitFileState=enabled\n")
    assert not units.start(host, "munge")
    said = systemctl(host)
    assert said.index("reset-failed munge") < said.index("start munge")
    assert not host.ran("systemctl", "enable")


@pytest.mark.parametrize(("seconds", "running"), [(4.9, False), (5.0, False), (60.0, True)])
def test_why_a_daemon_does_not_run_is_asked_once_it_could_have_started(
    host: FakeHost, seconds: float, running: bool
) -> None:
    if running:
        host.active.add("slurmd")
    host.commands["journalctl"] = lambda h, args, stdin: Result(0, "a: fatal:  one \na: error: two\n")
    said = str(units.not_yet(host, "slurmd", "nothing", host.now() - seconds))
    wanted = "nothing; slurmd is not running: slurmd: fatal: one" if seconds == 5.0 else "nothing"
    assert said == wanted
    # Without a word in the journal, slurmd's own log may have one; of its end alone.
    host.commands["journalctl"] = lambda h, args, stdin: Result(0, "a: info\n")
    host.write("/var/log/slurm/slurmd.log", "error: old\n" + "x\n" * 40)
    assert units.failure_reason(host, "slurmd") == ""
    host.write("/var/log/slurm/slurmd.log", "error: old\n" + "x\n" * 39)
    assert units.failure_reason(host, "slurmd") == "slurmd: error: old"
    free = {"/var/spool/slurmd": 1 << 20, "/var/log/slurm": (1 << 20) - 1}
    host.free = lambda name: free[name]  # type: ignore[method-assign]
    assert units.failure_reason(host, "slurmd") == "the disk of /var/log/slurm is full"
