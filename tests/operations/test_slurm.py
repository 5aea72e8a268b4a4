"""The verbs read what a real Slurm prints: a controller and one node with two GPUs, here and for this test alone."""

import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operations.cluster import jobs_on_nodes, nodes, sessions, slurm_jobs
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.cluster.slurm_jobs import SlurmJobs
from operations.cluster.validate import Validation
from operations.failures import Failure
from operations.jobs.batch import Submission, submission
from operations.jobs.choices import Choices
from operations.jobs.run import TimedOut
from operations.jobs.specs import own_job
from operations.target import Target
from tests.operations.aws import StubbedAws, stack
from tests.slurm import Slurm, kept_slurm, needs_slurm
from tests.support import ROOT, config

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
# Debian's PyTorch 1.13 is older than its Python 3.11, where a loop over the members of a flag leaves zero out: torchrun
# knows no meaning of the "0" in --redirects then.
PYTHON = """#!/bin/sh
[ "$1 $2" = "-m torch.distributed.run" ] || exec /usr/bin/python3 "$@"
shift 2
exec /usr/bin/python3 -c 'import runpy
from torch.distributed.elastic.multiprocessing.api import Std
Std.from_str = lambda text: Std.NONE
runpy.run_module("torch.distributed.run", run_name="__main__")' "$@"
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
        # A login would lose where this Slurm is.
        words = line.removeprefix("sudo -n ").removeprefix("runuser -l root -s /bin/")
        return _run(slurm, words)

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


@pytest.fixture
def jobs(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmJobs:
    """The jobs of that Slurm, with a folder of this test's in the place of /fsx."""
    monkeypatch.setattr(slurm_jobs, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(slurm_jobs, "_LIBRARY", str(ROOT / "lifecycle/training"))
    monkeypatch.setattr(nodes, "list_nodes", lambda _: [CONTROLLER])
    return SlurmJobs(target)


def _script(name: str, text: str, folder: Path, **options: Any) -> Submission:
    """A script of one's own, whose batch file has the places of this test's."""
    found = submission(
        name, config("dev"), Choices(nodes=1, user="root", **options), job=own_job("own.py"), files={"own.py": text}
    )
    places = {"/fsx/checkpoints": str(folder), "/opt/hyperpod/lib": str(ROOT / "lifecycle")}
    files = dict(found.files)
    for here, there in places.items():
        files["torchrun.sbatch"] = files["torchrun.sbatch"].replace(here, there)
    return replace(found, files=files)


def test_a_script_goes_through_slurm_to_its_log(jobs: SlurmJobs, tmp_path: Path) -> None:
    text = (
        "import os, sys\nprint(os.environ['WORLD_SIZE'], os.environ['TOLD'], sys.argv[1:])\nsys.exit(int(sys.argv[2]))"
    )
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    for code, state in ((0, "COMPLETED"), (3, "FAILED")):
        given = {
            "arguments": f"'a b' {code}",
            "env": ["TOLD=it's", "HYPERPOD_WAIT_SECONDS=0", f"HYPERPOD_PYTHON={python}"],
        }
        number = jobs.submit(_script("train", text, tmp_path, **given))
        said: list[str] = []
        succeeded, lines = jobs.follow(number, said.append, lambda _: None, 60)
        assert succeeded is (code == 0), "\n".join(lines)
        assert f"1 it's ['a b', '{code}']" in lines
        assert said == lines
        seen = jobs.look("train")
        assert (seen.id, seen.state, seen.user, seen.said.decode().splitlines()) == (number, state, "root", lines)
        # What Slurm has forgotten is still in its log.
        assert jobs.look(number, start=2).said == seen.said[2:]


def test_a_job_waits_and_is_cancelled_and_what_slurm_refuses_leaves_nothing(jobs: SlurmJobs, tmp_path: Path) -> None:
    sleeps = "import time\nprint('here', flush=True)\ntime.sleep(100)\n"
    first, second = (jobs.submit(_script(name, sleeps, tmp_path)) for name in ("first", "second"))
    assert jobs.look("first", before="PENDING", patience=20).state == "RUNNING"
    assert jobs.look(second).phase in ("pending: Resources", "pending: Priority", "pending")
    assert {(row["job"], row["id"], row["user"]) for row in jobs.jobs()} >= {
        ("first", first, "root"),
        ("second", second, "root"),
    }
    with pytest.raises(TimedOut, match="did not end within 1 s: pending") as waited:
        jobs.follow(second, print, print, 1)
    assert waited.value.queued
    for number in (second, first):
        jobs.cancel(number)
        while not (seen := jobs.look(number)).ended:
            time.sleep(0.5)
        assert seen.state == "CANCELLED"
    assert jobs.look("first").said
    with pytest.raises(Failure, match="Invalid partition"):
        jobs.submit(replace(_script("third", sleeps, tmp_path), options=("--partition=nosuch",)))
    assert not list((tmp_path / "jobs-root").glob("third*"))
    with pytest.raises(Failure, match="there is no job nosuch"):
        jobs.look("nosuch")
    assert jobs.look("99999").state == "FORGOTTEN"
