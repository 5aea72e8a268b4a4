"""The service that notices a lost node and puts its jobs back to work."""

# ruff: noqa: ARG002 (fakes have the signatures of what they stand for)
import datetime
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperpod_node.facts import node_record
from hyperpod_node.host.errors import StepError
from hyperpod_node.host.host import Result
from hyperpod_node.network import environment
from hyperpod_node.slurm import requeue

from tests.lifecycle.rig import FakeHost, World


class Cluster:
    """Slurm's answers, and which addresses answer."""

    def __init__(self, tmp_path: Path) -> None:
        self.host = World(tmp_path).node("controller")
        self.nodes = {"n1": "allocated", "n2": "allocated", "n3": "allocated"}
        self.reasons: dict[str, str] = {}
        self.jobs = {"7": ("RUNNING", "None")}
        self.begins: dict[str, str] = {}
        # Where they are others than by the nodes' numbers.
        self.addresses: dict[str, str] = {}
        # Whether nobody may change anything.
        self.denied = False
        self.requeued = self.time()
        self.gone: set[str] = set()
        self.threads: set[threading.Thread] = set()
        self.lines: list[str] = []
        self.scripts: dict[str, str] = {}
        # A login node, and workers without a job.
        self.others = ["10.0.0.8", "10.0.0.9"]
        self.host.commands.update(squeue=self._squeue, scontrol=self._scontrol)
        self.watch = self.service(lost_after=2)

    def __repr__(self) -> str:
        """What a failed assertion shows: which nodes are up, which are silent, and what the service said last."""
        return f"(up: {[*self.nodes]}, silent: {self.gone}, jobs: {self.jobs}, said: {self.lines[-2:]})"

    def service(self, lost_after: float) -> requeue.Watch:
        """The service, started now."""
        return requeue.Watch(self.host, self._probe, lambda: self.others, lost_after, self.lines.append)

    def _probe(self, addresses: Sequence[str]) -> set[str]:
        return {address for address in addresses if address not in self.gone}

    def _shown(self) -> str:
        """The nodes as Slurm 24.11 shows them, shortened."""
        rows = (
            f"NodeName={name} CPUTot=64 NodeAddr={self.addresses.get(name, f'10.0.0.{name[1:]}')} NodeHostName={name} "
            f"OS=Linux 6.8 State={state.upper()} ThreadsPerCore=1 Reason={self.reasons.get(name, 'none')} [root@1]"
            for name, state in self.nodes.items()
        )
        return "\n".join(rows) + "\n"

    def _squeue(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if "-w" in args:
            return Result(0, "7|n[1-3]\n")
        now = self.time()
        for job, begin in list(self.begins.items()):
            if begin <= now:
                self.jobs[job] = ("RUNNING", "None")
                del self.begins[job]
        rows = (f"{job}|{state}|{reason}|{self.requeued}\n" for job, (state, reason) in self.jobs.items())
        return Result(0, "".join(rows))

    def time(self) -> str:
        """The controller's clock, as Slurm shows it."""
        return datetime.datetime.fromtimestamp(self.host.wall()).strftime("%Y-%m-%dT%H:%M:%S")

    def requeue(self) -> None:
        """All jobs go back into the queue, and wait for what Slurm holds them back."""
        self.requeued = self.time()
        self.jobs = dict.fromkeys(self.jobs, ("PENDING", "BeginTime"))

    def _scontrol(self, host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if "show" in args:
            return Result(0, self._shown())
        if self.denied:
            return Result(1, "", "slurm_update error: Access denied")
        if "State=DOWN" in args:
            self.nodes.pop(args[2].removeprefix("NodeName="))
            self.requeue()
        if "batch_script" in args:
            script = self.scripts.get(args[3])
            return Result(0, script) if script else Result(1, "", "Invalid job id specified")
        if args[-1].startswith("StartTime="):
            self.begins[args[2].removeprefix("JobId=")] = args[-1].removeprefix("StartTime=")
        return Result(0)

    def run(self, seconds: float) -> None:
        end = self.host.clock + seconds
        while self.host.clock < end:
            self.watch.round()
            # The clock is made up, and threads are not: those that nothing holds end before it goes on.
            begun = {thread for ending in self.watch.ending.values() for thread in ending.values()}
            for thread in begun - self.threads:
                thread.join(0.05)
            self.threads |= begun
            self.host.clock += 0.3 if self.watch.suspicious else requeue.INTERVAL

    def downed(self) -> bool:
        return any("State=DOWN" in call for call in self.host.calls)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    found = Cluster(tmp_path)
    found.run(2)
    return found


def test_a_lost_node_is_set_down_and_its_job_started_again_within_five_seconds(cluster: Cluster) -> None:
    cluster.gone.add("10.0.0.2")
    began = cluster.host.clock
    while cluster.jobs["7"][0] != "RUNNING" or not cluster.downed():
        cluster.run(0.1)
        assert cluster.host.clock - began < 5
    assert "n2" not in cluster.nodes
    assert cluster.lines[0].startswith("n2 is lost: hyperpod-requeue: no answer for ")
    assert cluster.lines[-1] == "job 7 may start again"


def test_what_is_left_of_the_job_on_the_survivors_is_ended(cluster: Cluster) -> None:
    cluster.gone.add("10.0.0.2")
    while not cluster.downed():
        cluster.run(0.1)
    cluster.run(1)
    told = {call[5]: call[6] for call in cluster.host.calls if call[0] == "ssh"}
    # By address: a node's name in Slurm is not always a host's.
    assert told == {"10.0.0.1": "7", "10.0.0.3": "7"}


def hold_ssh(cluster: Cluster) -> threading.Event:
    """Commands on survivors do not end before the event."""
    event = threading.Event()

    def ssh(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        event.wait(10)
        return Result(0)

    cluster.host.commands["ssh"] = ssh
    return event


def test_a_job_is_not_started_while_its_old_processes_are_being_ended(cluster: Cluster) -> None:
    ended = hold_ssh(cluster)
    cluster.gone.add("10.0.0.2")
    cluster.run(20)
    assert cluster.jobs["7"] == ("PENDING", "BeginTime")
    ended.set()
    for thread in cluster.watch.ending["7"].values():
        thread.join()
    cluster.run(1)
    assert cluster.jobs["7"] == ("RUNNING", "None")


def test_a_job_starts_in_the_second_after_the_one_in_which_it_was_ended_by_slurms_own_clock(cluster: Cluster) -> None:
    cluster.host.clock = 1000.6
    cluster.requeue()
    cluster.run(0.1)
    assert cluster.requeued[-2:] == "00"
    assert cluster.begins == {"7": cluster.requeued[:-2] + "01"}
    cluster.run(1)
    assert cluster.jobs["7"] == ("RUNNING", "None")


def test_a_slurmctld_that_was_busy_when_a_job_went_back_costs_it_no_further_second(cluster: Cluster) -> None:
    cluster.requeue()
    cluster.host.clock += 5
    cluster.run(0.1)
    assert cluster.begins["7"] < cluster.time()


def test_looks_are_soon_while_a_job_is_on_its_way_back_and_no_longer(cluster: Cluster) -> None:
    cluster.gone.add("10.0.0.2")
    while not cluster.downed():
        cluster.run(0.1)
    cluster.jobs["7"] = ("COMPLETING", "None")
    cluster.watch.round()
    assert cluster.watch.suspicious
    # A process that nobody can end.
    cluster.host.clock += 31
    assert not cluster.watch.suspicious
    cluster.host.clock -= 31
    # Its user has put a hold of their own on it.
    cluster.jobs["7"] = ("PENDING", "JobHeldUser")
    for thread in cluster.watch.ending["7"].values():
        thread.join()
    cluster.watch.round()
    assert not cluster.watch.suspicious


def test_a_short_silence_is_no_loss(cluster: Cluster) -> None:
    cluster.gone.add("10.0.0.2")
    cluster.run(1.2)
    cluster.gone.clear()
    cluster.run(5)
    assert not cluster.downed()


def test_when_all_nodes_are_silent_the_controllers_own_network_is_suspected(cluster: Cluster) -> None:
    cluster.gone |= {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    cluster.run(30)
    assert not cluster.downed()


def test_the_only_busy_node_can_be_lost(cluster: Cluster) -> None:
    cluster.nodes = {"n2": "allocated"}
    cluster.gone.add("10.0.0.2")
    cluster.run(6)
    assert cluster.downed()


def test_a_silence_that_reaches_the_idle_nodes_too_is_the_controllers_own(cluster: Cluster) -> None:
    cluster.nodes = {"n2": "allocated"}
    cluster.gone |= {"10.0.0.2", *cluster.others}
    cluster.run(30)
    assert not cluster.downed()
    cluster.gone = {"10.0.0.2"}
    cluster.run(1)
    assert cluster.downed()


def test_the_seconds_are_the_clusters_own(cluster: Cluster) -> None:
    cluster.watch = cluster.service(lost_after=10)
    cluster.gone.add("10.0.0.2")
    cluster.run(9)
    assert not cluster.downed()
    cluster.run(2)
    assert cluster.downed()


def test_the_seconds_are_10_or_the_stacks_or_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(**settings: int) -> float:
        host = World(tmp_path, settings=settings).node("controller")
        environment.run(host.node())
        return node_record.read(host).parameters.lost_after_seconds

    assert recorded() == 10
    assert recorded(lostNodeSeconds=30) == 30
    monkeypatch.setenv("HYPERPOD_LOST_AFTER", "2")
    assert recorded(lostNodeSeconds=30) == 2


def test_a_node_whose_name_does_not_resolve_is_left_to_slurm_and_the_others_are_still_checked(cluster: Cluster) -> None:
    cluster.nodes["n4"], cluster.addresses["n4"] = "allocated", "nowhere!"
    cluster.gone.add("10.0.0.2")
    cluster.run(5)
    assert "n2" not in cluster.nodes
    assert cluster.lines.count("nowhere! has no address and is not watched: its loss is left to Slurm") == 1
    # Its name has an address by now.
    cluster.host.world.names["nowhere!"] = ["10.0.0.4"]
    cluster.gone.add("10.0.0.4")
    cluster.run(70)
    assert "n4" not in cluster.nodes
    assert len([line for line in cluster.lines if line.startswith("nowhere!")]) == 1


def test_a_short_outage_of_slurmctld_does_not_restart_the_count(cluster: Cluster) -> None:
    scontrol = cluster.host.commands["scontrol"]
    cluster.watch = cluster.service(lost_after=10)
    cluster.gone.add("10.0.0.2")
    cluster.run(6)
    cluster.host.commands["scontrol"] = lambda h, args, stdin: Result(1, "", "Unable to contact slurm controller")
    with pytest.raises(StepError, match="Unable to contact slurm controller"):
        cluster.run(1)
    cluster.host.clock += 3
    cluster.host.commands["scontrol"] = scontrol
    cluster.run(2)
    assert cluster.downed()


def test_a_job_that_hyperpod_resumes_keeps_its_silent_node_and_its_hold(cluster: Cluster) -> None:
    cluster.host.path(requeue.HYPERPOD).mkdir(parents=True)
    cluster.scripts["7"] = "#!/bin/bash\nsrun --auto-resume=1 train\n"
    cluster.gone.add("10.0.0.2")
    cluster.run(60)
    assert not cluster.downed()
    said = "n2 does not answer; its job 7 has --auto-resume, so the node is left to HyperPod"
    assert cluster.lines == [said]
    cluster.jobs["7"] = ("PENDING", "BeginTime")
    cluster.watch.requeued = False
    cluster.run(30)
    assert cluster.jobs["7"] == ("PENDING", "BeginTime")
    cluster.watch.requeued = True
    cluster.run(30)
    assert cluster.jobs["7"] != ("PENDING", "BeginTime")


def test_a_job_whose_script_cannot_be_read_is_left_alone_until_it_can_be_read(cluster: Cluster) -> None:
    cluster.host.path(requeue.HYPERPOD).mkdir(parents=True)
    scontrol = cluster.host.commands["scontrol"]

    def silent(host: FakeHost, args: Sequence[str], stdin: str | None) -> Result:
        if "batch_script" in args:
            return Result(1, "", "job script retrieval failed: Unable to contact slurm controller (connect failure)")
        return scontrol(host, args, stdin)

    cluster.host.commands["scontrol"] = silent
    cluster.gone.add("10.0.0.2")
    with pytest.raises(StepError, match=r"job 7: its batch script cannot be read: .*Unable to contact"):
        cluster.run(5)
    assert not cluster.downed()
    cluster.host.commands["scontrol"] = scontrol
    cluster.scripts["7"] = "#!/bin/bash\nsrun --auto-resume=1 train\n"
    cluster.run(5)
    assert not cluster.downed()


def test_a_restarted_service_knows_what_ran_and_ends_again_what_it_was_ending(cluster: Cluster) -> None:
    ssh = cluster.host.commands["ssh"]
    stuck = hold_ssh(cluster)
    cluster.gone.add("10.0.0.2")
    cluster.run(4)
    assert cluster.jobs["7"] == ("PENDING", "BeginTime")
    cluster.host.commands["ssh"] = ssh
    cluster.host.calls.clear()
    cluster.watch = cluster.service(lost_after=2)
    cluster.watch.recall()
    cluster.run(3)
    stuck.set()
    assert {call[5] for call in cluster.host.calls if call[0] == "ssh"} == {"10.0.0.1", "10.0.0.3"}
    assert cluster.jobs["7"] == ("RUNNING", "None")


def test_a_job_that_slurm_shows_as_completing_meanwhile_is_ended_again_too(cluster: Cluster) -> None:
    cluster.host.write(requeue.MEMORY, json.dumps({"running": ["7"], "ending": {"7": ["10.0.0.1"]}}))
    cluster.watch = cluster.service(lost_after=2)
    cluster.watch.recall()
    cluster.jobs["7"] = ("COMPLETING", "None")
    cluster.watch.round()
    cluster.requeue()
    cluster.run(3)
    (ended,) = (call for call in cluster.host.calls if call[0] == "ssh")
    assert (ended[5], ended[-1].split()[-1]) == ("10.0.0.1", "7"), ended
    assert cluster.jobs["7"] == ("RUNNING", "None")


def test_a_job_that_runs_again_is_not_ended_by_a_restarted_service(cluster: Cluster) -> None:
    memory = {"running": ["7"], "ending": {"7": ["10.0.0.1"]}}
    cluster.host.write(requeue.MEMORY, json.dumps(memory))
    cluster.watch = cluster.service(lost_after=2)
    cluster.watch.recall()
    cluster.run(2)
    cluster.requeue()
    cluster.run(3)
    assert not cluster.host.ran("ssh")


def test_a_memory_that_cannot_be_read_is_none(cluster: Cluster) -> None:
    known = set(cluster.watch.running)
    for text in ('{"running"', "[]", "{}"):
        cluster.host.write(requeue.MEMORY, text)
        cluster.watch.recall()
    assert (cluster.watch.running, cluster.watch.unfinished) == (known, {})


def test_what_one_look_meets_does_not_end_the_service_and_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(BaseException):
        pass

    lines: list[str] = []
    troubles = [OSError("no such device"), OSError("no such device"), StepError("late"), None, StepError("late")]

    def look() -> None:
        if not troubles:
            raise Enough
        trouble = troubles.pop(0)
        if trouble:
            raise trouble

    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    with pytest.raises(Enough):
        requeue.forever(look, lambda took: 0.0, lines.append)
    assert slept == [0.05] * 5
    assert lines == ["OSError: no such device", "late", "late"]


def test_a_node_that_hyperpod_is_about_to_replace_is_left_to_it(cluster: Cluster) -> None:
    cluster.reasons["n2"] = "Action:Replace"
    cluster.gone.add("10.0.0.2")
    cluster.run(30)
    assert not cluster.downed()


def test_a_job_that_waits_for_a_time_its_user_gave_is_not_started(cluster: Cluster) -> None:
    cluster.jobs["8"] = ("PENDING", "BeginTime")
    cluster.run(30)
    assert cluster.jobs["8"] == ("PENDING", "BeginTime")


def test_a_node_that_cannot_be_set_down_is_reported_and_the_service_continues(cluster: Cluster) -> None:
    cluster.denied = True
    cluster.gone.add("10.0.0.2")
    cluster.run(6)
    assert "n2 could not be set down: slurm_update error: Access denied" in cluster.lines


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
