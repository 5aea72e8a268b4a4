"""``hyperpod-requeue``, a service on the controller: notices a lost node within seconds and requeues its jobs.

Slurm alone takes SlurmdTimeout to notice, and then holds a requeued job for the lifetime of a job credential, 120 s
(slurm.conf(5), AuthInfo, cred_expire). This service probes the nodes that run jobs, sets a silent one down, which makes
Slurm requeue, and releases the hold on jobs that it saw running before.

A node is lost when its kernel has not answered for ``lost_after_seconds`` of node.json: 10 s on AWS, where a network
may be silent for seconds and a lost job is expensive; 2 s in the rehearsal, where a job runs again within 10 s of its
node's loss. It does nothing as long as the controller's own network may be the cause: when all of several nodes that
run jobs are silent at once, or no other node of the cluster answers.

A node that was only cut off answers again. Slurm asks a node that is down once in twenty pings, minutes later
(ping_nodes.c, MAX_REG_FREQUENCY), and a job that it then ends there may fail. So this service has such a node end its
remaining processes and register again, once it has answered for as long as its loss took.

Two things are left to HyperPod. It replaces nodes that its health agent has marked ("Action:..."). And a job with
``--auto-resume=1`` in its batch script, which is all that can be known of it from outside, is HyperPod's to resume:
this service does not set its nodes down. For its silent node Slurm's own bound holds, SlurmdTimeout. With Slurm 25.11
HyperPod need not resume it where the node was replaced, and it is requeued (SageMaker HyperPod AMI releases for Slurm,
known issue of May 27, 2026). From that release on, one that is back in the queue is like any other, and its hold is
taken off.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import threading
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ..facts import node_record
from ..facts.identity import read_instances
from ..host.errors import StepError
from ..host.host import Host
from ..host.settings import Settings
from . import conf as slurm_conf
from . import node_liveness
from .conf_watch import Configuration

# Seconds between two rounds; a node that did not answer is probed again sooner.
INTERVAL, SOONER = 0.5, 0.1
# The most of the time that goes into rounds while nothing is lost: one takes long where jobs or nodes are thousands.
SHARE = 0.25
# So long at most looks are sooner for a job on its way back: a process that cannot be ended may hold it for ever.
ON_ITS_WAY = 30.0
# A surviving node refuses a credential that is not younger than the order to end the job, both in whole seconds of
# slurmctld's clock (cred_revoked() of slurmd, create_kill_job_msg() of slurmctld); a job that starts again too early is
# killed for it. Slurm submits a job again when it goes back into the queue, and orders nothing after that.
NEXT_SECOND = datetime.timedelta(seconds=1)
# Seconds after which a name without an address is looked up again.
RESOLVE_AGAIN = 60.0
# The minimum number of unanswered probes before a node is lost, besides the seconds.
LOST_PROBES = 4
REASON = "hyperpod-requeue"
REJOIN = "rejoin"
# How squeue shows a time, and scontrol takes it (squeue(1), SLURM_TIME_FORMAT=standard).
TIME = "%Y-%m-%dT%H:%M:%S"
# HyperPod's own files, from which its samples conclude that srun has --auto-resume.
HYPERPOD = "/opt/sagemaker_cluster"
AUTO_RESUME = "--auto-resume"
REQUEUED_SINCE = (25, 11)
# A node as scontrol shows it. `sinfo -N` compares each line with all before it: of 4,000 nodes it takes 1.2 s of a
# processor, and scontrol 0.2 s.
NODE = re.compile(r"^NodeName=(\S+) .*? NodeAddr=(\S+) .*? State=(\S+)(?: .*? Reason=(.*))?", re.MULTILINE)
BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}
# scontrol's answer if it could not ask; for a job without a batch script it has another.
NOT_ASKED = re.compile(r"contact|connect|timed out|timeout|socket|communicat", re.IGNORECASE)
# State that must survive a restart of this service, but not a reboot.
MEMORY = "/run/hyperpod-requeue.json"

# The addresses among some that answer.
Probe = Callable[[Sequence[str]], Set[str]]


@dataclass
class Watched:
    """The state of a node that runs jobs. ``left``: HyperPod handles its loss."""

    silent_since: Optional[float] = None
    probes: int = 0
    left: bool = False


@dataclass
class Watch:
    """The service's state: nodes that run jobs, and jobs that were seen running.

    ``others``: addresses of the cluster's nodes, this one not among them. ``addresses``: NodeAddr of nodes that run
    jobs, whose names in Slurm need not be their hosts'. ``resolved``: IP addresses of those, or when to ask again.
    ``back``: since when nodes that were set down answer again. ``unfinished``: jobs and the survivors, by address, on
    which an earlier run of this service was ending them. ``requeued``: a job with auto-resume that is back in the queue
    is not HyperPod's to start.
    """

    host: Host
    probe: Probe
    others: Callable[[], Sequence[str]]
    lost_after: float
    log: Callable[[str], None]
    nodes: Dict[str, Watched] = field(default_factory=dict)
    addresses: Dict[str, str] = field(default_factory=dict)
    resolved: Dict[str, Tuple[str, float]] = field(default_factory=dict)
    running: Set[str] = field(default_factory=set)
    back: Dict[str, float] = field(default_factory=dict)
    resumes: Dict[str, bool] = field(default_factory=dict)
    requeued: bool = True
    ending: Dict[str, Dict[str, threading.Thread]] = field(default_factory=dict)
    unfinished: Dict[str, List[str]] = field(default_factory=dict)
    soon_until: float = 0.0

    @property
    def suspicious(self) -> bool:
        """Whether a node did not answer, or a job is returning to the queue."""
        silent = (node for node in self.nodes.values() if node.silent_since is not None)
        returning = bool(self.ending) and self.host.now() < self.soon_until
        return returning or any(not node.left for node in silent)

    def round(self) -> None:
        """One round over jobs and nodes. Raises StepError if Slurm does not answer; the state stays."""
        self._jobs()
        busy, down = self._nodes()
        for name in self._lost(busy):
            self._down(name)
        self._bring_back(down)
        self._remember()

    def _nodes(self) -> Tuple[Dict[str, str], Dict[str, str]]:
        """Return nodes that run jobs, and nodes that this service has set down, with their addresses."""
        shown = self.host.run("scontrol", "show", "node", "-o", timeout=10)
        busy, down, self.addresses = {}, {}, {}
        for name, address, words, reason in NODE.findall(shown.out):
            self.addresses[name] = address
            states = {word.rstrip("*~#!%$@^-") for word in words.split("+")}
            if "DOWN" in states:
                if reason.startswith(REASON):
                    down[name] = address
            elif states & BUSY and not reason.startswith("Action:"):
                busy[name] = address
        # A name that is known is not looked up again: its server may be lost with the network, and takes long to ask.
        known, self.resolved = self.resolved, {}
        for address in (*busy.values(), *down.values()):
            self.resolved[address] = known.get(address, ("", 0.0))
            if not self.resolved[address][0] and self.host.now() >= self.resolved[address][1]:
                self.resolved[address] = self._resolve(address, again=address in known)
        return self._known(busy), self._known(down)

    def _known(self, nodes: Mapping[str, str]) -> Dict[str, str]:
        return {name: self.resolved[address][0] for name, address in nodes.items() if self.resolved[address][0]}

    def _resolve(self, address: str, again: bool) -> Tuple[str, float]:
        addresses = self.host.resolve(address)
        if not addresses and not again:
            self.log(f"{address} has no address and is not watched: its loss is left to Slurm")
        return (addresses[0] if addresses else ""), self.host.now() + RESOLVE_AGAIN

    def _lost(self, busy: Mapping[str, str]) -> List[str]:
        now = self.host.now()
        self.nodes = {name: self.nodes.get(name, Watched()) for name in busy}
        there = self.probe(list(busy.values()))
        for name, address in busy.items():
            if address in there:
                self.nodes[name] = Watched()
                continue
            node = self.nodes[name]
            node.silent_since = now if node.silent_since is None else node.silent_since
            node.probes += 1
        silent = [name for name, node in self.nodes.items() if node.silent_since is not None]
        if len(silent) > 1 and len(silent) == len(self.nodes):
            return []
        # The probe that has just ended belongs to the silence.
        gone = [name for name in silent if self._gone(self.nodes[name], self.host.now())]
        return gone if gone and (there or self._others_answer(set(busy.values()))) else []

    def _gone(self, node: Watched, now: float) -> bool:
        if node.silent_since is None or node.left:
            return False
        return now - node.silent_since >= self.lost_after and node.probes >= LOST_PROBES

    def _others_answer(self, busy: Set[str]) -> bool:
        """Whether this node's own network works, judged by nodes that run no job."""
        return bool(self.probe([address for address in self.others() if address not in busy]))

    def _down(self, name: str) -> None:
        shown = self.host.run("squeue", "-h", "-w", name, "-o", "%A|%N", timeout=10)
        jobs = dict(line.strip().split("|", 1) for line in shown.out.splitlines() if "|" in line)
        resumed = [job for job in jobs if self._auto_resumed(job)]
        if resumed:
            self.nodes[name].left = True
            self.log(f"{name} does not answer; its job {resumed[0]} has {AUTO_RESUME}, so the node is left to HyperPod")
            return
        seconds = self.host.now() - (self.nodes[name].silent_since or 0.0)
        why = f"{REASON}: no answer for {seconds:.0f} s"
        done = self.host.run("scontrol", "update", f"NodeName={name}", "State=DOWN", f"Reason={why}", check=False)
        self.log(f"{name} is lost: {why}" if done.code == 0 else f"{name} could not be set down: {done.reason}")
        self.nodes.pop(name)
        for job, names in jobs.items():
            survivors = [survivor for survivor in slurm_conf.expand(names) if survivor != name]
            self._end_everywhere(job, [self.addresses.get(survivor, survivor) for survivor in survivors])

    def _bring_back(self, down: Mapping[str, str]) -> None:
        if self.suspicious:
            return
        there, now = self.probe(list(down.values())) if down else set(), self.host.now()
        self.back = {name: self.back.get(name, now) for name, address in down.items() if address in there}
        for name, since in self.back.items():
            if now - since >= self.lost_after:
                self.back[name] = now
                threading.Thread(target=self._rejoin, args=(name, down[name]), daemon=True).start()

    def _rejoin(self, name: str, address: str) -> None:
        self.log(f"{name} answers again: it is to end its old jobs and to register")
        self._send_order(address, REJOIN)

    def _auto_resumed(self, job: str) -> bool:
        """Whether HyperPod resumes a job, which Slurm records only in the batch script itself."""
        if job not in self.resumes:
            if not self.host.path(HYPERPOD).is_dir():
                return False
            script = self.host.run("scontrol", "write", "batch_script", job, "-", check=False, timeout=10)
            if script.code != 0 and NOT_ASKED.search(script.reason):
                # Do nothing to a job before it is known whether HyperPod resumes it.
                raise StepError(f"job {job}: its batch script cannot be read: {script.reason}")
            self.resumes[job] = script.code == 0 and AUTO_RESUME in script.out
        return self.resumes[job]

    def _may_release(self, job: str) -> bool:
        """Whether this service releases a job that is back in the queue, because HyperPod does not start it."""
        return self.requeued or not self._auto_resumed(job)

    def _end_everywhere(self, job: str, survivors: Sequence[str]) -> None:
        self.soon_until = self.host.now() + ON_ITS_WAY
        for survivor in survivors:
            thread = threading.Thread(target=self._end, args=(survivor, job), daemon=True)
            self.ending.setdefault(job, {})[survivor] = thread
            thread.start()

    def _end(self, survivor: str, job: str) -> None:
        """End what is left of a job on a node that survived.

        Its tasks wait for peers that are gone, and where the job's srun ran on the lost node, slurmstepd tries for
        ten seconds and more to tell it how they ended. The job cannot start again before.
        """
        self._send_order(survivor, job)

    def _send_order(self, address: str, word: str) -> None:
        # Root's key there is for two words alone: REJOIN, or a job's number (slurm/end-job.sh).
        try:
            self.host.run("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=2", address, word, timeout=15)
        except StepError as error:
            self.log(f"{address} was not told: {word}: {error}")

    def _is_being_ended(self, job: str) -> bool:
        return any(thread.is_alive() for thread in self.ending.get(job, {}).values())

    def _jobs(self) -> None:
        """Remember running jobs; release Slurm's hold on jobs that ran and wait for their begin time since."""
        shown = self.host.run("squeue", "-h", "-a", "-o", "%A|%T|%r|%V", timeout=10)
        present = set()
        for line in shown.out.splitlines():
            job, state, reason, submitted = line.strip().split("|", 3)
            present.add(job)
            if state in ("RUNNING", "COMPLETING", "SUSPENDED"):
                self.running.add(job)
                unfinished = self.unfinished.pop(job, [])
                # A job in the queue is shown as completing while anything of it is left elsewhere.
                if state == "COMPLETING":
                    self._end_everywhere(job, unfinished)
            elif state == "PENDING" and reason == "BeginTime" and job in self.running and self._may_release(job):
                self._end_everywhere(job, self.unfinished.pop(job, []))
                self._release(job, submitted)
            if state != "COMPLETING" and reason != "BeginTime" and not self._is_being_ended(job):
                self.ending.pop(job, None)
        self.running &= present
        for known in (self.resumes, self.ending, self.unfinished):
            for job in set(known) - present:
                known.pop(job)

    def _release(self, job: str, requeued: str) -> None:
        """Release the hold on a job that went back into the queue then, as soon as Slurm has nodes on which it ran."""
        # Never while its old processes are being ended: the new ones would be taken for them.
        if self._is_being_ended(job):
            return
        start = datetime.datetime.strptime(requeued, TIME) + NEXT_SECOND
        # Slurm treats a past time as now.
        done = self.host.run("scontrol", "update", f"JobId={job}", f"StartTime={start.strftime(TIME)}", check=False)
        self.log(f"job {job} may start again" if done.code == 0 else f"job {job}: {done.reason}")
        if done.code == 0:
            self.running.discard(job)
            self.ending.pop(job, None)

    def recall(self) -> None:
        """Load the state of an earlier run of this service."""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            known = json.loads(self.host.read(MEMORY) or "{}")
            self.running, self.unfinished = set(known["running"]), dict(known["ending"])

    def _remember(self) -> None:
        ending = {**self.unfinished, **{job: sorted(threads) for job, threads in self.ending.items()}}
        self.host.write(MEMORY, json.dumps({"running": sorted(self.running), "ending": ending}), mode=0o600)


def main() -> None:
    """Run until stopped."""
    host = Host(Settings.from_environment())
    conf = slurm_conf.parse(host.read(f"{host.settings.slurm_etc}/slurm.conf") or "")
    port = conf.port("SlurmdPort", node_liveness.SLURMD_PORT)
    record = node_record.read(host)

    def others() -> List[str]:
        return [one.address for one in read_instances(host) if one.address not in ("", record.instance.address)]

    watch = Watch(
        host, lambda found: node_liveness.probe(found, port), others, record.parameters.lost_after_seconds, _log
    )
    watch.requeued = _version(host) >= REQUEUED_SINCE
    watch.recall()
    # Apart: it looks at the shared file system, where a look may take minutes.
    threading.Thread(
        target=forever, args=(Configuration(host, _log).round, lambda took: INTERVAL, _log), daemon=True
    ).start()
    _log(f"watching; a node is lost after {watch.lost_after:g} s without an answer")
    forever(watch.round, lambda took: SOONER if watch.suspicious else max(INTERVAL, took / SHARE), _log)


def _version(host: Host) -> Tuple[int, ...]:
    """Return Slurm's release, (25, 11); an empty one if it does not answer."""
    shown = re.search(r"slurm\S* (\d+)\.(\d+)", host.run("scontrol", "--version", check=False, timeout=10).out)
    return tuple(int(part) for part in shown.groups()) if shown else ()


def forever(look: Callable[[], None], interval: Callable[[float], float], log: Callable[[str], None]) -> None:
    """Repeat the rounds; ``interval``: seconds from one to the next, by those that it took. Report each error once."""
    said = ""
    while True:
        began, trouble = time.monotonic(), ""
        try:
            look()
        except StepError as error:
            trouble = str(error)
        except Exception as error:
            # An error of one look may not recur in the next.
            trouble = f"{type(error).__name__}: {error}"
        if trouble and trouble != said:
            log(trouble)
        said = trouble
        took = time.monotonic() - began
        time.sleep(max(0.05, interval(took) - took))


def _log(line: str) -> None:
    print(f"hyperpod-requeue: {line}", flush=True)


if __name__ == "__main__":
    main()
