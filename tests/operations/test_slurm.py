"""The verbs read what a real Slurm prints: a controller and one node with two GPUs, here and for this test alone."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from operations.cluster import jobs_on_nodes, nodes, sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.cluster.validate import Validation
from operations.target import Target
from tests.operations.aws import StubbedAws, stack
from tests.slurm import Slurm, kept_slurm, needs_slurm

pytestmark = [pytest.mark.root, needs_slurm]
HOST = socket.gethostname().split(".")[0]
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=1 Gres=gpu:2
PartitionName=gpu Nodes=ALL Default=YES State=UP
"""
CONTROLLER = Node(
    name="controller-1", group="controller", role="controller", instance_id="i-0", instance_type="", status="Running"
)
WORKER = Node(
    name="workers-1",
    group="workers",
    role="worker",
    instance_id="i-1",
    instance_type="ml.g5.16xlarge",
    status="Running",
    hostname=HOST,
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm whose node is idle."""
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    ports = {"controller": free_port(), "daemon": free_port()}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(host=HOST, folder=folder, **ports))
    (folder / "gres.conf").write_text("Name=gpu Count=2 File=/dev/null,/dev/zero\n")
    daemons = []
    with kept_slurm(SLURM_CONF=str(folder / "slurm.conf")) as found:
        try:
            for name in ("slurmctld", "slurmd"):
                log = (folder / f"{name}.log").open("w")
                command = [*found.inside, name, "-D"]
                daemons.append(subprocess.Popen(command, env=found.environment, stdout=log, stderr=log))
            _wait(found, "sinfo --noheader --format=%T", "idle")
            yield found
            # A job's own slurmstepd would outlive the daemons.
            _wait(found, "scancel --user=root; squeue --noheader | wc -l", "0")
        finally:
            # An orderly end is of no interest here, and slurmd takes its time when the controller is gone.
            for daemon in daemons:
                daemon.kill()
            for daemon in daemons:
                daemon.wait()


def _run(slurm: Slurm, line: str) -> Remote:
    command = [*slurm.inside, "bash", "-c", line]
    done = subprocess.run(command, env=slurm.environment, capture_output=True, text=True, check=False)
    return Remote(code=done.returncode, output=done.stdout + done.stderr)


def _wait(slurm: Slurm, line: str, wanted: str) -> None:
    for _ in range(60):
        if wanted == (said := _run(slurm, line).output.strip()):
            return
        time.sleep(0.5)
    pytest.fail(f"{line} never said {wanted}, at last {said}")


@pytest.fixture
def target(aws: StubbedAws, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Target:
    """The stack dev, whose controller's commands are this Slurm's."""

    def run_remote(target: Target, node: Node, line: str, timeout: float) -> Remote:
        return _run(slurm, line)

    monkeypatch.setattr(sessions, "run_remote", run_remote)
    return stack(aws)


def test_states_and_their_reasons_are_read(target: Target, slurm: Slurm) -> None:
    (_, worker) = nodes.with_states(target, [CONTROLLER, WORKER])
    assert (worker.state, worker.reason) == ("idle", "")
    _run(slurm, f"scontrol update nodename={HOST} state=drain reason='XID 79, fallen off the bus'")
    (_, worker) = nodes.with_states(target, [CONTROLLER, WORKER])
    assert (worker.state, worker.reason) == ("drained", "XID 79, fallen off the bus")
    _run(slurm, f"scontrol update nodename={HOST} state=resume")
    _wait(slurm, "sinfo --noheader --format=%T", "idle")


def test_accelerators_are_counted(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    validation = Validation(target)
    validation.__dict__["_nodes"] = [CONTROLLER, WORKER]
    monkeypatch.setattr(Validation, "_workers", lambda self: iter([(WORKER, 2)]))
    (check,) = validation.slurm()
    assert (check.result, check.detail) == ("PASS", "idle, 2 of 2 accelerators")


def test_jobs_are_read_with_what_becomes_of_them(target: Target, slurm: Slurm) -> None:
    _run(slurm, "sbatch --chdir=/tmp --output=/dev/null --requeue --job-name='my llama' --wrap 'sleep 60'")
    _run(slurm, "sbatch --chdir=/tmp --output=/dev/null --no-requeue --job-name=waits --wrap 'sleep 60'")
    _wait(slurm, "squeue --noheader --states=RUNNING --format=%T", "RUNNING")
    (job,) = jobs_on_nodes.on_nodes(target, [CONTROLLER, WORKER], [WORKER])
    assert (job.name, job.user, job.survives) == ("my llama", "root", "returns to the queue")
    _run(slurm, "scancel --user=root")
