"""Jobs in containers on a real Slurm: packages from the bucket, plug-ins built on the nodes, and what a task then has.

Pyxis and Enroot come from no registry that this test may use. Pyxis is a plug-in of the test's, built by the nodes'
own step against the headers of this Slurm; like the real one it takes its options, and enters the container before
Slurm would run TaskProlog. Enroot is a script that keeps what it makes where enroot.conf says.
"""

import hashlib
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from rehearsal.nodes.agent import SLURM_CONF
from rehearsal.nodes.checks import output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.eks_image import log_of, starts, unit_texts
from rehearsal.nodes.growth import until
from rehearsal.nodes.hosts import Host
from tests.support import ROOT

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
# Reads its configuration as Enroot does: the first value of a setting counts.
ENROOT = """#!/bin/bash
set -e
while read -r key value; do
  [[ $key != ENROOT_* || -v $key ]] || export "$key=$(eval echo "$value")"
done < /etc/enroot/enroot.conf
umask 077
mkdir -p "$ENROOT_CACHE_PATH" "$ENROOT_DATA_PATH" "$ENROOT_RUNTIME_PATH"
echo "$4 of $(readlink -f "$ENROOT_DATA_PATH")" > "$3"
"""
PLUGSTACK = "/opt/slurm/etc/plugstack.conf"
PYXIS = "/opt/slurm/lib/slurm/spank_pyxis.so"
IMAGE = "/fsx/images/it.sqsh"


def packages(folder: Path) -> Path:
    """What `hyperpod download containers` would have put there."""
    made, found = folder / "made", folder / "packages"
    for name, text, mode in (
        ("DEBIAN/control", "Package: enroot\nVersion: 4\nArchitecture: all\nMaintainer: x\nDescription: x\n", 0o644),
        ("usr/local/bin/enroot", ENROOT, 0o755),
        ("etc/enroot/enroot.conf", "ENROOT_DATA_PATH /opt/enroot\n", 0o644),
    ):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
        (made / name).chmod(mode)
    found.mkdir()
    subprocess.run(["dpkg-deb", "-b", str(made), str(found / "enroot_4_all.deb")], check=True, capture_output=True)
    with tarfile.open(found / "pyxis-0.tar.gz", "w:gz") as archive:
        archive.add(Path(__file__).parent / "pyxis", "pyxis-0")
    sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(found.iterdir()))
    text = "".join(sums)
    (found / "SHA256SUMS").write_text(text)
    return found


@pytest.mark.timeout(300)
def test_jobs_run_in_containers_with_their_nodes_variables_and_never_beside_them(tmp_path: Path) -> None:
    slurm = json.dumps({"containers": True, "containerPackages": str(packages(tmp_path))})
    login = json.dumps({"instanceType": "ml.m5.large"})
    with (
        deployed("dev", f"slurm={slurm}", f"login={login}") as stack,
        Cluster(stack, Options(workers=2)) as cluster,
    ):
        cluster.start_hosts()
        first, second = cluster.workers
        has_docker(first)
        cluster.boot()
        scripts_succeeded(cluster)
        (person,) = cluster.of_role("login")
        an_image_is_imported_once(person)
        pyxis_makes_an_image_into_a_file_on_the_disk(first, person)
        a_task_has_what_its_node_and_its_job_say(person)
        a_job_file_trains_in_a_container(cluster, person)
        the_lines_stay_when_the_agent_rewrites_them(cluster.controller)
        cluster.reboot(first)
        docker_has_what_it_had(first)
        until("the worker is back", lambda: "idle" in output(person, f"sinfo -h -n {first.hostname} -o %t"))
        assert run(person, f"-w {first.hostname}", "echo $IN_CONTAINER") == [IMAGE]
        a_worker_without_it_takes_no_job(second)


def has_docker(host: Host) -> None:
    """Docker in the image, and a data volume that is mounted late."""
    units = unit_texts("docker", "rehearsal-data-volume")
    for name, text in units.items():
        host.write(f"/etc/systemd/system/{name}.service", text)
    output(host, f"systemctl daemon-reload; systemctl enable --now {' '.join(units)}")


def docker_has_what_it_had(host: Host) -> None:
    """After the boot and after the reboot, on the data volume; at its very first start, on the root volume."""
    until("Docker starts again", lambda: len(starts(host.read(log_of("docker")))) > 2, 20)
    places, states = zip(*starts(host.read(log_of("docker"))), strict=True)
    assert places == ("none", *["/var/lib/rehearsal/rehearsal-data-volume/docker"] * (len(places) - 1)), places
    assert len(set(states)) == 1, "Docker started without its images"


def run(host: Host, options: str, command: str) -> list[str]:
    """What the tasks print of a command in a container."""
    words = f"cd /fsx; srun {options} --container-image={IMAGE} bash -c '{command}'"
    return output(host, words, user="ubuntu").splitlines()


def an_image_is_imported_once(host: Host) -> None:
    output(host, "mkdir -p /fsx/images; chown ubuntu /fsx/images")
    output(host, "echo 570.133.20 > /fsx/images/driver")
    importer = "HYPERPOD_NVIDIA=/fsx/images/driver /opt/hyperpod/bin/hyperpod-import-image"
    command = f"cd /fsx; {importer} nvcr.io/nvidia/pytorch@sha256:1 {IMAGE}"
    done = host.run(command, user="ubuntu")
    assert done.stdout.startswith(f"{IMAGE} "), done.stderr
    # The worker looked into it, which is no real image.
    assert f"{IMAGE} was not checked" in done.stderr
    # On the worker's own disk, in the user's folder.
    assert output(host, f"cat {IMAGE}") == "docker://nvcr.io#nvidia/pytorch:sha256:1 of /scratch/enroot/1000/data\n"
    assert host.run(command, user="ubuntu").returncode == 1


def pyxis_makes_an_image_into_a_file_on_the_disk(host: Host, person: Host) -> None:
    """pyxis_slurmstepd.c: in {runtime_path}/{uid}/{job}.{step}.squashfs, as the user."""
    (path,) = run(person, f"-w {host.hostname}", "echo $PYXIS_RUNTIME_PATH")
    assert output(host, f"cd {path}/1000; touch 1.0.squashfs; pwd -P", user="ubuntu") == "/scratch/enroot/1000\n"


def a_task_has_what_its_node_and_its_job_say(host: Host) -> None:
    shown = "echo $HYPERPOD_TRANSPORT $NCCL_DEBUG $(ls /opt/slurm /opt/hyperpod 2>/dev/null)"
    assert run(host, "-N 2 --export=ALL,NCCL_DEBUG=INFO", shown) == ["tcp INFO /opt/hyperpod: lib"] * 2
    bare = output(host, "cd /fsx; srun -N 2 bash -c 'echo $HYPERPOD_TRANSPORT $IN_CONTAINER'", user="ubuntu")
    assert bare.splitlines() == ["tcp"] * 2
    batch = "sbatch -W -o /fsx/images/log --wrap 'echo $HYPERPOD_TRANSPORT'; cat /fsx/images/log"
    assert output(host, f"cd /fsx; {batch}", user="ubuntu").splitlines()[-1] == "tcp"


def a_job_file_trains_in_a_container(cluster: Cluster, host: Host) -> None:
    cluster.shared("images/nanogpt.sbatch").write_text((ROOT / "jobs/slurm/nanogpt.sbatch").read_text())
    given = f"OUT=/fsx/images/out CONTAINER_IMAGE={IMAGE}"
    words = f"cd /fsx/images; {given} sbatch -W -o it.log nanogpt.sbatch --steps 2 --save-every 2; cat it.log"
    said = output(host, words, user="ubuntu")
    assert "done: 2 iterations" in said, said
    assert list(cluster.shared("images/out").iterdir())


def the_lines_stay_when_the_agent_rewrites_them(host: Host) -> None:
    before = host.read(PLUGSTACK)
    assert before.splitlines()[-1] == f"required {PYXIS} runtime_path=/run/hyperpod-enroot"
    host.write(PLUGSTACK, f"required {PYXIS}\n")
    host.write(SLURM_CONF, host.read(SLURM_CONF) + "# touched\n", owner="slurm")
    until("the lines are back", lambda: host.read(PLUGSTACK) == before, 30)
    assert "TaskProlog" not in host.read("/opt/slurm/etc/hyperpod.conf")


def a_worker_without_it_takes_no_job(host: Host) -> None:
    output(host, f"rm {PYXIS}; systemctl restart slurmd")
    log = "/var/log/slurm/slurmd.log"
    until("slurmd says why", lambda: f"Failed to load plugin {PYXIS}" in host.read(log), 30)
