"""What containerd and kubelet keep, on the node's big disk: images of tens of GB, and every pod's emptyDir.

The root volume holds neither. Folders are bound over the ones that both programs know, so that no configuration of
theirs is touched: where it lies differs between images, and some write it anew at every start. A bind mount, and no
symbolic link: CSI drivers mount below kubelet's folder, and those mounts must reach the pods.
"""

from __future__ import annotations

from typing import List

from .errors import Skip, StepError
from .model import Node
from .scratch import IMAGE_MOUNT, MOUNT_POINT

# The data volume of the instance group, which HyperPod mounts there.
DATA_VOLUME = "/opt/sagemaker"
# Fastest first. Instance store is empty after a stop, and so is the node.
DISKS = (IMAGE_MOUNT, MOUNT_POINT, DATA_VOLUME)
# Unit and folder of each; the one that starts pods stops first and starts last.
SERVICES = (("containerd", "/var/lib/containerd"), ("kubelet", "/var/lib/kubelet"))
UNITS = "/etc/systemd/system"
# RDMA pins memory, and a container has its runtime's limit.
LIMITS_FILE = f"{UNITS}/containerd.service.d/90-hyperpod.conf"
LIMITS = "# Made by the HyperPod lifecycle scripts.\n[Service]\nLimitMEMLOCK=infinity\n"


def run(node: Node) -> str:
    """Step ``pod-disk``."""
    host, mounts = node.host, node.host.mounts()
    limits_changed = host.write(LIMITS_FILE, LIMITS)
    disk = next((path for path in DISKS if path in mounts), None)
    pending = [(unit, folder) for unit, folder in SERVICES if folder not in mounts]
    busy = [path for path in mounts if path.startswith("/var/lib/kubelet/")]
    if disk and pending and busy:
        raise StepError(f"pods run already ({busy[0]} is mounted): containerd and kubelet stay on the root volume")
    if not pending or not disk:
        if limits_changed:
            host.run("systemctl", "daemon-reload")
            _restart(node, _running(node))
        if disk:
            return f"containerd and kubelet are on {disk}"
        raise Skip(f"there is no disk besides the root volume (looked for {', '.join(DISKS)})")
    running = _running(node)
    for unit in reversed(running):
        host.run("systemctl", "stop", unit, timeout=120)
    try:
        for unit, folder in pending:
            _move(node, disk, unit, folder)
    finally:
        host.run("systemctl", "daemon-reload")
        _restart(node, running)
    return f"containerd and kubelet on {disk}"


def _running(node: Node) -> List[str]:
    """Those of the services that run, in the order in which they start."""
    return [
        unit for unit, _ in SERVICES if node.host.run("systemctl", "is-active", "--quiet", unit, check=False).code == 0
    ]


def _restart(node: Node, units: List[str]) -> None:
    for unit in units:
        node.host.run("systemctl", "restart", unit, timeout=120)


def _move(node: Node, disk: str, unit: str, folder: str) -> None:
    host, target = node.host, f"{disk}/{unit}"
    host.folder(folder, 0o710)
    host.folder(target, 0o710)
    # A copy that was cut short is made again from the start: nothing of it is in use.
    if not host.path(f"{target}.complete").exists():
        host.run("cp", "--archive", "--one-file-system", f"{folder}/.", target, timeout=600)
        host.write(f"{target}.complete", "")
    name = mount_unit(folder)
    host.write(f"{UNITS}/{name}", _unit_file(disk, unit, target, folder))
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "enable", "--now", name, timeout=60)


def mount_unit(folder: str) -> str:
    """The name that systemd demands of the unit that mounts a folder (systemd.mount)."""
    return folder.strip("/").replace("/", "-") + ".mount"


def _unit_file(disk: str, unit: str, target: str, folder: str) -> str:
    return f"""# Made by the HyperPod lifecycle scripts.
[Unit]
Description={unit} on {disk}
RequiresMountsFor={disk}
Before={unit}.service

[Mount]
What={target}
Where={folder}
Type=none
Options=bind

[Install]
RequiredBy={unit}.service
"""
