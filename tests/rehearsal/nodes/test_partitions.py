"""Several worker groups of one cluster, one without accelerators: their partitions, and features of their nodes."""

import json

import pytest

from rehearsal.nodes import requirements, slurm_packages
from rehearsal.nodes.checks import all_idle, output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import until

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]
_GROUPS = [
    {"name": "prepare", "instanceType": "ml.m7i.4xlarge", "count": 2},
    {"name": "reserved", "instanceType": "ml.p5.48xlarge", "count": 2},
    {"name": "trial", "instanceType": "ml.g5.48xlarge", "count": 2},
    {"name": "later", "instanceType": "ml.g5.16xlarge", "count": 1},
]


@pytest.mark.timeout(500)
def test_jobs_choose_a_group_by_its_partition_and_nodes_by_their_features() -> None:
    options = Options(workers=2, absent=frozenset({"later"}))
    with deployed("slurm-gpu", f"workers={json.dumps(_GROUPS)}") as stack, Cluster(stack, options) as cluster:
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        until("all workers are idle", lambda: all_idle(cluster))
        head, zone = cluster.controller, stack.config.zone_id
        prepare, reserved, trial = (
            {host.hostname for host in cluster.workers if host.group == name}
            for name in ("prepare", "reserved", "trial")
        )

        def ran(words: str) -> set[str]:
            return set(output(head, f"srun {words} hostname").split())

        assert ran("-p reserved -N 2") == reserved
        assert ran("-p trial -N 2") == ran("-N 2 -C ml.g5.48xlarge") == trial
        assert ran("-p gpu -N 4") == ran("-N 4 --gres=gpu:8") == reserved | trial
        assert ran("-N 6") == ran(f"-N 6 -C {zone}") == prepare | reserved | trial
        # Who needs no accelerator gets none, and by default at first no node with any.
        assert ran("-p prepare -N 2") == prepare
        until("all workers are idle again", lambda: all_idle(cluster))
        assert ran("-N 2") == prepare
        for words, said in (
            ("-p trial -C ml.p5.48xlarge", "node configuration is not available"),
            ("-p trial -N 3", "node configuration is not available"),
            ("-p gpu -N 5", "node configuration is not available"),
            ("-p prepare --gres=gpu:1", "node configuration is not available"),
            ("-C ml.g6.48xlarge", "Invalid feature specification"),
        ):
            assert said in head.run(f"srun {words} hostname").stderr
        # A group without nodes has a partition, which takes no job yet.
        assert "TotalNodes=0 " in output(head, "scontrol show partition later")
        early = head.run("sbatch -p later --wrap true")
        assert "node configuration is not available" in early.stderr, early
        without_accelerators(cluster)
        jobs_go_on_when_the_agent_writes_its_file_anew(cluster)
        assert ran("-p reserved -N 2 -C ml.p5.48xlarge") == reserved
        # A network test takes its nodes from one group, the first or the one that -p names (and finds no test there).
        for words, nodes in (("", reserved), ("-p trial", trial)):
            said = head.run(f"run-nccl-test 2 {words}", timeout=120).stderr
            assert all(name in said for name in nodes), said


@pytest.mark.timeout(300)
def test_jobs_go_on_in_the_next_release_of_slurm_too() -> None:
    release = [*slurm_packages.RELEASES][-1]
    if lacking := requirements.missing(release):
        pytest.skip("; ".join(lacking))
    options = Options(workers=2, absent=frozenset({"later"}), slurm=release)
    with deployed("slurm-gpu", f"workers={json.dumps(_GROUPS)}") as stack, Cluster(stack, options) as cluster:
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        until("all workers are idle", lambda: all_idle(cluster))
        jobs_go_on_when_the_agent_writes_its_file_anew(cluster)


def jobs_go_on_when_the_agent_writes_its_file_anew(cluster: Cluster) -> None:
    """As it does when nodes come and go: what runs goes on, on the largest nodes too, and what waits is not lost."""
    head, submit = cluster.controller, "sbatch --parsable --exclusive -N 2 -o /dev/null {} --wrap 'srun sleep 8'"
    first = ("-p trial --gres=gpu:8", "-p prepare", "-C ml.p5.48xlarge --gres=gpu:4")
    jobs = [output(head, submit.format(words)).strip() for words in (*first, "-p trial", "-C ml.g5.48xlarge")]
    shown = f"for job in {' '.join(jobs)}; do scontrol show job $job -o; done"
    # Their steps, too: Slurm 26.05 can lose a step that it is about to create when it reads its file twice in a row.
    steps = {f"{job}.0" for job in jobs[: len(first)]}
    until("three jobs run", lambda: steps <= set(output(head, "squeue -hs -o %i").split()))
    cluster.agent.announce(cluster.hosts, whole=True)
    reserved = "srun -p reserved -N 2 hostname"
    until("each group has its nodes again", lambda: output(head, reserved))
    until("the jobs end", lambda: output(head, shown).count("JobState=COMPLETED") == len(jobs))
    assert output(head, shown).count(" Restarts=0 ") == len(jobs)


def without_accelerators(cluster: Cluster) -> None:
    """Their nodes have no device in Slurm, and their jobs no variable of EFA's or NCCL's."""
    nodes = [host for host in cluster.workers if host.group == "prepare"]
    shown = output(cluster.controller, "sinfo -h -N -p prepare -o '%G %w'").split()
    assert shown == ["gpu:0", "1"] * len(nodes)
    told = output(cluster.controller, f"srun -p prepare -N {len(nodes)} env")
    assert not [line for line in told.splitlines() if line.startswith(("NCCL_", "FI_", "NEURON_", "CUDA_"))]
