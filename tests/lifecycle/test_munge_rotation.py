"""Another MUNGE key: prepared on all nodes, changed at once; cut off anywhere, the next run ends well."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperpod_node import munge, munge_rotation
from hyperpod_node.errors import StepError
from hyperpod_node.host import Result

from tests.lifecycle.rig import LIFECYCLE, FakeHost, Killed, World

PUBLISHED = "/fsx/.hyperpod/private/munge/munge.key"
OLD = b"k" * 128


class Booted:
    """A controller and a worker that have booted, whose waiting processes run while the controller waits."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: dict[FakeHost, str] = {}
        self.controller, self.worker = (self._host(role) for role in ("controller", "worker"))
        self.controller.active.add("slurmctld")

    def _host(self, role: str) -> FakeHost:
        host = self.world.node(role)
        mounted = host.path("/fsx")
        if not mounted.exists():
            mounted.symlink_to(self.world.shared)
        host.write("/etc/hyperpod/node.json", json.dumps({"shared": "/fsx/.hyperpod", "role": role}))
        systemctl = host.commands["systemctl"]

        def started(one: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
            if "munge" in args and (key := one.read_bytes(PUBLISHED)):
                one.write_bytes(munge.KEY, key, mode=0o400, owner="munge")
            return systemctl(one, args, stdin)

        host.commands["systemctl"] = started
        host.commands["systemd-run"] = lambda h, args, _: self._wait(h, args[-1])
        host.on_sleep = self.follow
        return host

    def _wait(self, host: FakeHost, wanted: str) -> Result:
        self.waiting[host] = wanted
        return Result(0)

    def follow(self) -> None:
        """Those that wait see what is published now."""
        for host, wanted in list(self.waiting.items()):
            if munge.digest(host, PUBLISHED) == wanted:
                del self.waiting[host]
                munge_rotation.follow(host, wanted)

    def rotate(self) -> dict[str, object]:
        """All of it, as the verb does."""
        wanted = str(munge_rotation.prepare(self.controller)["digest"])
        for host in (self.controller, self.worker):
            munge_rotation.wait(host, wanted)
        return munge_rotation.switch(self.controller, wanted)

    def keys(self) -> set[bytes]:
        return {host.path(munge.KEY).read_bytes() for host in (self.controller, self.worker)}


@pytest.fixture
def booted(world: World) -> Booted:
    found = Booted(world)
    for host in (found.controller, found.worker):
        host.commands["sinfo"] = lambda h, args, stdin: Result(0, "ip-10-1-0-12 idle\n")
    return found


def test_all_nodes_have_another_key_and_slurmctld_is_stopped_while_they_change(booted: Booted) -> None:
    # What a node is writing at this moment, or was when it was killed, is no node.
    half = booted.world.shared / ".hyperpod/private/munge.nodes/.ip-10-1-0-13.ip-10-1-0-13.new"
    half.parent.mkdir(parents=True)
    half.touch()
    assert booted.rotate() == {"late": [], "silent": []}
    assert half.exists()
    (key,) = booted.keys()
    assert (key != OLD, len(key)) == (True, munge.KEY_BYTES)
    order = [args[1:3] for args in booted.controller.calls if args[0] == "systemctl"]
    assert [one for one in order if one[1] in ("slurmctld", "munge")] == [
        ("stop", "slurmctld"),
        ("restart", "munge"),
        ("start", "slurmctld"),
    ]
    assert not booted.worker.ran("systemctl", "restart", "slurmd"), "its jobs would notice"
    (wanted,) = {munge.digest(host) for host in (booted.controller, booted.worker)}
    # In a unit of its own, and none of an earlier run: it outlives what has started it.
    unit, command = munge_rotation.UNIT, "/opt/hyperpod/bin/hyperpod-munge-key"
    assert booted.worker.calls[:2] == [
        ("systemctl", "stop", unit),
        ("systemd-run", "--quiet", "--collect", f"--unit={unit}", command, "follow", wanted),
    ]
    assert ("sinfo", "-h", "-N", "-o", "%n %T") in booted.controller.calls
    digest = (booted.world.shared / ".hyperpod/private/munge.sha256").read_text().strip()
    assert digest == munge.digest(booted.worker), "a node that boots later compares its key with this"


def test_no_key_is_in_a_command_or_in_what_is_told(booted: Booted, capsys: pytest.CaptureFixture[str]) -> None:
    said = json.dumps(booted.rotate()) + "".join(capsys.readouterr())
    (key,) = booted.keys()
    told = "\n".join(" ".join(args) for host in (booted.controller, booted.worker) for args in host.calls) + said
    assert key.hex() not in told
    private = booted.world.shared / ".hyperpod/private"
    assert not (private / "munge.next").exists()
    assert all(path.stat().st_mode & 0o077 == 0 for path in private.rglob("*"))


def test_a_node_that_does_not_change_and_one_that_does_not_answer_are_named(booted: Booted) -> None:
    booted.controller.commands["sinfo"] = lambda h, args, stdin: Result(0, "ip-10-1-0-10 down*\nip-10-1-0-12 idle*\n")
    systemd_run = booted.worker.commands["systemd-run"]
    assert booted.rotate()["silent"] == ["ip-10-1-0-10", "ip-10-1-0-12"]
    booted.worker.commands["systemd-run"] = lambda h, args, stdin: Result(0)
    assert booted.rotate() == {"late": ["ip-10-1-0-12"], "silent": ["ip-10-1-0-10"]}
    assert "slurmctld" in booted.controller.active
    assert len(booted.keys()) == 2
    booted.worker.commands["systemd-run"] = systemd_run
    assert booted.rotate()["late"] == []
    assert len(booted.keys()) == 1


def test_two_rotations_at_once_are_refused(booted: Booted) -> None:
    first = str(munge_rotation.prepare(booted.controller)["digest"])
    munge_rotation.prepare(booted.controller)
    for part in (munge_rotation.wait, munge_rotation.switch):
        with pytest.raises(
            StepError, match=r"^the shared file system has another next key: somebody else replaces it, too$"
        ):
            part(booted.controller, first)
    assert "slurmctld" in booted.controller.active
    assert booted.keys() == {OLD}


def test_a_key_that_is_not_published_is_given_up_after_a_quarter_of_an_hour(booted: Booted) -> None:
    wanted = str(munge_rotation.prepare(booted.controller)["digest"])
    with pytest.raises(StepError, match=r"^the key was not published within 900 s: it was not$"):
        munge_rotation.follow(booted.worker, wanted)
    assert not booted.worker.ran("systemctl"), "munged is left as it is"


def test_a_munged_that_has_started_without_the_key_is_named(booted: Booted) -> None:
    wanted = str(munge_rotation.prepare(booted.controller)["digest"])
    munge_rotation.wait(booted.worker, wanted)
    booted.waiting.clear()
    booted.worker.commands["systemctl"] = lambda h, args, stdin: Result(0)
    munge_rotation.switch(booted.controller, wanted)
    with pytest.raises(StepError, match=rf"^munged has started without the key of {PUBLISHED}$"):
        munge_rotation.follow(booted.worker, wanted)


def test_a_slurmctld_that_does_not_answer_after_it_is_named(booted: Booted) -> None:
    booted.controller.fail["sinfo"] = Result(1, "", "slurm_load_partitions: Unable to contact slurm controller")
    began = booted.controller.clock
    assert booted.rotate() == {"late": [], "silent": ["slurmctld"]}
    assert 120 <= booted.controller.clock - began < 151


def test_cut_off_anywhere_the_next_run_ends_well(world: World) -> None:
    cut = 0
    for at in range(1, 100):
        booted = Booted(world)
        booted.controller.operations, booted.controller.kill_at = 0, at
        booted.controller.commands["sinfo"] = lambda h, args, stdin: Result(0, "")
        try:
            booted.rotate()
            break
        except Killed:
            cut += 1
        booted.controller.kill_at = None
        booted.follow()
        assert booted.rotate() == {"late": [], "silent": []}, f"cut off at {at}"
        assert len(booted.keys()) == 1
        assert "slurmctld" in booted.controller.active
    assert 12 < cut < 90


def test_a_node_that_boots_later_takes_the_key_and_not_the_one_that_hyperpod_gives_it(booted: Booted) -> None:
    booted.rotate()
    (key,) = booted.keys()
    for role in ("controller", "worker"):
        host = booted.world.node(role, address="10.1.0.10" if role == "controller" else "10.1.0.13")
        host.path(munge.KEY).chmod(0o600)
        host.path(munge.KEY).write_bytes(OLD)
        if not host.path("/fsx").exists():
            host.path("/fsx").symlink_to(booted.world.shared)
        munge.run(host.node())
        assert host.path(munge.KEY).read_bytes() == key
        assert f"hyperpod-take-munge-key {PUBLISHED}" in host.text(
            "/etc/systemd/system/munge.service.d/10-hyperpod.conf"
        )


@pytest.mark.parametrize(
    ("published", "taken"), [(b"n" * 1024, True), (b"n" * 31, False), (b"", False), (None, False), ("link", False)]
)
def test_munged_starts_with_the_published_key_if_there_is_one(
    tmp_path: Path, published: bytes | str | None, taken: bool
) -> None:
    own, shared = tmp_path / "munge.key", tmp_path / "shared"
    own.write_bytes(OLD)
    if isinstance(published, bytes):
        shared.write_bytes(published)
    elif published:
        (tmp_path / "elsewhere").write_bytes(b"n" * 1024)
        shared.symlink_to("elsewhere")
    script = str(LIFECYCLE / "slurm/take-munge-key.sh")
    done = subprocess.run(["bash", script, str(shared)], env={"PATH": "/usr/bin:/bin", "HYPERPOD_MUNGE": str(tmp_path)})
    assert (done.returncode, own.read_bytes() != OLD) == (0, taken)
    assert own.stat().st_mode & 0o777 == (0o400 if taken else own.stat().st_mode & 0o777)
    assert not list(tmp_path.glob(".key.*"))
