"""Has Slurm use the network topology once HyperPod's agent has written a map of it.

The agent turns topology-aware scheduling on by itself, and at first leaves a map without anything on it. slurmctld does
not start with that: 24.11 says "No switches configured", 25.11 crashes on the partition's Topology. Both were reported
by users of HyperPod in 2026, and that it starts without the plugin, the empty tree and that word. A map of our own
would not do: a node that replaces another is not on it, and a job that is looked at in that moment never starts.

The same holds for a map that lacks nodes. HyperPod selects and maintains a tree for types with EC2's network topology,
and blocks for UltraServers of p6e-gb200, by itself; from Slurm 25.11 on in topology.yaml, for each partition (SageMaker
Developer Guide, "Using topology-aware scheduling in Amazon SageMaker HyperPod"). While its tree lacks a node that
slurm.conf has, a job that needs the node is refused, and one that waits for it fails with BadConstraints (seen with
24.11): until the node is on it, Slurm plans without it. A topology.yaml is left as it is, and hyperpod-validate names
the nodes that it lacks: "All nodes in the network must be connected to at least one switch", and "jobs can only span
nodes connected by the same switch fabric, even if there are available idle nodes in other areas" (topology.conf(5)).

The agent may rewrite slurm.conf, with the plugin, and have it read before this is settled again. An empty topology.conf
stays for that moment: 24.11 starts with it, and without the file it waits a minute for it and ends.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Mapping, Optional, Sequence, Set, Tuple

from . import conf

# Where there is a topology.yaml, Slurm does not read topology.conf (topology.yaml(5)).
LINES, TREE = "topology.conf", "topology.yaml"
MAPS = (TREE, LINES)
_SAYS_SOMETHING = {
    LINES: r"^\s*(SwitchName|BlockName)\s*=",
    TREE: r"^\s*-?\s*(switch|block|ring)\s*:\s*\S|^\s*flat\s*:",
}
# In front of a line that waits for a map; of a partition's, the line without the word follows.
PAUSED, REPLACED = "#without-a-map# ", "#with-a-map# "
_PLUGIN = r"TopologyPlugin\s*=\s*topology/(?!flat|default|none)\S+"
_PARTITION = r"^(\s*PartitionName=.*?)[ \t]+Topology=\S+(.*)$"


def settle(text: str, there: Mapping[str, Optional[str]], nodes: Iterable[str]) -> Tuple[str, Dict[str, Optional[str]]]:
    """Return slurm.conf with which slurmctld can start, and the maps to write, or to remove (None).

    ``there``: the maps by name. ``nodes``: all workers.
    """
    maps = {name: bool(re.search(_SAYS_SOMETHING[name], there[name] or "", re.M)) for name in MAPS}
    maps[LINES] &= not lacking(there[LINES] or "", nodes)
    changes: Dict[str, Optional[str]] = {}
    if not maps[TREE] and there[TREE] is not None:
        # An empty tree would hide the other map.
        changes[TREE] = None
    if any(maps.values()):
        return _restored(text), changes
    if there[LINES] is None:
        changes[LINES] = ""
    text = re.sub(rf"^\s*({_PLUGIN})", rf"{PAUSED}\1", text, flags=re.M | re.I)
    return re.sub(_PARTITION, lambda line: f"{REPLACED}{line[0]}\n{line[1]}{line[2]}", text, flags=re.M | re.I), changes


def lacking(lines: str, nodes: Iterable[str]) -> Set[str]:
    """Return the nodes that a topology.conf with a tree lacks; none if it has blocks, or unknown names."""
    found: Set[str] = set()
    for names in re.findall(r"^[ \t]*SwitchName[ \t]*=.*?\bNodes[ \t]*=[ \t]*(\S+)", lines, re.M | re.I):
        found.update(conf.expand(names))
    understood = found and "ALL" not in found and not any("[" in name for name in found)
    return set(nodes) - found if understood else set()


def unmapped(tree: str, partitions: Mapping[str, str], nodes: Mapping[str, Sequence[str]]) -> Set[str]:
    """Return the nodes with which none of their partitions can plan, by a topology.yaml: its topology lacks them.

    ``partitions``: the topology that each one names, empty for the cluster's default (topology.yaml(5)); ``nodes``: the
    partitions of each node. None are lacking if a topology is flat, or not understood.
    """
    maps: Dict[str, Optional[Set[str]]] = {}
    default = ""
    for text in re.split(r"^\s*-\s*topology\s*:\s*", tree, flags=re.M)[1:]:
        name = text.split()[0].strip("\"'")
        found = re.findall(r"^\s*-?\s*nodes\s*:\s*[\"']?([^\s\"'#]+)", text, re.M)
        maps[name] = {one for names in found for one in conf.expand(names)} or None
        if re.search(r"^\s*cluster_default\s*:\s*true", text, re.M | re.I):
            default = default or name
    default = default or next(iter(maps), "")

    def planned(node: str, partition: str) -> bool:
        found = maps.get(partitions.get(partition) or default)
        return found is None or node in found

    return {node for node, within in nodes.items() if not any(planned(node, name) for name in within)}


def _restored(text: str) -> str:
    text = re.sub(rf"^{REPLACED}(.*)\n.*$", r"\1", text, flags=re.M)
    return re.sub(rf"^{PAUSED}", "", text, flags=re.M)
