"""When hyperpod-requeue does not judge a node yet, has nothing to judge, or takes its judgement back."""

import threading
from collections.abc import Sequence

import pytest
from hyperpod_node.host.host import Result
from hyperpod_node.slurm import requeue

from tests.lifecycle.rig import FakeHost
from tests.lifecycle.slurm.test_requeue import Cluster, cluster

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


@pytest.mark.parametrize("state", ["down*", "down*+drain"])
def test_a_node_that_is_down_already_is_not_set_down_again(cluster: Cluster, state: str) -> None:
    cluster.nodes["n2"] = state
    cluster.gone.add("10.0.0.2")
    cluster.run(10)
    assert not cluster.downed()


@pytest.mark.parametrize("state", ["mixed+planned", "idle+completing", "allocated+drain", "allocated*"])
def test_a_node_with_something_of_a_job_is_watched_whatever_else_it_is(cluster: Cluster, state: str) -> None:
    cluster.nodes["n2"] = state
    cluster.gone.add("10.0.0.2")
    cluster.run(5)
    assert cluster.downed()


def rejoined(cluster: Cluster) -> list[str]:
    """The addresses that were told to come back, in order."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and thread.name.endswith("(_rejoin)"):
            thread.join(5)
    return [call[5] for call in cluster.host.calls if call[0] == "ssh" and call[6] == "rejoin"]


def set_down(cluster: Cluster, why: str = "hyperpod-requeue: no answer for 10 s") -> None:
    cluster.nodes["n2"], cluster.reasons["n2"] = "down*", why
    cluster.gone.add("10.0.0.2")


def test_a_node_that_was_only_cut_off_is_taken_back_once_it_has_answered_for_as_long(cluster: Cluster) -> None:
    cluster.watch = cluster.service(lost_after=10)
    set_down(cluster)
    cluster.run(30)
    assert rejoined(cluster) == []
    cluster.gone.clear()
    cluster.run(8)
    cluster.gone.add("10.0.0.2")
    cluster.run(1)
    cluster.gone.clear()
    cluster.run(9.4)
    assert rejoined(cluster) == []
    cluster.run(1)
    assert rejoined(cluster) == ["10.0.0.2"]
    assert cluster.lines[-1] == "n2 answers again: it is to end its old jobs and to register"
    cluster.nodes["n2"] = "idle"
    cluster.run(30)
    assert len(rejoined(cluster)) == 1


def test_returning_a_node_to_service_is_retried_after_a_failure(cluster: Cluster) -> None:
    def ssh(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        return Result(255, "", "Connection refused")

    cluster.host.commands["ssh"] = ssh
    set_down(cluster)
    cluster.gone.clear()
    cluster.run(5.4)
    assert rejoined(cluster) == ["10.0.0.2"] * 2
    assert cluster.lines[-1].startswith("10.0.0.2 was not told: rejoin: ")


@pytest.mark.parametrize("why", ["Not responding", "kept for Ada", "Action:Replace"])
def test_a_node_that_others_have_set_down_is_theirs(cluster: Cluster, why: str) -> None:
    set_down(cluster, why)
    cluster.gone.clear()
    cluster.run(60)
    assert rejoined(cluster) == []


@pytest.mark.parametrize(
    ("said", "release"), [("slurm 25.11.8\n", (25, 11)), ("slurm-wlm 24.11.5\n", (24, 11)), ("", ())]
)
def test_slurms_release_is_what_it_says(cluster: Cluster, said: str, release: tuple[int, ...]) -> None:
    cluster.host.commands["scontrol"] = lambda h, args, stdin: Result(0, said)
    assert requeue._version(cluster.host) == release


def test_outside_hyperpod_a_script_that_could_ask_for_auto_resume_means_nothing(cluster: Cluster) -> None:
    cluster.scripts["7"] = "if [[ -d /opt/sagemaker_cluster ]]; then resume=--auto-resume=1; fi\n"
    cluster.gone.add("10.0.0.2")
    cluster.run(5)
    assert cluster.downed()
