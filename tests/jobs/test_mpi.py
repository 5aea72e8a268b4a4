"""MPI's pods run without root: their ssh server, its client and Open MPI, in the files that a job brings."""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from operations.jobs.render import render
from operations.jobs.specs import SCRATCH
from rehearsal.kubernetes.container import available
from tests.support import config

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not shutil.which("mpirun") or not available(), reason="needs root and `make node-packages`"),
]

# What the pod's security context comes to.
_CONFINED = "setpriv --reuid {uid} --regid {uid} --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs"
_POD = """
for file in passwd ssh/ssh_config ssh/sshd_config; do mount --bind "$1/$(basename $file)" /etc/$file; done
mount -t tmpfs -o mode=777 scratch /scratch
mkdir /scratch/.ssh
mount --bind "$1/secret" /scratch/.ssh
ip link set lo up
export HOME=/scratch
{confined} bash -ceu "$2" 2> "$1/sshd.log" &
until {confined} ssh 127.0.0.1 true 2> /dev/null; do sleep 0.2; done
exec {confined} mpirun --mca pml ob1 --mca btl tcp,self --bind-to none -np 2 -H 127.0.0.1:1,127.0.0.2:1 \
    sh -c 'echo rank $OMPI_COMM_WORLD_RANK as $(id -un)/$(id -u); grep CapBnd /proc/self/status'
"""


def test_ranks_start_through_ssh_as_the_teams_user_without_any_capability(tmp_path: Path) -> None:
    files, job = render("nccl-tests", config("eks-gpu"))
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    uid = worker["securityContext"]["runAsUser"]
    for name, text in files["data"].items():
        (tmp_path / name).write_text(text)
    # As the MPI operator mounts its Secret: owned by root, and readable by everybody.
    (secret := tmp_path / "secret").mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", secret / "id_rsa"], check=True)
    (secret / "authorized_keys").write_text((secret / "id_rsa.pub").read_text())
    (secret / "id_rsa").chmod(0o644)
    script = _POD.replace("{confined}", _CONFINED.format(uid=uid))
    alone = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*alone, "sh", "-ceu", script, "pod", str(tmp_path), worker["containers"][0]["command"][-1]]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    (scratch := Path(SCRATCH)).mkdir(exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    with suppress(OSError):
        scratch.rmdir()
    assert done.returncode == 0, done.stderr + (tmp_path / "sshd.log").read_text()
    lines = sorted(done.stdout.splitlines())
    assert lines == ["CapBnd:\t0000000000000000"] * 2 + [f"rank {rank} as trainer/{uid}" for rank in (0, 1)]
