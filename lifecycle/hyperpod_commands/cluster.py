"""The cluster as the commands see it: this node's record, an allocation, and the workers' reports."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence

from hyperpod_node.facts import node_record
from hyperpod_node.facts.model import Group, NodeRecord
from hyperpod_node.host.errors import StepError

BIN = "/opt/hyperpod/bin"
LIB = "/opt/hyperpod/lib"
STATE = "/etc/hyperpod"
PERSON = "ubuntu"
# The user of Session Manager if HyperPod does not log in root. Other nodes and Slurm's accounting do not know this
# user, who may use sudo without a password (Systems Manager User Guide, "Turn off or turn on ssm-user account
# administrative permissions").
SESSION_USER = "ssm-user"
TRANSPORTS = ("tcp", "efa-sendrecv", "efa-rdma")  # safest first


class Trouble(Exception):
    """The command cannot do what was requested; the text says why and where to look."""


@dataclass(frozen=True)
class Workers:
    """The workers of an allocation, in Slurm's order, and their common properties."""

    facts: Sequence[Mapping[str, Any]]

    @property
    def names(self) -> List[str]:
        """The host names."""
        return [str(fact["hostname"]) for fact in self.facts]

    @property
    def first(self) -> Mapping[str, Any]:
        """The node on which rank 0 runs."""
        return self.facts[0]

    @property
    def transport(self) -> str:
        """The safest of their transports: if one node has no EFA, the others cannot use theirs."""
        return min((str(fact["transport"]) for fact in self.facts), key=TRANSPORTS.index)

    @property
    def environment(self) -> Dict[str, str]:
        """The task variables of a node with that transport."""
        safest = next(fact for fact in self.facts if fact["transport"] == self.transport)
        return dict(safest["environment"])

    def everywhere(self, key: str) -> str:
        """Return a path that is the same on all nodes; empty if it differs."""
        values = {str(fact[key]) for fact in self.facts}
        return values.pop() if len(values) == 1 else ""

    def complaints(self) -> List[str]:
        """Return differences between the nodes that users should know."""
        found = []
        if len({fact["transport"] for fact in self.facts}) > 1:
            each = ", ".join(f"{fact['hostname']} {fact['transport']}" for fact in self.facts)
            found.append(f"the nodes' transports differ ({each}): all use {self.transport}")
        for fact in self.facts:
            wanted, there = int(fact["group"]["accelerators"]), int(fact["devices"])
            if there < wanted:
                found.append(f"{fact['hostname']} has {there} of {wanted} devices")
        return found


def record(path: str = f"{STATE}/{node_record.NAME}") -> NodeRecord:
    """Return this node's own record, written when it booted."""
    try:
        return node_record.parse(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, ValueError, StepError) as error:
        why = str(error) if isinstance(error, StepError) else f"{path}: {error}"
        raise Trouble(f"{why}; did on_create.sh succeed here? See /var/log/hyperpod/summary.json") from None


def worker_group(own: NodeRecord, partition: Optional[str]) -> Group:
    """Return the first worker group with accelerators, or the first without any; of a partition, if one is given.

    Its partition is the group's own if it shares the other one, so that no test spans groups.
    """
    every = [group for group in own.parameters.instance_groups if group.role == "worker"]
    workers = [group for group in every if partition in (None, group.name, group.partition)]
    if not workers:
        raise Trouble(f"no worker group has the partition {partition}" if partition else "the cluster has no workers")
    found = next((group for group in workers if group.accelerator), workers[0])
    shared = sum(group.partition == found.partition for group in every) > 1
    return replace(found, partition=found.name) if shared else found


def run(command: Sequence[str], timeout: float = 120, stdin: str = "") -> str:
    """Return a command's output. Raises Trouble with the last line of its error."""
    try:
        done = subprocess.run(
            list(command),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError:
        raise Trouble(f"command not found: {command[0]}") from None
    except subprocess.TimeoutExpired:
        raise Trouble(f"`{' '.join(command[:4])}` did not end within {timeout:.0f} s") from None
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        raise Trouble(f"`{' '.join(command[:4])}` failed: {words[-1]}")
    return done.stdout


def ask_workers(nodes: int) -> Workers:
    """Return every node's facts, as the node reports them; inside an allocation."""
    command = ["srun", "--mpi=none", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--gres=none"]
    out = run([*command, f"{BIN}/hyperpod-node-facts"])
    answers = {}
    for line in out.splitlines():
        if line.startswith("{"):
            fact = json.loads(line)
            if "error" in fact:
                raise Trouble(f"{fact['hostname']}: {fact['error']}")
            answers[fact["hostname"]] = fact
    if len(answers) != nodes:
        raise Trouble(f"{len(answers)} of {nodes} workers answered: {', '.join(answers) or 'none'}")
    order = run(["scontrol", "show", "hostnames"]).split()
    return Workers([answers[name] for name in order if name in answers] or list(answers.values()))


def as_person(command: str) -> None:
    """Continue as ubuntu if the caller is root: MPI starts its processes over ssh, and root has no key for that."""
    as_ubuntu_in_session(command)
    if os.geteuid():
        return
    try:
        home = pwd.getpwnam(PERSON).pw_dir
        os.environ.update(HOME=home, USER=PERSON, LOGNAME=PERSON)
        os.chdir(home)
        os.execvp("runuser", ["runuser", "-u", PERSON, "--", f"{BIN}/{command}", *sys.argv[1:]])
    except (KeyError, OSError) as error:
        raise Trouble(f"cannot continue as {PERSON} ({error}); run it as a user with a home folder here") from None


def as_ubuntu_in_session(command: str) -> None:
    """Continue as ubuntu if the caller is Session Manager's own user, who exists only on this node: before running
    jobs, AWS says, switch to ubuntu (SageMaker Developer Guide, "Accessing your SageMaker HyperPod cluster nodes").
    """
    try:
        if pwd.getpwuid(os.geteuid()).pw_name != SESSION_USER:
            return
    except KeyError:
        return
    at_home = ["sh", "-c", 'cd && exec "$@"', "sh", f"{BIN}/{command}", *sys.argv[1:]]
    try:
        os.execvp("sudo", ["sudo", "-n", "-H", "-u", PERSON, "--", *at_home])
    except OSError as error:
        raise Trouble(f"cannot continue as {PERSON} ({error}); run it as a user with a home folder here") from None


def allocate(nodes: int, per_node: int, gres: str, partition: Optional[str], command: Sequence[str]) -> NoReturn:
    """Replace this process with salloc, which runs the command in an allocation of whole nodes."""
    arguments = ["salloc", "--quiet", f"--nodes={nodes}", f"--ntasks-per-node={per_node}", "--exclusive"]
    if gres:
        arguments.append(f"--gres={gres}:{per_node}")
    if partition:
        arguments.append(f"--partition={partition}")
    where = f" of partition {partition}" if partition else ""
    say(f"waiting for {nodes} idle nodes{where}; `squeue` shows who has them, Ctrl-C cancels")
    try:
        os.execvp("salloc", [*arguments, *command])
    except FileNotFoundError:
        raise Trouble("command not found: salloc; run this on the controller or a login node") from None


def say(line: str = "") -> None:
    """Print a line for people. With --json it goes to standard error, and only JSON to standard output."""
    print(line, file=sys.stderr if "--json" in sys.argv else sys.stdout, flush=True)
