"""A canary in place of every secret is found where the secret belongs, closed, and nowhere else."""

import base64
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hyperpod_node.__main__ import boot
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import munge

from tests.lifecycle.boot.test_boot import boot_all
from tests.lifecycle.rig import SLURM_CONF, FakeHost, World

CANARY = b"canary-5f0c1d"
SEEN_AS = (CANARY, CANARY.hex().encode(), base64.b64encode(CANARY)[:-4])
PASSWORDS = f"AccountingStoragePass={CANARY.decode()}\nJobCompHost=db JobCompPass={CANARY.decode()} # the other\n"
# Where a secret belongs; slurm.conf is HyperPod's own, as are the host keys and, where its agent brings one, munge.key.
BELONGS = re.compile(
    r"node-[\d.]+/(etc/munge/munge\.key|etc/ssh/ssh_host_ed25519_key|opt/slurm/etc/slurm\.conf"
    r"|(root|home/ubuntu)/\.ssh/id_hyperpod)|lustre/\.hyperpod/private/(munge/munge\.key|ssh-\w+/id_hyperpod)"
)


def _ssh_keygen(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
    path = Path(args[args.index("-f") + 1])
    path.write_bytes(CANARY)
    path.chmod(0o600)
    path.with_name(path.name + ".pub").write_text(f"ssh-ed25519 PUBLIC {args[args.index('-C') + 1]}\n")
    return Result(0)


class Told(FakeHost):
    """A host with canaries, which keeps what its commands were told."""

    told: list[str]

    def _install(self) -> None:
        super()._install()
        self.path("/etc/munge/munge.key").chmod(0o600)
        for name in ("/etc/munge/munge.key", "/etc/ssh/ssh_host_ed25519_key"):
            self.path(name).write_bytes(CANARY * 8)
            self.path(name).chmod(0o400)
        if self.address == "10.1.0.10":
            self.path("/opt/slurm/etc/slurm.conf").write_text(SLURM_CONF + PASSWORDS)
            self.path("/opt/slurm/etc/slurm.conf").chmod(0o640)

    def execute(
        self, args: tuple[str, ...], timeout: float, stdin: str | Path | None, env: Mapping[str, str]
    ) -> Result:
        assert not isinstance(stdin, Path)
        self.world.told += [*args, *env, *env.values()]  # type: ignore[attr-defined]
        if args[0] == "ssh-keygen":
            return _ssh_keygen(self, args, stdin)
        return super().execute(args, timeout, stdin, env)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path)
    world.told = []  # type: ignore[attr-defined]
    addresses = {"controller": "10.1.0.10", "login": "10.1.0.11", "worker": "10.1.0.12"}
    world.node = lambda role, **options: Told(world, addresses[role], **options)  # type: ignore[method-assign]
    random = os.urandom
    key = (CANARY * munge.KEY_BYTES)[: munge.KEY_BYTES]
    monkeypatch.setattr(os, "urandom", lambda size: key if size == munge.KEY_BYTES else random(size))
    # What is closed is so by its own mode.
    before = os.umask(0)
    yield world
    os.umask(before)


def holders(world: World) -> dict[str, int]:
    """The files with a canary, by their modes."""
    files = [path for path in world.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    found = [path for path in files if any(form in path.read_bytes() for form in SEEN_AS)]
    return {str(path.relative_to(world.folder)): path.stat().st_mode & 0o777 for path in found}


@pytest.mark.parametrize("agent", [True, False], ids=["the agent brings the MUNGE key", "the cluster makes its own"])
def test_secrets_are_in_no_log_no_summary_no_command_and_no_file_of_others(
    world: World, capsys: pytest.CaptureFixture[str], agent: bool
) -> None:
    if not agent:
        for role in ("controller", "login", "worker"):
            world.node(role).path("/etc/munge/munge.key").unlink()
    boot_all(world)
    said = capsys.readouterr()
    told = "\n".join([said.out, said.err, *world.told])  # type: ignore[attr-defined]
    assert "step munge ... ok" in told
    assert not [form for form in SEEN_AS if form.decode() in told]
    found = holders(world)
    assert {Path(name).name for name in found} == {"munge.key", "id_hyperpod", "ssh_host_ed25519_key", "slurm.conf"}
    assert [name for name in found if not BELONGS.fullmatch(name)] == []
    assert {name: mode for name, mode in found.items() if mode & 0o077 and not name.endswith("slurm.conf")} == {}
    assert {mode for name, mode in found.items() if name.endswith("slurm.conf")} == {0o640}


@pytest.mark.parametrize("command", ["munge", "unmunge", "systemctl", "scontrol", "ssh-keygen"])
def test_secrets_are_in_no_reason_either(world: World, capsys: pytest.CaptureFixture[str], command: str) -> None:
    host = world.node("controller", real_time=True, patience=0.05)
    host.fail[command] = Result(1, "", f"{command}: it does not work")
    boot(host)
    said = capsys.readouterr()
    told = "\n".join([said.out, said.err, *world.told])  # type: ignore[attr-defined]
    assert not [form for form in SEEN_AS if form.decode() in told]
    assert [name for name in holders(world) if not BELONGS.fullmatch(name)] == []
