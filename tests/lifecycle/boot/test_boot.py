"""The whole of on_create, on nodes that are not there."""

import contextlib
import json
import threading
from pathlib import Path

import pytest
from hyperpod_node.__main__ import boot
from hyperpod_node.host.host import Result

from tests.lifecycle.rig import FakeHost, Killed, World

ROLES = ("controller", "login", "worker")


def summary(host: FakeHost) -> dict[str, object]:
    found: dict[str, object] = json.loads(host.text("/var/log/hyperpod/summary.json"))
    return found


def boot_all(world: World) -> dict[str, FakeHost]:
    hosts = {role: world.node(role, real_time=True) for role in ROLES}
    threads = [threading.Thread(target=boot, args=(host,)) for host in hosts.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return hosts


def test_a_cluster_boots_together_and_every_node_files_its_summary(world: World) -> None:
    hosts = boot_all(world)
    for role, host in hosts.items():
        found = json.loads((world.shared / f".hyperpod/nodes/{host.hostname()}.json").read_text())
        assert (found["role"], found["status"]) == (role, "ok"), found
    assert {"slurmctld", "hyperpod-requeue"} <= hosts["controller"].active
    assert "slurmd" in hosts["worker"].active
    assert "slurmctld" not in hosts["worker"].active
    assert not {"slurmctld", "slurmd"} & hosts["login"].active


def test_a_second_run_changes_no_file(world: World) -> None:
    before = {role: host.tree() for role, host in boot_all(world).items()}
    again = boot_all(world)
    for role, host in again.items():
        assert host.tree() == before[role]
        assert not host.changes or all("log" in name or "/nodes/" in name for name in host.changes), host.changes


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_a_run_that_is_killed_anywhere_ends_right_when_it_is_run_again(tmp_path: Path, part: int) -> None:
    reference = World(tmp_path / "reference")
    boot_all(reference)
    clean = reference.node("worker", real_time=True)
    for number in range(part, 16, 2):
        world = World(tmp_path / str(number))
        for role in ("controller", "worker"):
            host = world.node(role, real_time=True, patience=0.1)
            host.kill_at = 2 + number * 11
            with contextlib.suppress(Killed):
                boot(host)
        boot_all(world)
        found = world.node("worker", real_time=True)
        assert set(found.tree()) == set(clean.tree())
        assert found.text("/etc/fstab") == clean.text("/etc/fstab")
        controller = world.node("controller", real_time=True)
        assert controller.text("/opt/slurm/etc/slurm.conf").count("include hyperpod.conf") == 1
        assert summary(found)["status"] == "ok"


def test_a_failed_required_step_is_the_last_line_and_the_exit_status(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    host = world.node("worker", real_time=True)
    host.fail["mount"] = Result(32, "", "mount.lustre: unknown filesystem type 'lustre'")
    assert boot(host) == 1
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last == (
        "step fsx failed: the lustre client is not installed: mount.lustre: unknown filesystem type 'lustre'"
    )
    assert summary(host)["status"] == "failed"
    assert not host.ran("systemctl", "start", "slurmd")


def test_a_failed_optional_step_leaves_the_node_degraded_and_says_so(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    boot(world.node("controller", real_time=True))
    host = world.node("worker", real_time=True)
    host.missing.add("chronyd")
    assert boot(host) == 0
    assert summary(host)["status"] == "degraded"
    out = capsys.readouterr().out
    assert "step time-sync ... failed" in out
    assert "worker ip-10-1-0-12: degraded" in out


def test_a_missing_slurm_package_is_named(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    boot(world.node("controller", real_time=True))
    host = world.node("worker", real_time=True)
    host.path("/lib/systemd/system/slurmd.service").unlink()
    assert boot(host) == 1
    assert "step slurm failed: Slurm is not installed: no slurmd.service" in capsys.readouterr().out.splitlines()[-1]


def test_a_defect_of_a_step_is_a_failure_and_not_a_success(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    host = world.node("worker", real_time=True)
    host.commands["aws"] = lambda h, args, stdin: Result(0, '{"FileSystems": [{}, 7]}')
    assert boot(host) == 1
    assert "step fsx failed: AttributeError" in capsys.readouterr().out.splitlines()[-1]


def test_the_summary_for_cloudwatch_is_one_line_of_json(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    boot(world.node("controller", real_time=True))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("summary ")]
    record = json.loads(lines[0].removeprefix("summary "))
    assert [step["name"] for step in record["steps"]][:3] == ["parameters", "identity", "clock"]
    assert all(step["seconds"] >= 0 for step in record["steps"])


def test_on_eks_no_slurm_step_runs(world: World) -> None:
    world.render(orchestrator="eks")
    host = world.node("worker", real_time=True, patience=0.1)
    assert boot(host) == 0
    names = [step["name"] for step in summary(host)["steps"]]  # type: ignore[attr-defined]
    assert names == [
        "parameters",
        "identity",
        "clock",
        "scratch",
        "kernel",
        "health",
        "pod-disk",
        "pod-metadata",
        "lustre-client",
    ]
