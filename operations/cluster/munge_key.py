"""``rotate-munge``: another MUNGE key on all nodes of a Slurm cluster, while its jobs run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from stack.failures import Failure, bad_input, described

from ..target import Target
from . import nodes as cluster_nodes
from . import sessions
from .node import Node

COMMAND = "/opt/hyperpod/bin/hyperpod-munge-key"
# What a node may take to answer, and the controller to stop slurmctld, wait for all nodes and start it, seconds.
_PREPARE_SECONDS, _SWITCH_SECONDS = 120.0, 660.0
# In a session of its own, so that it goes on to its end where ours is cut off.
_APART = "setsid --fork --wait"

_MISSING = ("command not found", "No such file or directory")


@dataclass(frozen=True, kw_only=True)
class Rotated:
    """Who has the new key. ``digest``: the beginning of its SHA-256. ``late``: nodes that still have the old one;
    ``silent``: those that have the new one, and do not answer slurmctld; ``later``: those that take it when they boot.
    """

    digest: str
    nodes: tuple[str, ...]
    late: tuple[str, ...]
    silent: tuple[str, ...]
    later: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether every node that was asked uses it."""
        return not (self.late or self.silent)


def chosen(target: Target, leave_out: Sequence[str]) -> tuple[list[Node], list[Node]]:
    """The nodes that change now, and those that do so when they boot. Raises Failure for one that does not exist."""
    if target.on_eks:
        raise bad_input(f"{target.stack} has no Slurm", "Kubernetes rotates its own keys")
    if target.config.settings.slurm.by_image:
        raise bad_input(
            f"{target.stack} has the key of HyperPod's image, which HyperPod itself hands out", "slurm.setup"
        )
    found = cluster_nodes.list_nodes(target)
    without = [cluster_nodes.find(found, name).instance_id for name in leave_out]
    now = [node for node in found if node.status == "Running" and node.instance_id not in without]
    cluster_nodes.controller(now)
    return now, [node for node in found if node not in now]


def rotate(target: Target, now: Sequence[Node], later: Sequence[Node], say: Callable[[str], None]) -> Rotated:
    """Give these nodes another key. Raises Failure, with nothing changed, where one of them cannot be prepared."""
    head = next(node for node in now if node.role == "controller")
    say("Making the key ...")
    wanted = str(_asked(target, head, "prepare")["digest"])
    say(f"Preparing {len(now)} nodes ...")
    with ThreadPoolExecutor(sessions.AT_ONCE) as pool:
        answers = list(pool.map(lambda node: _prepared(target, node, wanted), now))
    refused = {node.name: said for node, said in zip(now, answers, strict=True) if isinstance(said, str)}
    if refused:
        raise Failure(
            "no key was changed: " + "; ".join(f"{name}: {why}" for name, why in refused.items()),
            "repair them first, or "
            + " ".join(f"--leave-out {name}" for name in refused)
            + ": they take the key when they reboot",
        )
    say(f"Changing the key on {len(now)} nodes ...")
    done = _asked(target, head, f"switch {wanted}", _APART, _SWITCH_SECONDS)
    names = {node.hostname: node.name for node in now}
    return Rotated(
        digest=wanted[:12],
        nodes=tuple(node.name for node in now),
        late=tuple(names.get(host, host) for host in done["late"]),
        silent=tuple(names.get(host, host) for host in done["silent"]),
        later=tuple(node.name for node in later),
    )


def _prepared(target: Target, node: Node, wanted: str) -> dict[str, Any] | str:
    """What the node said, or why it cannot be prepared."""
    try:
        return _asked(target, node, f"wait {shlex.quote(wanted)}")
    except (Failure, ClientError, BotoCoreError) as error:
        return described(error, target.stack).message


def _asked(
    target: Target, node: Node, words: str, before: str = "", timeout: float = _PREPARE_SECONDS
) -> dict[str, Any]:
    ran = sessions.run_remote(target, node, " ".join(filter(None, ["sudo -n", before, COMMAND, words])), timeout)
    last = (ran.output.strip().splitlines() or ["no output"])[-1]
    if ran.code and any(f"{COMMAND}: {why}" in ran.output for why in _MISSING):
        why = f"{node.name} booted with scripts that cannot change the key"
        raise Failure(why, f"hyperpod run-scripts {target.stack} {node.name}")
    if ran.code:
        raise Failure(f"{node.name}: {last}", f"hyperpod rotate-munge {target.stack}, once more")
    found: dict[str, Any] = json.loads(last)
    return found
