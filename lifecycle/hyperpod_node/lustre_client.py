"""The Lustre client's kernel module: the FSx CSI driver brings the commands in its own image, and not the module."""

from __future__ import annotations

import re
from typing import Dict, Tuple

from .errors import StepError
from .model import Node

# Amazon FSx for Lustre User Guide, "Installing the Lustre client". Each from the image's own package repositories.
INSTALL: Dict[str, Tuple[str, ...]] = {
    "amzn": ("dnf", "install", "--assumeyes", "--quiet", "lustre-client"),
    "ubuntu": ("apt-get", "install", "--assume-yes", "--quiet", "lustre-client-modules-aws"),
}


def run(node: Node) -> str:
    """Step ``lustre-client``."""
    host = node.host
    if host.path("/sys/module/lustre").exists():
        return "loaded"
    if host.run("modprobe", "lustre", check=False, timeout=60).code == 0:
        return "loaded now"
    release = host.read("/etc/os-release") or ""
    system = re.search(r'^ID="?(\w+)"?$', release, re.MULTILINE)
    command = INSTALL.get(system.group(1) if system else "")
    if command is None:
        raise StepError(f"no Lustre client for {system.group(1) if system else 'this system'}: pods cannot mount /fsx")
    host.run(*command, timeout=300, env={"DEBIAN_FRONTEND": "noninteractive"})
    host.run("modprobe", "lustre", timeout=60)
    return f"installed ({command[-1]}) and loaded"
