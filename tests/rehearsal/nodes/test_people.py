"""People on a living cluster: two who work side by side, one who comes and one who goes."""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from operations.cluster import nodes as cluster_nodes
from operations.cluster import sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.cluster.slurm_jobs import SlurmJobs
from operations.failures import Failure
from operations.jobs.batch import submission
from operations.jobs.choices import Choices
from operations.jobs.run import judge
from operations.jobs.specs import own_job
from operations.target import Target
from rehearsal.nodes.checks import output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import until
from rehearsal.nodes.hosts import Host
from tests.operations.test_slurm import PYTHON

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
_SSH = 'security={"sshOnlyWithJob":true}'
LIST = "hyperpod_people.json"


def test_people_work_apart_and_come_and_go_without_a_new_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = [{"name": f"research{n}", "uid": 2000 + n, "gid": 3000, "sshKeys": [key(tmp_path, n)]} for n in (1, 2)]
    login = json.dumps({"instanceType": "ml.m5.large"})
    with (
        deployed("dev", f"users={json.dumps(users)}", f"login={login}", _SSH) as stack,
        Cluster(stack, Options(workers=2)) as cluster,
    ):
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        ids_are_the_same(cluster, {"research1": 2001, "research2": 2002})
        homes_are_apart(cluster)
        for host in cluster.workers:
            assert not ssh(cluster, host, tmp_path, 1, "id"), f"{host.name} lets research1 in, who has no job there"
        jobs_come_from_a_laptop(cluster, SlurmJobs(laptop(cluster, monkeypatch)))
        jobs_are_apart(cluster)
        with_a_job, without = cluster.workers
        assert not ssh(cluster, without, tmp_path, 1, "id"), f"{without.name} lets research1 in by a job elsewhere"
        for host in (cluster.controller, *cluster.of_role("login"), with_a_job):
            assert ssh(cluster, host, tmp_path, 1, "id -un; pwd") == "research1\n/fsx/home/research1\n"
            assert not ssh(cluster, host, tmp_path, 1, "id", user="research2"), "another's key lets in"
        their_job_ends_with_them(cluster, tmp_path)


def key(folder: Path, number: int) -> str:
    path = folder / f"research{number}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


def ssh(cluster: Cluster, host: Host, keys: Path, number: int, command: str, user: str = "") -> str:
    """What a command prints that somebody runs with their key from elsewhere in the VPC; empty if they are refused."""
    options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ConnectTimeout=5"]
    flags = [word for option in options for word in ("-o", option)]
    who = f"{user or f'research{number}'}@{host.address}"
    base = [
        "nsenter",
        "-t",
        str(cluster.sandbox.pid),
        "-n",
        "ssh",
        "-F",
        "/dev/null",
        "-i",
        str(keys / f"research{number}"),
    ]
    done = subprocess.run(
        [*base, *flags, who, command],
        capture_output=True,
        text=True,
        env=cluster.sandbox.environment,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def ids_are_the_same(cluster: Cluster, people: dict[str, int]) -> None:
    for host in cluster.hosts:
        for name, uid in people.items():
            assert (
                output(host, f"id {name}") == f"uid={uid}({name}) gid=3000(hyperpod-3000) groups=3000(hyperpod-3000)\n"
            )


def refused(host: Host, command: str, user: str) -> str:
    done = host.run(command, user=user)
    assert done.returncode, f"{user} on {host.name} could: {command}"
    return done.stderr


def homes_are_apart(cluster: Cluster) -> None:
    first, second = cluster.workers
    output(first, "touch ~research1/notes; echo mine > ~research1/secret", user="research1")
    assert output(second, "cat ~research1/secret", user="research1") == "mine\n"
    for host in cluster.hosts:
        for command in ("ls ~research1", "cat ~research1/secret", "touch ~research1/x", "rm -rf /fsx/home/research1"):
            assert "Permission denied" in refused(host, command, "research2")
        assert output(host, "stat -c '%U %a' ~research1").strip() == "research1 700"
        assert output(host, "ls -A ~research1/.bashrc").strip() == "/fsx/home/research1/.bashrc"


# Every rank of a job adds one to the others' sum, and says where it is.
_SCRIPT = """import os, sys, torch, torch.distributed as dist
import beside
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"{beside.WORD} {dist.get_rank()} of {total.item():.0f} as {os.getuid()} {sys.argv[1:]} {os.environ['TOLD']}")
dist.destroy_process_group()
"""


def laptop(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Target:
    """The stack from elsewhere: with hosts in the place of Session Manager and of SageMaker's list of nodes."""

    def run_remote(_: object, node: Node, command: str, timeout: float) -> Remote:
        found = cluster.host(node.name).run(command.removeprefix("sudo -n "), timeout=timeout)
        return Remote(code=found.returncode, output=found.stdout + found.stderr)

    head = Node(
        name=cluster.controller.name,
        group="controller",
        role="controller",
        instance_id="",
        instance_type="",
        status="Running",
    )
    monkeypatch.setattr(sessions, "run_remote", run_remote)
    monkeypatch.setattr(cluster_nodes, "list_nodes", lambda _: [head])
    return cast(Target, SimpleNamespace(stack="dev", on_eks=False))


def jobs_come_from_a_laptop(cluster: Cluster, jobs: SlurmJobs) -> None:
    """A script of one's own and this project's jobs are submitted, followed, listed and cancelled."""
    config, said = cluster.stack.config, list[str]()
    cluster.shared("python").write_text(PYTHON)
    cluster.shared("python").chmod(0o755)
    files = {"train.py": _SCRIPT, "beside.py": "WORD = 'rank'\n"}
    given: dict[str, Any] = {
        "arguments": "'a b'",
        "env": ["TOLD=it's", "HYPERPOD_PYTHON=/fsx/python"],
        "user": "research1",
    }
    number = jobs.submit(submission("train", config, Choices(**given), job=own_job("train.py"), files=files))
    succeeded, lines = jobs.follow(number, said.append, lambda _: None, 120)
    assert (succeeded, lines) == (True, said), lines
    ranks = sorted(line for line in lines if line.startswith("rank"))
    assert ranks == [f"rank {rank} of 2 as 2001 ['a b'] it's" for rank in (0, 1)], lines
    assert cluster.shared(f"checkpoints/train-{number}.log").stat().st_uid == 2001
    for name, words in (("device-check", ""), ("nccl-tests", "-b 8 -e 1K -n 1 --threshold 0")):
        number = jobs.submit(submission(name, config, Choices(arguments=words)))
        succeeded, lines = jobs.follow(number, said.append, lambda _: None, 120)
        result = judge(name, None, config.training_groups[0], 2, succeeded, lines, 1.0)
        assert result.passed, (name, result.reasons, lines)
        assert jobs.look(name).id == number
    python = ["HYPERPOD_PYTHON=/fsx/python"]
    waits = {"wait.py": "import time; time.sleep(300)"}
    number = jobs.submit(submission("wait", config, Choices(env=python), job=own_job("wait.py"), files=waits))
    until("the job runs", lambda: jobs.look("wait").state == "RUNNING")
    assert [(row["job"], row["user"]) for row in jobs.jobs() if row["state"] == "running"] == [("wait", "ubuntu")]
    jobs.cancel(number)
    until("the job is gone", lambda: jobs.look("wait").state == "CANCELLED")
    with pytest.raises(Failure, match="Invalid partition"):
        jobs.submit(replace(submission("nanogpt", config), name="elsewhere", options=("--partition=nosuch",)))
    left = cluster.shared("checkpoints/jobs-ubuntu").iterdir()
    assert not [path for path in left if path.name.startswith("elsewhere")]


def jobs_are_apart(cluster: Cluster) -> None:
    controller, (worker, _) = cluster.controller, cluster.workers
    said = output(
        controller, "cd /fsx/home/research1; srun -N 2 sh -c 'id -u; touch ~/from-$(hostname)'", user="research1"
    )
    assert said.split() == ["2001", "2001"]
    command = "sbatch --parsable -w {} -o /fsx/home/research1/log --wrap 'echo $PPID; exec sleep 300'"
    job = output(controller, f"cd; {command.format(worker.hostname)}", user="research1").strip()
    log = cluster.shared("home/research1/log")
    until("the job runs", lambda: log.exists() and bool(log.read_text()))
    assert "Access/permission denied" in refused(controller, f"scancel {job}", "research2")
    assert "Invalid user id" in refused(controller, f"scontrol update job={job} timelimit=1", "research2")
    pid = output(worker, "pgrep -u research1 -x sleep").split()[0]
    assert "not permitted" in refused(worker, f"kill {pid}", "research2")
    assert "Permission denied" in refused(worker, f"cat /proc/{pid}/environ", "research2")
    assert output(controller, "squeue -h -o %u").split() == ["research1"]


def their_job_ends_with_them(cluster: Cluster, keys: Path) -> None:
    """research1 leaves while a job and a session of theirs run, and research3 comes."""
    stack, worker = cluster.stack, cluster.workers[0]
    s3, place = stack.account.client("s3"), {"Bucket": stack.bucket, "Key": f"{stack.prefix}/{LIST}"}
    document = json.loads(cluster.files[LIST])
    fresh = {**document["people"][0], "name": "research3", "uid": 2003, "ssh_keys": [key(keys, 3)]}
    document["people"] = [document["people"][1], fresh]
    s3.put_object(**place, Body=json.dumps(document).encode())
    worker.start(["setpriv", "--reuid", "research1", "--regid", "3000", "--clear-groups", "sleep", "300"])
    region = stack.config.region.name
    for host in cluster.hosts:
        command = f"/opt/hyperpod/bin/hyperpod-users s3://{place['Bucket']}/{place['Key']} --region {region}"
        found = json.loads(output(host, command))
        assert found["warnings"] == []
        assert {who for who, one in found["people"].items() if one["enabled"]} == {"research2", "research3"}
    until("nothing of research1's runs", lambda: not _left(cluster.hosts, "research1"))
    until("no job of theirs is left", lambda: not output(cluster.controller, "squeue -h -u research1").strip())
    for host in cluster.hosts:
        assert not ssh(cluster, host, keys, 1, "id"), f"{host.name} lets research1 in"
        if host.role != "worker":
            assert ssh(cluster, host, keys, 3, "id -un") == "research3\n"
        assert not ssh(cluster, host, keys, 1, "sbatch --wrap hostname")
    assert cluster.shared("home/research1/secret").read_text() == "mine\n"
    assert output(cluster.controller, "cd; srun -N 2 id -u", user="research3").split() == ["2003", "2003"]


def _left(hosts: Iterable[Host], user: str) -> list[str]:
    return [host.name for host in hosts if host.run(["pgrep", "-u", user]).stdout]
