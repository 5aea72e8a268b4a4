"""The queue on the shared file system, with a real Slurm: a controller is replaced by one with an empty disk."""

import re
import time

import pytest

from rehearsal.checks import require
from rehearsal.nodes.checks import all_idle, output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import until
from rehearsal.nodes.hosts import Host
from rehearsal.nodes.recovery import SAVED_WITHIN

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
_JOBS = 100
_ANSWERS = 60.0


@pytest.mark.timeout(120)
def test_the_queue_survives_a_replaced_controller() -> None:
    """HyperPod gives it an empty disk and another address; by default the queue would begin anew."""
    with (
        deployed("dev", 'slurm={"sharedQueue":true}', 'login={"instanceType":"ml.m5.large"}') as stack,
        Cluster(stack, Options(workers=1)) as cluster,
    ):
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        all_idle(cluster)
        queue_is_shared(cluster)
        (login,) = cluster.of_role("login")
        queue = fill(login)
        logs_are_rotated(cluster)
        replaced(cluster, cluster.controller, queue)
        queue_is_shared(cluster)
        until_answered(login, queue, cluster.controller)
        output(login, "scancel --state=PENDING; touch /fsx/end")
        until("the job that ran all the time ends", lambda: not jobs(login))
        require(cluster.shared("running").read_text() == "started\nfinished\n", "the running job was disturbed")


def fill(login: Host) -> set[str]:
    """A job that runs for as long as the test takes, and a hundred that wait for it. All are saved."""
    script = "echo started; until test -e /fsx/end; do sleep 1; done; echo finished"
    output(login, f"sbatch --exclusive -o /fsx/running --wrap '{script}'")
    output(login, f"for job in $(seq {_JOBS}); do sbatch --exclusive -o /dev/null --wrap hostname; done")
    until("a job runs", lambda: "RUNNING" in output(login, "squeue -h -o %T"))
    time.sleep(SAVED_WITHIN)
    return jobs(login)


def jobs(host: Host) -> set[str]:
    """The numbers of all jobs in the queue."""
    return set(output(host, "squeue -h -o %i").split())


def until_answered(host: Host, wanted: set[str], head: Host) -> None:
    """Wait until that controller shows exactly these jobs, one of them running."""
    began = time.monotonic()
    while True:
        shown = host.run("timeout 4 squeue -h -o '%i %T'; timeout 4 scontrol ping", timeout=30)
        found = dict(line.split() for line in shown.stdout.splitlines() if len(line.split()) == 2)
        if set(found) == wanted and f"at {head.hostname} is UP" in shown.stdout:
            require(sorted(found.values()).count("RUNNING") == 1, f"not one job runs: {found}")
            return
        require(
            time.monotonic() - began < _ANSWERS, f"{head.name} shows {len(found)} of {len(wanted)} jobs: {shown.stderr}"
        )
        time.sleep(0.2)


def queue_is_shared(cluster: Cluster) -> None:
    """The queue is on the shared file system, where nobody else reads it."""
    found = output(cluster.controller, "readlink /var/spool/slurmctld; stat -L -c '%a %U' /var/spool/slurmctld")
    require(found == "/fsx/.hyperpod/slurm/state\n700 slurm\n", found)


def known(worker: Host) -> list[str]:
    """The controller by the configuration that a worker's daemon has fetched."""
    return re.findall(r"^SlurmctldHost=([^(]+)", output(worker, "cat /run/slurm/conf/slurm.conf"), re.M)


def replaced(cluster: Cluster, gone: Host, queue: set[str]) -> None:
    """HyperPod replaces a controller; its first run of the scripts is killed while it takes over."""
    fresh = cluster.fresh_host(gone)
    cluster.take_place(gone, fresh)
    run = cluster.script(fresh)
    while not any(line.startswith("step munge ") for line in list(run.lines)):
        require(run.code is None, run.last_line)
        time.sleep(0.02)
    time.sleep(0.2)
    run.kill()
    again = cluster.script(fresh)
    require(again.wait(90) == 0, again.last_line)
    until_answered(fresh, queue, fresh)
    until("workers know the controller", lambda: known(cluster.workers[0]) == [fresh.hostname])


def logs_are_rotated(cluster: Cluster) -> None:
    """The real logrotate; the same daemons go on in a new file."""
    for host, daemon in ((cluster.controller, "slurmctld"), (cluster.workers[0], "slurmd")):
        log, before = f"/var/log/slurm/{daemon}.log", main_process(host, daemon)
        output(host, f"logrotate -f /etc/logrotate.d/hyperpod && test -s {log}.1")
        # By its main process, which has the old one open under its new name until it is told.
        opened = f"readlink /proc/{before}/fd/* | grep -qx {log}"
        output(host, f"for i in $(seq 50); do {opened} && exit; sleep 0.1; done; false")
        require(main_process(host, daemon) == before, f"{daemon} was started again")


def main_process(host: Host, daemon: str) -> str:
    """The number of a daemon's main process."""
    return output(host, f"systemctl show --value -p MainPID {daemon}").strip()
