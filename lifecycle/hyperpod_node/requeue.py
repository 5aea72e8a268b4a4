"""``hyperpod-requeue``, a service on the controller: notices a lost node in seconds, and puts its jobs back to work.

Slurm alone needs SlurmdTimeout to notice, and then holds a requeued job for the lifetime of a job credential, 120 s
(slurm.conf(5), AuthInfo, cred_expire). This service asks the nodes that run jobs whether they are there, sets a silent
one down, which makes Slurm requeue, and takes the hold off jobs that it saw running before.

A node is lost when its kernel answers neither an echo request nor a connection. A refused connection comes from a
living host whose slurmd restarts, and jobs survive that. Echo first: a connection that is closed at once leaves an
error in slurmd's log. When all of several nodes are silent at once the controller's own network is the likelier
cause, and nothing is done. Nodes that HyperPod's health agent has marked ("Action:...") are its own to replace; its
auto-resume finds them untouched.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from . import slurm_conf, slurm_configure
from .errors import StepError
from .host import Host
from .identity import read_instances
from .model import Group
from .settings import Settings

# Seconds between two looks at jobs and nodes; a node that did not answer is asked again sooner.
INTERVAL, SOONER = 0.5, 0.1
PROBE_TIMEOUT = 0.5
# A surviving node refuses a credential that is not younger than the moment in which it ended the job, both in whole
# seconds; a job that starts again too early is killed for it. So: the next second, and what two clocks may differ by.
NEXT_SECOND = 1.4
# Seconds of silence, and how many unanswered probes at least, after which a node is lost.
LOST_AFTER = 2.0
LOST_PROBES = 4
# The job's processes first, by the variable that all of them have: without their slurmstepd nobody else would end them,
# and asking it for them (scontrol listpids) waits as long as it does. Slurm does the rest, epilog included.
END_JOB = (
    "for file in $(grep -lzxs SLURM_JOB_ID={job} /proc/[0-9]*/environ); do pid=${{file#/proc/}}; "
    "kill -KILL ${{pid%/environ}}; done 2>/dev/null; pkill -KILL -f '^slurmstepd: .{job}[.]' || true"
)
SLURMD_PORT = 6818
REASON = "hyperpod-requeue"

# The addresses among some that answer.
Probe = Callable[[Sequence[str]], Set[str]]


@dataclass
class Watched:
    """What is known of a node that runs jobs."""

    silent_since: Optional[float] = None
    probes: int = 0


@dataclass
class Watch:
    """The service's memory: nodes that run jobs, and jobs that were seen running."""

    host: Host
    probe: Probe
    log: Callable[[str], None]
    nodes: Dict[str, Watched] = field(default_factory=dict)
    running: Set[str] = field(default_factory=set)
    requeued: Dict[str, float] = field(default_factory=dict)
    ending: Dict[str, List[threading.Thread]] = field(default_factory=dict)

    @property
    def suspicious(self) -> bool:
        """Somebody did not answer, or a job waits to be let go."""
        return bool(self.requeued) or any(node.silent_since is not None for node in self.nodes.values())

    def round(self) -> None:
        """One look at jobs and nodes."""
        busy = self._busy()
        lost = self._lost(busy)
        for name in lost:
            self._down(name)
        self._jobs()

    def _busy(self) -> Dict[str, str]:
        """Nodes that run jobs, with their addresses."""
        shown = self.host.run(
            "sinfo", "-h", "-N", "-t", "alloc,mix,comp", "-O", "NodeList:64,NodeAddr:64,StateLong:32,Reason:128",
            check=False, timeout=10,
        )  # fmt: skip
        found = {}
        for line in shown.out.splitlines():
            name, address, state, reason = (line[a:b].strip() for a, b in ((0, 64), (64, 128), (128, 160), (160, 288)))
            if name and not reason.startswith("Action:") and "down" not in state:
                found[name] = address
        return found

    def _lost(self, busy: Mapping[str, str]) -> List[str]:
        now = self.host.now()
        self.nodes = {name: self.nodes.get(name, Watched()) for name in busy}
        there = self.probe(list(busy.values()))
        for name, address in busy.items():
            node = self.nodes[name]
            if address in there:
                node.silent_since, node.probes = None, 0
            else:
                node.silent_since = now if node.silent_since is None else node.silent_since
                node.probes += 1
        silent = [name for name, node in self.nodes.items() if node.silent_since is not None]
        if len(silent) > 1 and len(silent) == len(self.nodes):
            return []
        # The probe that has just ended was a part of the silence.
        return [name for name in silent if self._gone(self.nodes[name], self.host.now())]

    @staticmethod
    def _gone(node: Watched, now: float) -> bool:
        return node.silent_since is not None and now - node.silent_since >= LOST_AFTER and node.probes >= LOST_PROBES

    def _down(self, name: str) -> None:
        shown = self.host.run("squeue", "-h", "-w", name, "-o", "%A|%N", check=False, timeout=10)
        seconds = self.host.now() - (self.nodes[name].silent_since or 0.0)
        why = f"{REASON}: no answer for {seconds:.0f} s"
        done = self.host.run("scontrol", "update", f"NodeName={name}", "State=DOWN", f"Reason={why}", check=False)
        self.log(f"{name} is lost: {why}" if done.code == 0 else f"{name} could not be set down: {done.reason}")
        self.nodes.pop(name)
        for line in shown.out.splitlines():
            job, _, names = line.strip().partition("|")
            for survivor in slurm_conf.expand(names):
                if survivor != name and job.isdigit():
                    thread = threading.Thread(target=self._end, args=(survivor, job), daemon=True)
                    self.ending.setdefault(job, []).append(thread)
                    thread.start()

    def _end(self, survivor: str, job: str) -> None:
        """End what is left of a job on a node that survived.

        Its tasks wait for peers that are gone, and where the job's srun ran on the lost node, slurmstepd tries for
        ten seconds and more to tell it how they ended. The job cannot start again before.
        """
        done = self.host.run(
            "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=2", survivor, END_JOB.format(job=job),
            check=False, timeout=15,
        )  # fmt: skip
        if done.code != 0:
            self.log(f"job {job} was not ended on {survivor}: {done.reason}")

    def _jobs(self) -> None:
        """Remember what runs; take Slurm's hold off what ran and waits for its begin time since."""
        shown = self.host.run("squeue", "-h", "-a", "-o", "%A|%T|%r", check=False, timeout=10)
        if shown.code != 0:
            return
        present = set()
        for line in shown.out.splitlines():
            job, state, reason = line.strip().split("|", 2)
            present.add(job)
            if state in ("RUNNING", "COMPLETING", "SUSPENDED"):
                self.running.add(job)
            elif state == "PENDING" and reason == "BeginTime" and job in self.running:
                self._release(job)
        self.running &= present
        self.requeued = {job: at for job, at in self.requeued.items() if job in present}

    def _release(self, job: str) -> None:
        """Take the hold off a job that is back in the queue, once the nodes that it ran on will have it again."""
        since = self.requeued.setdefault(job, self.host.wall())
        # Never while its old processes are being ended: the new ones would be taken for them.
        if self.host.wall() < int(since) + NEXT_SECOND or any(t.is_alive() for t in self.ending.get(job, [])):
            return
        done = self.host.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
        self.log(f"job {job} may start again" if done.code == 0 else f"job {job}: {done.reason}")
        if done.code == 0:
            self.running.discard(job)
            self.requeued.pop(job)
            self.ending.pop(job, None)


def probe(addresses: Sequence[str], port: int = SLURMD_PORT, timeout: float = PROBE_TIMEOUT) -> Set[str]:
    """The addresses whose kernel answers: an echo request, or else a connection to slurmd, accepted or refused."""
    there = echo(addresses, timeout / 2)
    return there | connect([address for address in addresses if address not in there], port, timeout / 2)


def echo(addresses: Sequence[str], timeout: float) -> Set[str]:
    """The addresses that answer an ICMP echo request. Empty where that is not allowed."""
    if not addresses:
        return set()
    request = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, 1)
    total = sum(struct.unpack("!4H", request))
    checksum = ~(total + (total >> 16)) & 0xFFFF
    request = request[:2] + struct.pack("!H", checksum) + request[4:]
    there: Set[str] = set()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
            for address in addresses:
                with contextlib.suppress(OSError):
                    sock.sendto(request, (address, 0))
            end = time.monotonic() + timeout
            while len(there) < len(set(addresses)) and time.monotonic() < end:
                sock.settimeout(max(0.001, end - time.monotonic()))
                packet, (source, _) = sock.recvfrom(256)
                header = (packet[0] & 15) * 4
                # Type 0 is an answer, and the kernel gives every raw socket all of them.
                if packet[header : header + 1] == b"\0" and packet[header + 4 : header + 8] == request[4:8]:
                    there.add(source)
    except OSError:  # the time is over, or no raw socket
        pass
    return there & set(addresses)


def connect(addresses: Sequence[str], port: int, timeout: float) -> Set[str]:
    """The addresses that accept or refuse a connection; a host that is gone does neither."""
    there: Set[str] = set()
    with selectors.DefaultSelector() as selector:
        for address in addresses:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setblocking(False)
            code = sock.connect_ex((address, port))
            if code == errno.EINPROGRESS:
                selector.register(sock, selectors.EVENT_WRITE, (sock, address))
                continue
            sock.close()
            if code in (0, errno.ECONNREFUSED):
                there.add(address)
        end = time.monotonic() + timeout
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(max(0.0, end - time.monotonic())):
                sock, address = key.data
                # "No route" comes from our own kernel when nobody is there.
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED):
                    there.add(address)
                selector.unregister(sock)
                sock.close()
        for key in list(selector.get_map().values()):
            key.data[0].close()
    return there


class Configuration:
    """Keeps our include in slurm.conf when HyperPod's agent has rewritten it."""

    def __init__(self, host: Host, log: Callable[[str], None]) -> None:
        self._host, self._log = host, log
        facts = json.loads(host.read(f"{host.settings.state_folder}/node.json") or "{}")
        self._groups = {record["name"]: Group(**record) for record in facts["groups"]}
        self._shared = str(facts["shared"])
        self._seen: Tuple[float, ...] = ()

    def round(self) -> None:
        """Configure again where slurm.conf, the topology or the workers' own notes are newer than the last look."""
        names = slurm_configure.sources(self._host, self._shared)
        seen = tuple(_mtime(self._host.path(name)) for name in names)
        if seen == self._seen:
            return
        try:
            instances = read_instances(self._host)
            if slurm_configure.configure(self._host, self._groups, instances, self._shared):
                slurm_configure.publish(self._host, self._shared)
                self._reread()
        except (StepError, OSError, ValueError) as error:
            self._log(f"configuration: {error}")
        self._seen = tuple(_mtime(self._host.path(name)) for name in names)

    def _reread(self) -> None:
        """Slurm reads its configuration again. Before 23.11 it dies of other node names, and has to be started."""
        done = self._host.run("scontrol", "reconfigure", check=False)
        if done.code == 0:
            self._log("slurm.conf changed, Slurm reads it again")
            return
        again = self._host.run("systemctl", "restart", "slurmctld", check=False, timeout=60)
        self._log(f"slurm.conf changed: {done.reason}; " + ("restarted" if again.code == 0 else again.reason))


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def main() -> None:
    """Run until stopped."""
    host = Host(Settings.from_environment())
    log = _log
    conf = slurm_conf.parse(host.read(f"{host.settings.slurm_etc}/slurm.conf") or "")
    port = int(conf.get("SlurmdPort", str(SLURMD_PORT)))
    watch, configuration = Watch(host, lambda addresses: probe(addresses, port), log), Configuration(host, log)
    log("watching")
    while True:
        began = host.now()
        try:
            watch.round()
            configuration.round()
        except StepError as error:
            log(str(error))
        time.sleep(max(0.05, (SOONER if watch.suspicious else INTERVAL) - (host.now() - began)))


def _log(line: str) -> None:
    print(f"hyperpod-requeue: {line}", flush=True)


if __name__ == "__main__":
    main()
