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
