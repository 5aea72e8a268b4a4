"""More than one controller: which ones there are, in whose order, and which is in control.

They share the queue (slurm_queue.py), and one slurmctld at a time works on it. Slurm sees to that itself, without locks
on files: who is in control writes the time into the file ``heartbeat`` beside the queue, and a backup that gets no
answer takes over only when that is old, too ("trusting the filesystem instead of the network", its
slurmctld/backup.c). The first controller that slurm.conf names takes control back when it returns.

AWS documents several controllers for clusters that are configured by provisioning_parameters.json, and no parameter of
them for those configured by the API (Developer Guide, "Migrating to API-driven Slurm configuration"). So nothing is
taken for granted of what HyperPod's agent writes on each: every controller names all of them, in the same order.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, Sequence

from . import slurm_conf
from .host import Host
from .model import Group, Instance

# Seconds: a backup asks every third of it, and takes over after more than all of it; 120 by default (slurm.conf(5)).
# The heartbeat is written every quarter (its slurmctld/heartbeat.c).
TAKEOVER_SECONDS = 10
# Where slurm.conf names no folder for the queue: slurm.conf(5)'s default is /var/spool itself, not Slurm's alone.
STATE = "/var/spool/slurmctld"
# Seconds for which it is taken for granted who is in control.
LOOKS_AGAIN = 5.0
_LINE = re.compile(r"^[ \t]*SlurmctldHost[ \t]*=.*\n?", re.IGNORECASE | re.MULTILINE)
_ANSWERS = re.compile(r"^Slurmctld\(\w+\) at (\S+) is (UP|DOWN)", re.MULTILINE)


def ordered(instances: Sequence[Instance], groups: Mapping[str, Group]) -> List[Instance]:
    """The controllers by HyperPod's names, which a replacement keeps: the first is the one in control if it can be."""
    found = [i for i in instances if i.address and i.group in groups and groups[i.group].role == "controller"]
    return sorted(found, key=lambda one: [(len(part), part) for part in re.split(r"(\d+)", one.name)])


def with_all(text: str, conf: slurm_conf.SlurmConf, controllers: Sequence[Instance]) -> str:
    """slurm.conf with a line for each controller. HyperPod's names for hosts stay where it has written any."""
    names = {address: name for name, address in conf.controllers if address}
    lines = [f"SlurmctldHost={names.get(c.address, slurm_conf.host_name(c.address))}({c.address})" for c in controllers]
    first = _LINE.search(text)
    if first is None or not lines:
        return text
    rest = _LINE.sub("", text[first.end() :])
    return text[: first.start()] + "".join(f"{line}\n" for line in lines) + rest


def alone(text: str, own: str) -> str:
    """slurm.conf with this controller's line alone, for a slurmctld that is to wait for no other."""
    lines = _LINE.findall(text)
    ours = [line for line in lines if re.search(rf"=\s*{re.escape(own)}\b", line)]
    return _LINE.sub(lambda line: line.group(0) if line.group(0) in ours else "", text) if ours else text


def settings(controllers: Sequence[Instance]) -> Dict[str, str]:
    """What hyperpod.conf has besides, where the queue is shared."""
    several = {"SlurmctldTimeout": str(TAKEOVER_SECONDS)} if len(controllers) > 1 else {}
    return {"StateSaveLocation": STATE, **several}


def answering(shown: str) -> Dict[str, bool]:
    """Whether each controller answers, by its host's name and in slurm.conf's order, from ``scontrol ping``."""
    return {name.split(".")[0]: state == "UP" for name, state in _ANSWERS.findall(shown)}


def in_control(host: Host) -> bool:
    """Whether this is the controller whose slurmctld works on the queue: the first that answers."""
    known = answering(host.run("scontrol", "ping", check=False, timeout=10).out)
    return next((name for name, up in known.items() if up), "") == host.hostname()


def in_turn(host: Host, facts: Mapping[str, Any], look: Callable[[], None]) -> Callable[[], None]:
    """``look``; one that does nothing where there are controllers and another one is in control."""
    known, until = False, 0.0

    def looks() -> None:
        nonlocal known, until
        if host.now() >= until:
            known, until = in_control(host), host.now() + LOOKS_AGAIN
        if known:
            look()

    return looks if facts.get("shared_queue") else look
