"""Scratch, installed commands, and the machinery under the steps."""

import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hyperpod_node.boot.runner import Runner, Step
from hyperpod_node.facts.model import Node
from hyperpod_node.host.errors import NotYet, Skip, StepError
from hyperpod_node.host.host import Host, Result
from hyperpod_node.host.settings import Settings
from hyperpod_node.storage import fstab, scratch
from hyperpod_node.system import programs

from tests.lifecycle.rig import FakeHost, World

# Scratch


def disks(host: FakeHost, count: int) -> None:
    for number in range(count + 1):
        path = host.path(f"/sys/block/nvme{number}n1/device/model")
        path.parent.mkdir(parents=True)
        path.write_text("Amazon EC2 NVMe Instance Storage  \n" if number else "Amazon Elastic Block Store   \n")


def test_instance_store_becomes_one_scratch_file_system_and_ebs_is_never_touched(host: FakeHost, node: Node) -> None:
    disks(host, 8)
    assert scratch.run(node) == "/dev/md/hyperpod-scratch at /scratch"
    every = tuple(f"/dev/nvme{number}n1" for number in range(1, 9))
    assert host.calls == [
        ("mdadm", "--assemble", scratch.ARRAY, *every),
        ("mdadm", "--create", scratch.ARRAY, "--run", "--force", "--level=0", "--raid-devices=8", *every),
        ("blkid", "-p", "-s", "LABEL", "-o", "value", scratch.ARRAY),
        ("mkfs.ext4", "-q", "-L", "hp-scratch", "-m", "0", "-E", "lazy_itable_init=1", scratch.ARRAY),
        ("mount", "-o", "noatime,discard", scratch.ARRAY, "/scratch"),
    ]
    assert host.path("/scratch").stat().st_mode & 0o7777 == 0o1777
    host.calls.clear()
    scratch.run(node)
    assert not host.ran("mkfs.ext4")


def test_scratch_is_mounted_again_after_a_reboot_and_never_keeps_a_node_from_booting(
    host: FakeHost, node: Node
) -> None:
    disks(host, 8)
    scratch.run(node)
    line = "LABEL=hp-scratch /scratch ext4 noatime,discard,nofail,x-systemd.device-timeout=90s 0 0"
    assert host.text("/etc/fstab").splitlines() == ["# <source>", "LABEL=root / ext4 defaults 0 1", line]
    before = host.text("/etc/fstab")
    scratch.run(host.node())
    assert host.text("/etc/fstab") == before


def test_a_run_that_was_killed_after_the_mount_is_completed(host: FakeHost, node: Node) -> None:
    disks(host, 8)
    scratch.run(node)
    before = host.text("/etc/fstab")
    host.path("/etc/fstab").write_text("# <source>\nLABEL=root / ext4 defaults 0 1\n")
    host.commands["blkid"] = lambda h, args, stdin: Result(0, "hp-scratch\n")
    scratch.run(host.node())
    assert host.text("/etc/fstab") == before


def test_an_array_that_a_reboot_has_renamed_is_known_by_its_label(host: FakeHost, node: Node) -> None:
    host.commands["blkid"] = lambda h, args, stdin: Result(0, "hp-scratch\n")
    host.path(scratch.BY_LABEL).parent.mkdir(parents=True)
    host.path(scratch.BY_LABEL).touch()
    assert scratch.run(node) == "/dev/disk/by-label/hp-scratch at /scratch"
    assert not host.ran("mdadm")
    assert not host.ran("mkfs.ext4")


def test_steps_that_write_fstab_at_the_same_time_lose_no_line(host: FakeHost) -> None:
    lines = [f"LABEL=x{number} /x{number} ext4 defaults 0 0" for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda line: fstab.put(host, line), lines))
    assert set(lines) < set(host.text("/etc/fstab").splitlines())


def test_one_disk_needs_no_array(host: FakeHost, node: Node) -> None:
    disks(host, 1)
    assert scratch.run(node) == "/dev/nvme1n1 at /scratch"
    assert not host.ran("mdadm")


def test_disks_that_something_uses_are_left_alone(host: FakeHost, node: Node) -> None:
    disks(host, 2)
    host.path("/sys/block/nvme1n1/nvme1n1p1").mkdir()
    host.path("/sys/block/nvme2n1/holders/md127").mkdir(parents=True)
    with pytest.raises(Skip, match=r"no instance-store disk"):
        scratch.run(node)


def test_an_image_that_mounts_the_disks_itself_is_used(host: FakeHost, node: Node) -> None:
    mounts = host.path("/proc/self/mounts")
    mounts.write_text("/dev/vg/lv /opt/dlami/nvme ext4 rw 0 0\n")
    scratch.run(node)
    assert str(host.path("/scratch").readlink()) == "/opt/dlami/nvme"


def image_mounts_disks(host: FakeHost, states: list[str]) -> None:
    """An image with dlami-nvme.service, which is in these states, one a question, and mounts its disks as "mounted"."""
    unit = host.path("/etc/systemd/system/dlami-nvme.service")
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text("[Service]\nType=oneshot\n")
    disks(host, 8)

    def systemctl(h: FakeHost, args: Sequence[str], stdin: object) -> Result:
        state = states.pop(0) if len(states) > 1 else states[0]
        if state == "mounted":
            h.path("/proc/self/mounts").write_text("/dev/mapper/vg.01-lv_ephemeral /opt/dlami/nvme ext4 rw 0 0\n")
        return Result(0, state.replace("mounted", "active") + "\n")

    host.commands["systemctl"] = systemctl


def test_disks_that_the_image_is_about_to_mount_are_waited_for_and_never_touched(host: FakeHost, node: Node) -> None:
    image_mounts_disks(host, ["inactive", "activating", "activating", "mounted"])
    assert scratch.run(node).startswith("the image mounts the instance store at /opt/dlami/nvme")
    assert str(host.path("/scratch").readlink()) == "/opt/dlami/nvme"
    assert set(host.calls) == {("systemctl", "show", "--property", "ActiveState", "--value", "dlami-nvme")}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("active", "dlami-nvme.service is active and has not mounted /opt/dlami/nvme"),
        ("failed", "dlami-nvme.service is failed and has not mounted /opt/dlami/nvme"),
        ("activating", "did not mount /opt/dlami/nvme within 310 s: dlami-nvme.service is activating"),
    ],
)
def test_an_image_that_does_not_mount_its_disks_is_reported_and_the_disks_are_not_touched(
    host: FakeHost, node: Node, state: str, said: str
) -> None:
    image_mounts_disks(host, [state])
    with pytest.raises(StepError, match=said):
        scratch.run(node)
    assert not {call[0] for call in host.calls} & {"mdadm", "mkfs.ext4", "mount"}


def test_a_file_system_of_a_run_that_was_killed_is_not_made_again(host: FakeHost, node: Node) -> None:
    disks(host, 1)
    host.commands["blkid"] = lambda h, args, stdin: Result(0, "hp-scratch\n")
    scratch.run(node)
    assert not host.ran("mkfs.ext4")


def test_types_without_instance_store_skip(world: World) -> None:
    with pytest.raises(Skip, match=r"ml.m5.2xlarge has no instance store"):
        scratch.run(world.node("controller").node())


# Commands


@pytest.mark.parametrize(("role", "linked"), [("controller", True), ("login", True), ("worker", False)])
def test_commands_are_on_the_path_of_the_nodes_people_log_in_to(world: World, role: str, linked: bool) -> None:
    host = world.node(role)
    programs.run(host.node())
    for command in ("run-nccl-test", "run-nccom-test", "run-nanogpt", "hyperpod-validate", "hyperpod-benchmark"):
        assert host.path(f"/opt/hyperpod/bin/{command}").stat().st_mode & 0o111
        assert host.path(f"/usr/local/bin/{command}").is_symlink() == linked


def test_a_command_finds_slurm_under_sudo_too(world: World) -> None:
    host = world.node("controller")
    programs.run(host.node())
    text = host.text("/opt/hyperpod/bin/run-nccl-test").replace("exec ", "printenv PATH; exit; exec ")
    # Ubuntu's secure_path (sudoers(5)).
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin"
    found = subprocess.run(["sh", "-c", text], env={"PATH": path}, capture_output=True, text=True, check=True).stdout
    assert found.startswith(f"{path}:/opt/slurm/bin:")
    # No PATH at all is not the working folder.
    bare = subprocess.run(["/bin/sh", "-c", text], env={}, capture_output=True, text=True, check=True).stdout
    assert "" not in bare.strip().split(":")


# The machinery


def real(tmp_path: Path) -> Host:
    return Host(Settings(root=tmp_path))


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = real(tmp_path)
    host.write("/etc/x", "old\n")

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            host.write("/etc/x", "new\n")
    assert host.read("/etc/x") == "old\n"
    assert host.write("/etc/x", "new\n")
    assert not host.write("/etc/x", "new\n")
    assert [path.name for path in (tmp_path / "etc").iterdir()] == ["x"]


def test_a_secret_is_never_readable_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, seen = real(tmp_path), []
    whole = os.fdopen

    def look(descriptor: int, mode: str) -> object:
        seen.append(os.fstat(descriptor).st_mode & 0o777)
        return whole(descriptor, mode)

    monkeypatch.setattr(os, "fdopen", look)
    host.write("/etc/secret", "x", mode=0o600)
    assert seen == [0o600]


def test_a_folder_in_a_files_place_is_no_text_and_stays_not_open(tmp_path: Path) -> None:
    (tmp_path / "etc" / "slurm.conf").mkdir(parents=True)
    host, files = real(tmp_path), Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    assert host.read("/etc/slurm.conf") is None
    assert len(list(files.iterdir())) == before


def test_a_link_to_a_file_stays_a_link_when_the_file_is_written(tmp_path: Path) -> None:
    host = real(tmp_path)
    host.write("/opt/slurm/etc/slurm.conf", "a\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/slurm.conf").symlink_to("../opt/slurm/etc/slurm.conf")
    host.write("/etc/slurm.conf", "b\n")
    assert (tmp_path / "etc/slurm.conf").is_symlink()
    assert host.read("/opt/slurm/etc/slurm.conf") == "b\n"


def test_a_folder_that_is_a_link_to_none_is_made_where_it_leads(tmp_path: Path) -> None:
    host = real(tmp_path)
    (tmp_path / "log").symlink_to("data/log")
    host.write("/log/one", "a\n")
    assert (tmp_path / "log").is_symlink()
    assert (tmp_path / "data/log/one").read_text() == "a\n"


def test_a_command_that_takes_too_long_is_ended_and_named(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"`sleep 5` did not end within 0 s"):
        real(tmp_path).run("sleep", "5", timeout=0.05)


def test_a_command_that_fails_says_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"`sh -c .*` failed: second"):
        real(tmp_path).run("sh", "-c", "echo first >&2; echo second >&2; exit 3")


def test_a_poll_ends_with_the_last_state_it_saw(host: FakeHost) -> None:
    def never() -> None:
        raise NotYet("still CREATING")

    with pytest.raises(StepError, match=r"it did not come within 30 s: still CREATING"):
        host.poll("it did not come", never, 30)
    assert host.clock == pytest.approx(1030)


def test_a_command_that_is_too_slow_does_not_end_a_poll(tmp_path: Path) -> None:
    host, tries = real(tmp_path), []

    def look() -> bool:
        tries.append(1)
        seconds, timeout = ("0", 10) if len(tries) > 1 else ("5", 0.05)
        return host.run("sleep", seconds, timeout=timeout).code == 0

    assert host.poll("it did not come", look, 10)
    assert len(tries) == 2
    with pytest.raises(StepError, match=r"it did not come within 0.1 s: `sleep 5` did not end within 0 s"):
        host.poll("it did not come", lambda: host.run("sleep", "5", timeout=0.05), 0.1)


def test_a_poll_never_outlives_its_step(host: FakeHost) -> None:
    host.begin(10)
    with pytest.raises(StepError):
        host.poll("it did not come", lambda: None, 1000)
    assert host.clock == pytest.approx(1010)


def outcomes(host: Host, *steps: Step) -> dict[str, tuple[str, str]]:
    lines: list[str] = []
    found = Runner(Node(host), steps, lines.append).run()
    return {outcome.name: (outcome.result, outcome.detail) for outcome in found}


def fail(node: Node) -> str:
    raise StepError("broken")


def test_a_required_failure_ends_the_waits_of_the_other_steps(tmp_path: Path) -> None:
    def wait(node: Node) -> str:
        node.host.poll("nothing came", lambda: None, 60)
        return "never"

    def quiet(node: Node) -> str:
        return "done" if node.host._cancelled.wait(5) else "never"

    found = outcomes(
        real(tmp_path),
        Step("wait", wait, 60),
        Step("quiet", quiet, 60),
        Step("bad", fail, 5),
        Step("after", fail, 5, ("wait",)),
        Step("later", fail, 5, ("quiet",)),
    )
    assert found["bad"] == ("failed", "broken")
    assert found["wait"] == ("not run", "a required step failed")
    assert found["after"] == found["later"] == found["wait"]
    assert found["quiet"] == ("ok", "done")


def test_an_optional_failure_stops_only_what_needs_it(tmp_path: Path) -> None:
    found = outcomes(
        real(tmp_path),
        Step("bad", fail, 5, required=False),
        Step("after", lambda node: "done", 5, ("bad",), required=False),
        Step("other", lambda node: "done", 5),
    )
    assert found["after"] == ("not run", "needs bad")
    assert found["other"] == ("ok", "done")


def test_a_step_that_hangs_in_the_kernel_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from hyperpod_node.boot import runner

    monkeypatch.setattr(runner, "GRACE", 0.05)
    hung = threading.Event()
    found = outcomes(real(tmp_path), Step("hangs", lambda node: str(hung.wait(10)), 0.05))
    hung.set()
    assert found["hangs"] == ("failed", "did not end within 0.05 s")


def test_independent_steps_overlap(tmp_path: Path) -> None:
    import threading

    both = threading.Barrier(2, timeout=5)
    found = outcomes(
        real(tmp_path), *(Step(name, lambda node: "done" if both.wait() >= 0 else "", 5) for name in ("a", "b"))
    )
    assert found == {"a": ("ok", "done"), "b": ("ok", "done")}


def test_a_step_with_a_warning_is_degraded(tmp_path: Path) -> None:
    def warn(node: Node) -> str:
        node.warn("careful")
        return "done"

    lines: list[str] = []
    (outcome,) = Runner(Node(real(tmp_path)), [Step("careful", warn, 5)], lines.append).run()
    assert (outcome.result, outcome.detail, outcome.warnings) == ("degraded", "done", ("careful",))
    assert [re.sub(r"\d\.\d\d", "N", line) for line in lines] == [
        "step careful ... degraded Ns  done",
        "step careful: WARNING: careful",
    ]
