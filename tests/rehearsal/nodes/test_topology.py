"""HyperPod's map of the network on a real Slurm: jobs stay on a switch, no node is lost to it, blocks are blocks."""

import time

import pytest

from rehearsal.checks import CheckFailed
from rehearsal.nodes.checks import output, scripts_succeeded
from rehearsal.nodes.cluster import Cluster, Options
from rehearsal.nodes.growth import until
from rehearsal.nodes.hosts import Host

from .conftest import deployed

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("clean")]


@pytest.mark.timeout(240)
def test_jobs_are_planned_by_hyperpods_map_and_no_node_is_lost_to_it() -> None:
    with (
        deployed("slurm-gpu", 'slurm={"typedGres":true}') as stack,
        Cluster(stack, Options(workers=3, leaf=2)) as cluster,
    ):
        cluster.start_hosts()
        cluster.boot()
        scripts_succeeded(cluster)
        assert plans(cluster.controller) == "topology/tree"
        jobs_ask_for_a_model(cluster.controller)
        a_job_waits_for_its_switch(cluster)
        a_node_that_the_map_lacks_runs_jobs(cluster)
        blocks_of_ultraservers_stay(cluster)


def jobs_ask_for_a_model(head: Host) -> None:
    for asked, shown in (("gpu:h100:8", "0,1,2,3,4,5,6,7"), ("gpu:h100:2", "0,1"), ("gpu:8", "0,1,2,3,4,5,6,7")):
        assert output(head, f"srun -N1 --gres={asked} sh -c 'echo $CUDA_VISIBLE_DEVICES'").strip() == shown
    with pytest.raises(CheckFailed, match="Requested node configuration is not available"):
        output(head, "srun -N1 --gres=gpu:a100:1 hostname")


def plans(head: Host) -> str:
    """The plugin that Slurm plans by."""
    return output(head, "scontrol show config | awk '/^TopologyPlugin/ {print $3}'").strip()


def submit(head: Host, options: str, seconds: int) -> str:
    return output(head, f"sbatch --parsable --exclusive -o /dev/null {options} --wrap 'srun sleep {seconds}'").strip()


def state(head: Host, job: str) -> str:
    return output(head, f"squeue -h -t all -j {job} -o '%T %r'").strip()


def a_job_waits_for_its_switch(cluster: Cluster) -> None:
    """Of three nodes, two on one switch, one of these is taken: two are free, but not on one switch."""
    head, (first, second, third) = cluster.controller, cluster.workers
    holder = submit(head, f"-w {first.hostname}", 300)
    until("a job that holds a node", lambda: state(head, holder).startswith("RUNNING"))
    near = submit(head, "-N2 --switches=1", 300)
    # It is planned after this one, which starts at once.
    far = submit(head, f"-w {third.hostname}", 1)
    until("a job beside it", lambda: state(head, far).startswith("COMPLETED"))
    assert state(head, near) == "PENDING Resources"
    output(head, f"scancel {holder}")
    until("the job gets its switch", lambda: state(head, near).startswith("RUNNING"))
    nodes = output(head, f"scontrol show hostnames $(squeue -h -j {near} -o %N)").split()
    assert nodes == [first.hostname, second.hostname]
    output(head, f"scancel {near}")


def a_node_that_the_map_lacks_runs_jobs(cluster: Cluster) -> None:
    """The agent writes slurm.conf anew with one more node, and its map a moment later."""
    head = cluster.controller
    (fresh,) = cluster.add_hosts("workers", 1)
    assert cluster.script(fresh).wait(90) == 0
    cluster.agent.announce(cluster.hosts, whole=True)
    until("Slurm plans without the map", lambda: plans(head) in ("topology/flat", "topology/default", "(null)"))
    until("the new node is idle", lambda: output(head, f"sinfo -h -n {fresh.hostname} -p gpu -o %t").strip() == "idle")
    assert fresh.hostname in output(head, "srun -N4 hostname").split()
    cluster.agent.map(head, cluster.hosts)
    until("Slurm plans by the whole map", lambda: plans(head) == "topology/tree")
    shown = output(head, "scontrol show topology nn-1").split("Nodes=")[1].split()[0]
    assert fresh.hostname in output(head, f"scontrol show hostnames {shown}").split()
    assert len(output(head, f"srun -N2 -w {fresh.hostname} hostname").split()) == 2


def blocks_of_ultraservers_stay(cluster: Cluster) -> None:
    """topology.conf(5), topology/block: the agent's blocks are in force when it writes slurm.conf anew, too."""
    head = cluster.controller
    cluster.agent.blocks = True
    cluster.agent.map(head, cluster.hosts)
    for _ in range(2):
        cluster.agent.announce(cluster.hosts, whole=True)
        until("Slurm plans by blocks", lambda: plans(head) == "topology/block")
        time.sleep(1.5)
        assert plans(head) == "topology/block"
    shown = output(head, "scontrol show topology")
    assert [word for word in shown.split() if word.startswith("BlockName=nn-")] == ["BlockName=nn-0", "BlockName=nn-1"]
    first, second, *_ = cluster.workers
    busy = submit(head, f"-w {first.hostname}", 300)
    until("a job in the first block", lambda: state(head, busy).startswith("RUNNING"))
    nodes = output(head, "srun --exclusive -N2 --segment=2 hostname").split()
    assert sorted(nodes) == sorted(host.hostname for host in cluster.workers[2:])
    assert second.hostname not in nodes
    output(head, f"scancel {busy}")
