"""``hyperpod node run-scripts`` on living nodes: the queue moves, accounting begins and moves, and a job runs on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hyperpod_node.facts import parameters

from operations.cluster import run_scripts, sessions
from operations.cluster.node import Node
from operations.cluster.sessions import Remote
from operations.target import Target
from rehearsal.nodes.checks import all_idle, output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import healthy, until
from rehearsal.nodes.hosts import Host
from rehearsal.nodes.stack import Stack

from .conftest import deployed
from .rds import AUTHORITY, PASSWORD, Rds
from .test_shared_queue import jobs, main_process, queue_is_shared

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
# What the stack has in the end.
SLURM = {"sharedQueue": True, "accounting": {"database": "rds", "retentionMonths": 24}}
_NEW = "slurm/epilog.sh"


@pytest.mark.timeout(500)
def test_what_changes_reaches_living_nodes_and_a_job_runs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with deployed("dev", f"slurm={json.dumps(SLURM)}") as stack:
        files = stack.lifecycle_files()
        first = told(files, shared_queue=False, accounting=None) | {_NEW: files[_NEW] + b"# as it was\n"}
        with Cluster(stack, Options(workers=2, files=first)) as cluster:
            cluster.start_hosts()
            cluster.boot()
            scripts_succeeded(cluster)
            all_idle(cluster)
            verb = Verb(cluster, monkeypatch)
            head, (busy, free) = cluster.controller, cluster.workers
            queue = a_job_and_one_that_waits(head, busy)
            put(stack, told(files, accounting={"database": "local", "retention_months": 13}))
            verb.run("controller-1")
            queue_is_shared(cluster)
            assert jobs(head) == queue
            done = output(
                head, "sbatch --parsable -w " + free.hostname + " -o /dev/null --wrap 'srun hostname'"
            ).strip()
            until("the record of a job", lambda: f"{done}|COMPLETED" in history(head))
            rds = Rds(cluster, free, tmp_path)
            rds.start()
            rds.password(PASSWORD)
            rds.found_by(head)
            before = history(head)
            put(stack, {**files, AUTHORITY: rds.authority})
            verb.run("controller-1")
            assert set(before) <= set(history(head))
            assert jobs(head) == queue
            settings = output(head, "cat /opt/slurm/etc/slurmdbd.conf")
            assert f"StorageHost={rds.place.host}\n" in settings
            assert "PurgeJobAfter=24months\n" in settings
            assert output(head, "systemctl is-active mariadb || true") == "inactive\n"
            healthy(head)
            verb.run(busy.name, drain=False)
            verb.run(free.name)
            until("the node is back", lambda: output(head, f"sinfo -h -n {free.hostname} -o %T") == "idle\n")
            for host in cluster.hosts:
                assert host.read("/opt/hyperpod/bin/hyperpod-epilog") == files[_NEW].decode()
            a_second_run_changes_nothing(cluster, verb)
            assert set(before) <= set(history(head))
            the_jobs_end(cluster)


class Verb:
    """The verb, with hosts instead of Session Manager."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        stack = cluster.stack
        self._nodes = {host.name: described(host) for host in cluster.hosts}
        names, aws = SimpleNamespace(bucket=stack.bucket), SimpleNamespace(region=stack.config.region.name)
        self._target = cast(Target, SimpleNamespace(stack="dev", on_eks=False, names=names, aws=aws))

        def run_remote(_: object, node: Node, command: str, timeout: float) -> Remote:
            found = cluster.host(node.name).run(command.removeprefix("sudo -n "), timeout=timeout)
            return Remote(code=found.returncode, output=found.stdout + found.stderr)

        monkeypatch.setattr(sessions, "run_remote", run_remote)

    def run(self, *names: str, **how: Any) -> Sequence[run_scripts.Ran]:
        """Run it on some nodes; everything has to go well."""
        wanted = [self._nodes[name] for name in names]
        found = list(run_scripts.run(self._target, list(self._nodes.values()), wanted, **how))
        assert [one.node for one in found if one.good] == list(names), found
        return found


def told(files: Mapping[str, bytes], **facts: Any) -> dict[str, bytes]:
    """The files with other parameters; of accounting those that are given."""
    found = json.loads(files[parameters.FILE_NAME])
    if facts.get("accounting"):
        facts["accounting"] = {**found["accounting"], **facts["accounting"]}
    return {**files, parameters.FILE_NAME: json.dumps({**found, **facts}).encode()}


def put(stack: Stack, files: Mapping[str, bytes]) -> None:
    """What the stack's bucket has from now on."""
    for name, content in files.items():
        stack.account.client("s3").put_object(Bucket=stack.bucket, Key=f"{stack.prefix}/{name}", Body=content)


def a_job_and_one_that_waits(head: Host, worker: Host) -> set[str]:
    script = "echo started; until test -e /fsx/end; do sleep 0.2; done; echo finished"
    output(head, f"sbatch --exclusive -w {worker.hostname} -o /fsx/running --wrap '{script}'")
    output(head, f"sbatch --exclusive -w {worker.hostname} -o /fsx/waited --wrap hostname")
    until("a job runs", lambda: output(head, "squeue -h -o %T").split() == ["PENDING", "RUNNING"])
    return jobs(head)


def history(head: Host) -> list[str]:
    """What the database has of all jobs that have ended."""
    shown = head.run("sacct -aXnP -o jobid,state")
    return [line for line in shown.stdout.splitlines() if "COMPLETED" in line]


def a_second_run_changes_nothing(cluster: Cluster, verb: Verb) -> None:
    head, workers = cluster.controller, cluster.workers
    daemons = [(head, name) for name in ("slurmctld", "slurmdbd", "munge")] + [(host, "slurmd") for host in workers]
    before = [main_process(*one) for one in daemons]
    for one in verb.run("controller-1", *(host.name for host in workers), drain=False):
        assert (one.changed, one.status) == (0, "ok"), one
    assert [main_process(*one) for one in daemons] == before


def the_jobs_end(cluster: Cluster) -> None:
    output(cluster.controller, "touch /fsx/end")
    until("the jobs end", lambda: not jobs(cluster.controller))
    assert cluster.shared("running").read_text() == "started\nfinished\n", "the running job was disturbed"
    assert cluster.shared("waited").read_text() == f"{cluster.workers[0].hostname}\n"


def described(host: Host) -> Node:
    blank = Node(name=host.name, group=host.group, role=host.role, instance_id="", instance_type="", status="Running")
    return replace(blank, hostname=host.hostname)
