"""Each worker group's own partition and the features of its nodes, besides those of HyperPod's agent.

HyperPod's API accepts one partition for a group (SageMaker API Reference, ClusterSlurmConfigDetails), which the groups
of a stack share: ``gpu`` or ``trainium``. It stays: slurmctld kills the jobs of a removed partition when it reads its
configuration again (its read_config.c, "Invalid partition"), so no deployed cluster may be moved to another one. A
group's own partition has its nodes by a feature, through a NodeSet (slurm.conf(5)): its line names no node, and stays
the same while nodes come and go.
"""

from __future__ import annotations

import re
from typing import Container, List, Mapping

from ..facts.model import Group
from . import conf

# Slurm's name for the defaults of all partitions, in any case (slurm.conf(5)); HyperPod's partition of all nodes
# (SageMaker Developer Guide, "SageMaker HyperPod references"); and the one of nodes that it tests ("Deep health checks"
# of Slurm clusters).
RESERVED = ("default", "dev", "hyperpod-system-maintenance")
# The weight of nodes with accelerators; that of others is 1 by default.
ACCELERATED = 100


def is_taken(name: str, shared: Container[str]) -> bool:
    """Whether a group's name is already another partition's. ``shared``: the partitions that groups share."""
    return name.lower() in RESERVED or name in shared


def features(group: Group) -> List[str]:
    """Return the features for --constraint. The last one defines the group's NodeSet."""
    return [*group.features, f"group-{group.name}"]


def render(groups: Mapping[str, Group], by_node: Mapping[str, Group], there: Container[str]) -> str:
    """Return the end of hyperpod.conf: the groups' own partitions, without those that other lines define (``there``).

    A group without nodes has its own too, but for a group without accelerators HyperPod's agent makes it, possibly
    until there is a node. One group's features are the default of all nodes.
    """
    workers = [group for group in groups.values() if group.role == "worker"]
    shared = {group.partition for group in workers if group.accelerator}
    lines = [f"NodeName=DEFAULT Features={','.join(features(group))}" for group in workers if len(workers) == 1]
    for group in workers:
        if is_taken(group.name, shared):
            continue
        nodes = conf.node_set(group.name)
        lines.append(f"NodeSet={nodes} Feature={features(group)[-1]}")
        if group.name not in there and (group.accelerator or group in by_node.values()):
            lines.append(f"PartitionName={group.name} Nodes={nodes} MaxTime=INFINITE State=UP")
    return "".join(f"{line}\n" for line in lines)


def with_features(text: str, by_node: Mapping[str, Group], groups: Mapping[str, Group]) -> str:
    """Return slurm.conf with the features of each node on its line, in addition to the line's own.

    A line without any is left to the default, if there is one. A job that fits any node gets an idle one without
    accelerators first: Slurm prefers a lower weight (slurm.conf(5)).
    """
    workers = [group for group in groups.values() if group.role == "worker"]
    weigh = not all(group.accelerator for group in workers)
    return "\n".join(_line(line, by_node, len(workers) == 1, weigh) for line in text.splitlines()) + "\n"


def _line(line: str, by_node: Mapping[str, Group], default: bool, weigh: bool) -> str:
    entry = line.split("#")[0].rstrip()
    for node in conf.parse(entry).nodes:
        of = {group.name: group for name in conf.expand(node["nodename"]) if (group := by_node.get(name))}
        own = re.search(r"\bfeatures?\s*=\s*([^\s\"]+)", entry, re.I)
        if len(of) != 1 or (default and not own):
            continue
        (group,) = of.values()
        if weigh and group.accelerator and not re.search(r"\bweight\s*=", entry, re.I):
            entry += f" Weight={ACCELERATED}"
        if not own:
            return f"{entry} Features={','.join(features(group))}"
        more = "".join(f",{word}" for word in features(group) if word not in own[1].split(","))
        return f"{entry[: own.end()]}{more}{entry[own.end() :]}"
    return line
