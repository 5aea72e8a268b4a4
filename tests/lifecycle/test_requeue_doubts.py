"""When hyperpod-requeue does not judge a node yet, or has nothing to judge."""

from __future__ import annotations

from hyperpod_node import requeue

from tests.lifecycle.test_requeue import Cluster, cluster

__all__ = ["cluster"]


def test_a_controller_that_stood_still_itself_asks_again_before_it_judges(cluster: Cluster) -> None:
    cluster.gone.add("10.0.0.2")
    for _ in range(requeue.LOST_PROBES - 1):
        cluster.watch.round()
        cluster.host.clock += 60
    assert not cluster.downed()
    cluster.watch.round()
    assert cluster.downed()
    assert requeue.LOST_PROBES >= 3, "one packet may be lost, and its repetition"


def test_a_node_that_is_down_already_is_not_set_down_again(cluster: Cluster) -> None:
    cluster.nodes["n2"] = "down*"
    cluster.gone.add("10.0.0.2")
    cluster.run(10)
    assert not cluster.downed()


def test_jobs_of_hidden_partitions_and_nodes_on_which_one_just_ends_are_watched_too(cluster: Cluster) -> None:
    (sinfo,) = {tuple(call) for call in cluster.host.calls if call[0] == "sinfo"}
    assert {"alloc", "mix", "comp"} <= set(sinfo[sinfo.index("-t") + 1].split(","))
    assert all("-a" in call for call in cluster.host.calls if call[0] == "squeue" and "-w" not in call)
