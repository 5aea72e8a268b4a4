"""What a person holds or exchanges while root prepares or cleans up after a job, on a disk where anybody may write."""

import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hyperpod_node.host import safe_open

from tests.lifecycle.rig import LIFECYCLE

# A prolog takes a tenth of a second; slurmd waits for it.
SOON = 10.0
SWAP = '#!/bin/bash\n/bin/{command} "$@" || exit\n{swap}\n'
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def node(folder: Path) -> dict[str, str]:
    """What the scripts know of a node with a scratch disk, containers and metrics."""
    for name in ("state", "metrics", "training", "scratch", "bin"):
        (folder / name).mkdir()
    (folder / "scratch").chmod(0o777)
    (folder / "mounts").write_text(f"/dev/md0 {folder}/scratch ext4 rw 0 0\n")
    facts = f"shared=''\ndevices=0\npattern=''\nscratch='{folder}/scratch'\ncontainers='{folder}/run'\n"
    (folder / "state/prolog.env").write_text(facts)
    for name in ("prolog", "epilog", "job-metrics"):
        script = shutil.copyfile(LIFECYCLE / f"slurm/{name}.sh", folder / f"bin/hyperpod-{name}")
        script.chmod(0o755)
    named = {"STATE": "state", "MOUNTS": "mounts", "METRICS": "metrics", "TRAINING": "training", "GPU_JOBS": "gpus"}
    given = {f"HYPERPOD_{name}": f"{folder}/{place}" for name, place in named.items()}
    uid = str(os.getuid())
    return {**given, "PATH": f"{folder}/bin:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_UID": uid}


def run(folder: Path, script: str, given: dict[str, str]) -> None:
    subprocess.run([str(folder / f"bin/hyperpod-{script}")], env=given, check=True, timeout=SOON)


def test_locks_that_anybody_can_hold_keep_no_job_from_starting(tmp_path: Path) -> None:
    given = node(tmp_path)
    run(tmp_path, "prolog", given)
    locks = [tmp_path / "state/prolog.lock", tmp_path / "gpus.lock"]
    assert [lock.stat().st_mode & 0o7777 for lock in locks] == [0o600, 0o600]
    held = []
    for path in (tmp_path, *tmp_path.rglob("*")):
        if path not in locks and not path.is_symlink():
            held.append(os.open(path, os.O_RDONLY))
            fcntl.flock(held[-1], fcntl.LOCK_EX)
    began = time.monotonic()
    run(tmp_path, "prolog", {**given, "SLURM_JOB_ID": "8"})
    assert time.monotonic() - began < SOON / 2
    assert (tmp_path / "scratch/jobs/8").is_dir()
    assert (tmp_path / "training/8").is_dir()
    for descriptor in held:
        os.close(descriptor)


def test_every_wait_for_a_lock_is_bounded() -> None:
    for script in (LIFECYCLE / "slurm").glob("*.sh"):
        waits = [line for line in script.read_text().splitlines() if "flock " in line and not line.startswith("#")]
        assert all("flock -w " in line for line in waits), (script, waits)


def test_a_lock_of_roots_is_roots_alone_whatever_its_mode_was(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch(mode=0o644)
    with safe_open.holds_lock(str(lock)) as first, safe_open.holds_lock(str(lock)) as second:
        assert (first, second) == (True, False)
    assert lock.stat().st_mode & 0o7777 == 0o600
    with safe_open.holds_lock(str(lock)) as again:
        assert again
    (tmp_path / "link").symlink_to(lock)
    with pytest.raises(OSError, match="symbolic"), safe_open.holds_lock(str(tmp_path / "link")):
        pass


@pytest.mark.parametrize(("folder", "victim"), [("jobs", "7"), ("enroot", "own")])
def test_a_folder_that_is_exchanged_meanwhile_leads_root_nowhere_else(tmp_path: Path, folder: str, victim: str) -> None:
    given = node(tmp_path)
    name = given["SLURM_JOB_UID"] if victim == "own" else victim
    (tmp_path / "victim" / name).mkdir(parents=True)
    parent = tmp_path / "scratch" / folder
    swap = f"[[ ! -L {parent} && -e {parent}/{name} ]] && mv {parent} {parent}.old && ln -s {tmp_path}/victim {parent}"
    (tmp_path / "bin/mkdir").write_text(SWAP.format(command="mkdir", swap=f"{swap}\ntrue"))
    (tmp_path / "bin/chown").write_text(f'#!/bin/bash\nreadlink -f "${{@: -1}}" >> {tmp_path}/given\n')
    for stub in ("mkdir", "chown"):
        (tmp_path / "bin" / stub).chmod(0o755)
    run(tmp_path, "prolog", given)
    assert parent.is_symlink(), "nothing was exchanged"
    assert f"{parent}.old/{name}" in (tmp_path / "given").read_text().splitlines()
    assert f"{tmp_path}/victim" not in (tmp_path / "given").read_text()


def test_a_folder_that_was_exchanged_before_is_neither_used_nor_emptied(tmp_path: Path) -> None:
    given = node(tmp_path)
    (tmp_path / "victim/7").mkdir(parents=True)
    (tmp_path / "scratch/jobs").symlink_to(tmp_path / "victim")
    run(tmp_path, "epilog", given)
    assert (tmp_path / "victim/7").is_dir()
    run(tmp_path, "prolog", given)
    assert (tmp_path / "victim/7").is_dir()
    assert not (tmp_path / "scratch/jobs").is_symlink()


@pytest.mark.root
def test_another_user_can_hold_nothing_that_root_waits_for(everybodys: Path) -> None:
    """The attack itself, as the user nobody: `flock` of whatever that user can open."""
    given = {**node(everybodys), "SLURM_JOB_UID": "0"}
    run(everybodys, "prolog", given)
    found = f"find {everybodys} -readable ! -type l ! -name '*.sh'"
    command = f'{found} | while read -r one; do flock "$one" sleep 60 & done; echo held; wait'
    with subprocess.Popen([*NOBODY, "bash", "-c", command], stdout=subprocess.PIPE, start_new_session=True) as attacker:
        try:
            assert attacker.stdout is not None
            attacker.stdout.readline()
            time.sleep(0.3)
            taken = subprocess.run(["flock", "-n", str(everybodys / "state"), "true"], check=False).returncode
            assert taken == 1, "the attacker holds nothing"
            run(everybodys, "prolog", {**given, "SLURM_JOB_ID": "8"})
            run(everybodys, "epilog", {**given, "SLURM_JOB_ID": "8"})
        finally:
            os.killpg(attacker.pid, 9)
    assert (everybodys / "scratch/jobs/7").is_dir()
    assert not (everybodys / "scratch/jobs/8").exists()
