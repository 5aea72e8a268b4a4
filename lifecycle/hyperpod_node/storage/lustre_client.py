"""The Lustre client's kernel module: the FSx CSI driver's image has the commands, but not the module.

HyperPod's images have it. Nothing is installed at boot, because package repositories change from day to day.
"""

from __future__ import annotations

from ..facts.model import Node
from ..host.errors import StepError


def run(node: Node) -> str:
    """Step ``lustre-client``."""
    host = node.host
    if host.path("/sys/module/lustre").exists():
        return "loaded"
    loaded = host.run("modprobe", "lustre", check=False, timeout=60)
    if loaded.code != 0:
        raise StepError(f"this image has no Lustre client ({loaded.reason}): its pods cannot mount /fsx")
    return "loaded now"
