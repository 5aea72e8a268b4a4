"""A node's metrics: exporters, a writer of what they lack, and the collector that sends everything.

One contract of names and labels: every series has ``cluster``, ``node`` and ``group`` (docs/metrics.md).
"""

from __future__ import annotations

from ..host.host import Host


def facts_file(host: Host) -> str:
    """Return the file with the writer's facts about its node. Without it the node sends no metrics."""
    return f"{host.settings.state_folder}/metrics.json"
