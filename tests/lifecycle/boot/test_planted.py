"""What anybody can put in root's way (links, folders, modules) makes root do nothing else than it does without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hyperpod_commands import nanogpt, node_facts
from hyperpod_commands.cluster import Trouble
from hyperpod_node.facts.model import Node
from hyperpod_node.host.errors import StepError
from hyperpod_node.people import ssh_keys
from hyperpod_node.storage import fsx
from hyperpod_node.system import kernel, programs

from tests.lifecycle.rig import LIFECYCLE, FakeHost, World
from tests.lifecycle.test_scripts import run
from tests.rows import each

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")


# A job's scratch folder


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Disks that are mounted, and a folder beside them that has nothing to do with jobs."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    folder.chmod(0o1777)
    (tmp_path / "prolog.env").write_text(f"shared=''\ndevices=0\npattern=''\nscratch='{folder}'\n")
    (tmp_path / "mounts").write_text(f"/dev/md0 {folder} ext4 rw 0 0\n")
    (tmp_path / "victim/7").mkdir(parents=True)
    (tmp_path / "victim").chmod(0o755)
    (tmp_path / "victim/7/data").touch()
    return folder


def hook(script: str, scratch: Path, user: int | None = None) -> None:
    given = {"HYPERPOD_STATE": str(scratch.parent), "HYPERPOD_MOUNTS": str(scratch.parent / "mounts")}
    user = os.getuid() if user is None else user
    assert run(script, SLURM_JOB_ID="7", SLURM_JOB_UID=str(user), **given).returncode == 0


@pytest.mark.parametrize("planted", ["jobs", "jobs/7", "job-7"])
def test_a_prolog_follows_no_link_that_was_there_before_it(scratch: Path, planted: str) -> None:
    victim, link = scratch.parent / "victim", scratch / planted
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim)
    hook("prolog.sh", scratch)
    assert victim.stat().st_mode & 0o777 == 0o755
    assert (victim / "7/data").exists()
    made = scratch / "jobs/7"
    assert made.is_dir()
    assert not made.is_symlink()
    assert not made.parent.is_symlink()
    assert made.stat().st_mode & 0o777 == 0o700


@as_root
@pytest.mark.parametrize("planted", ["jobs", "jobs/7"])
def test_a_prolog_takes_no_folder_that_is_another_users(scratch: Path, planted: str) -> None:
    theirs = scratch / planted
    theirs.mkdir(parents=True)
    (theirs / "bait").touch()
    os.chown(theirs, 4242, 4242)
    hook("prolog.sh", scratch, user=1234)
    made = scratch / "jobs/7"
    assert (made.parent.stat().st_uid, made.stat().st_uid, list(made.iterdir())) == (0, 1234, [])


def test_a_job_that_returns_to_a_node_finds_its_scratch_data(scratch: Path) -> None:
    hook("prolog.sh", scratch)
    (scratch / "jobs/7/mine").touch()
    hook("prolog.sh", scratch)
    assert (scratch / "jobs/7/mine").exists()


def test_an_epilog_deletes_nothing_behind_a_link(scratch: Path) -> None:
    (scratch / "jobs").symlink_to(scratch.parent / "victim")
    hook("epilog.sh", scratch)
    assert (scratch.parent / "victim/7/data").exists()


# A training run as root


def test_a_new_training_folder_is_new(tmp_path: Path) -> None:
    (tmp_path / "nanogpt-1").mkdir()
    with pytest.raises(Trouble, match=r"nanogpt-1 already exists; try again, or choose a folder with --out"):
        nanogpt._folder(None, str(tmp_path / "nanogpt-1"))
    assert nanogpt._folder(None, str(tmp_path / "nanogpt-2")).is_dir()


@pytest.mark.parametrize("open_", ["run", ".", ".."])
def test_root_trains_in_no_folder_where_others_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_: str
) -> None:
    out = tmp_path / "all/runs/run"
    out.mkdir(parents=True)
    (out if open_ == "run" else out.parent / open_).chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(Trouble, match=r"users other than root may write to .*, and this job would run as root there"):
        nanogpt._folder(str(out), "")


@as_root
def test_root_trains_in_a_folder_of_its_own_in_one_for_all(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    out = nanogpt._folder(None, str(tmp_path / "run"))
    assert nanogpt._folder(str(out), "") == out
    os.chown(out, 4242, 4242)
    with pytest.raises(Trouble, match=r"users other than root may write"):
        nanogpt._folder(str(out), "")
    (tmp_path / "link").symlink_to(out)
    with pytest.raises(Trouble, match=r"users other than root may write"):
        nanogpt._folder(str(tmp_path / "link"), "")


# Our folder on the shared file system, by root of another node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    found = World(tmp_path).node("controller").node()
    fsx.run(found)
    found.host.write("/root/.ssh/authorized_keys", "mine\n", mode=0o600)
    return found


def shared(node: Node, name: str) -> Path:
    return node.host.path(f"/fsx/.hyperpod/{name}")


@pytest.mark.parametrize("name", ["known_hosts", ".known_hosts.ip-10-1-0-10.new", "hosts/ip-10-1-0-10"])
def test_a_link_in_place_of_a_shared_file_is_replaced_and_not_followed(node: Node, name: str) -> None:
    shared(node, name).symlink_to(node.host.path("/root/.ssh/authorized_keys"))
    shared(node, "hosts/ip-10-1-0-99").write_text("other ssh-ed25519 KEY\n")
    ssh_keys.run(node)
    assert node.host.read("/root/.ssh/authorized_keys") == "mine\n"
    assert not shared(node, name).is_symlink()
    assert "other ssh-ed25519 KEY\n" in shared(node, "known_hosts").read_text()


@pytest.mark.parametrize("name", ["nodes", "slurm", ""])
def test_a_shared_folder_that_is_a_link_is_not_used(node: Node, name: str) -> None:
    folder, victim = shared(node, name), node.host.path("/root/.ssh")
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(victim)
    before = {path.name: path.stat().st_mode for path in victim.iterdir()}
    file = f"{node.shared}/{name or 'slurm'}/authorized_keys"
    for step in (lambda: node.host.write(file, "x"), lambda: node.host.read(file), lambda: fsx.run(node)):
        with pytest.raises(StepError, match=r"is not used: there is a link in it"):
            step()
    assert {path.name: path.stat().st_mode for path in victim.iterdir()} == before


def test_the_target_of_a_link_or_a_pipe_is_not_read_or_published(node: Node) -> None:
    node.host.path("/etc/secret").write_text("root ssh-ed25519 SECRET\n")
    shared(node, "hosts/link").symlink_to(node.host.path("/etc/secret"))
    os.mkfifo(shared(node, "hosts/pipe"))
    shared(node, "hosts/marked").write_text("@cert-authority * ssh-ed25519 ALL\n* ssh-ed25519 ALL\n")
    ssh_keys.run(node)
    assert shared(node, "known_hosts").read_text() == "ip-10-1-0-10,10.1.0.10 ssh-ed25519 HOSTKEY10.1.0.10\n"


# Modules


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with modules of somebody's, which leave a file when they are imported."""
    folder = tmp_path / "planted"
    for name in ("json", "argparse", "importlib", "torch", "hyperpod_node", "hyperpod_commands", "sitecustomize"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})\n")
    return folder


def environment(planted: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(planted), "PYTHONPATH": str(planted)}


@pytest.fixture
def installed(tmp_path: Path) -> FakeHost:
    """A node with its commands, once for all of them."""
    host = World(tmp_path / "world").node("controller")
    programs.run(host.node())
    return host


def test_all_commands_are_started_alike(installed: FakeHost) -> None:
    told = {
        installed.text(f"/opt/hyperpod/bin/{name}").replace(f" {module} ", " MODULE ")
        for name, (module, *_) in programs.COMMANDS.items()
    }
    assert len(told) == 1


# One of each package: they are started alike, and each takes a tenth of a second.
@each(sorted({module.partition(".")[0]: name for name, (module, *_) in programs.COMMANDS.items()}.values()))
def test_a_command_imports_nothing_from_where_it_is_started(
    command: str, tmp_path: Path, planted: Path, installed: FakeHost
) -> None:
    top = str(installed.path("/opt/hyperpod"))
    text = installed.text(f"/opt/hyperpod/bin/{command}").replace("/opt/hyperpod", top)
    done = subprocess.run(
        ["sh", "-c", text, command, "--help"], cwd=planted, env=environment(planted), capture_output=True, timeout=60
    )
    assert not (tmp_path / "imported").exists(), done.stderr
    assert b"No module named" not in done.stderr
    assert not list(Path(top).rglob("__pycache__"))


def test_on_create_imports_nothing_from_where_it_is_started(tmp_path: Path, planted: Path) -> None:
    given = {**environment(planted), "HYPERPOD_LOG": str(tmp_path / "log"), "HYPERPOD_LOCK": str(tmp_path / "lock")}
    done = subprocess.run([LIFECYCLE / "on_create.sh"], cwd=planted, env=given, capture_output=True, text=True)
    assert "step parameters failed" in done.stdout
    assert not (tmp_path / "imported").exists()


def test_a_look_for_pytorch_imports_nothing_from_the_working_folder(
    tmp_path: Path, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(planted)
    monkeypatch.setenv("HYPERPOD_PYTHON", sys.executable)
    monkeypatch.setattr(node_facts, "PYTHONS", ())
    assert node_facts.python() == ""
    (planted / "script.py").write_text("print('ran')\n")
    given = {"PATH": "/usr/bin:/bin", "HYPERPOD_PYTHON": sys.executable}
    script = str(LIFECYCLE / "training/with_torch.sh")
    subprocess.run(["bash", script, "script.py"], cwd=planted, env=given, capture_output=True)
    assert not (tmp_path / "imported").exists()


# The kernel's own protection


def test_the_kernel_follows_no_link_and_writes_to_no_file_of_others_in_folders_for_all(tmp_path: Path) -> None:
    host = World(tmp_path).node("worker")
    wanted = {"protected_symlinks": "1", "protected_hardlinks": "1", "protected_fifos": "2", "protected_regular": "2"}
    for name in wanted:
        host.path(f"/proc/sys/fs/{name}").parent.mkdir(parents=True, exist_ok=True)
        host.path(f"/proc/sys/fs/{name}").write_text("0\n")
    kernel.run(host.node())
    assert {name: host.text(f"/proc/sys/fs/{name}").strip() for name in wanted} == wanted
    assert all(f"fs.{name} = {value}\n" in host.text(kernel.SYSCTL_FILE) for name, value in wanted.items())
