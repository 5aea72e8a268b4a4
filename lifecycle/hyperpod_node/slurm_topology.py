"""Slurm plans by the network's topology once HyperPod's agent has a map of it, and without one until then.

The agent turns topology-aware scheduling on by itself, and at first leaves a map without anything on it. slurmctld does
not start with that: 24.11 says "No switches configured", 25.11 crashes on the partition's Topology. Both were reported
by users of HyperPod in 2026, and that it starts without the plugin, the empty files and that word. A map of our own
would not do: a node that replaces another is not on it, and a job that is looked at in that moment never starts.
"""

from __future__ import annotations

import re
from typing import Optional, Tuple

from .host import Host

MAPS = ("topology.conf", "topology.yaml")
# In front of the line, where there is no map.
PAUSED = "#without-a-map# "
_PLUGIN = r"TopologyPlugin\s*=\s*topology/(?!flat|default|none)\S+"


def settle(host: Host, text: str) -> Tuple[str, bool]:
    """slurm.conf as slurmctld can start with it, and whether a file beside it was removed."""
    maps = [f"{host.settings.slurm_etc}/{name}" for name in MAPS]
    if any(_says_something(host.read(name)) for name in maps):
        return re.sub(rf"^{PAUSED}", "", text, flags=re.M), False
    removed = [host.remove(name) for name in maps]
    text = re.sub(rf"^\s*({_PLUGIN})", rf"{PAUSED}\1", text, flags=re.M | re.I)
    return re.sub(r"^(\s*PartitionName=.*?)[ \t]+Topology=\S+", r"\1", text, flags=re.M | re.I), any(removed)


def _says_something(text: Optional[str]) -> bool:
    """Whether a map has more than comments and an empty list."""
    return bool(re.sub(r"#.*", "", text or "").strip() not in ("", "[]", "---", "--- []"))
