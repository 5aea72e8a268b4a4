"""What a node tells of itself: exporters, a writer of what they lack, and the collector that sends it all.

One contract of names and labels: every series has ``cluster``, ``node`` and ``group`` (docs/metrics.md).
"""

from __future__ import annotations

from ..host.host import Host


def facts_file(host: Host) -> str:
    """The file with what the writer has to know of its node. Without it the node sends no metrics."""
    return f"{host.settings.state_folder}/metrics.json"
