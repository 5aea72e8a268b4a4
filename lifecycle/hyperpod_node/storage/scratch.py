"""Local instance-store disks as one fast scratch file system."""

from __future__ import annotations

from typing import List

from ..facts.model import Node
from ..host import units
from ..host.errors import NotYet, Skip, StepError
from ..host.host import Host
from . import fstab

MOUNT_POINT = "/scratch"
ARRAY = "/dev/md/hyperpod-scratch"
LABEL = "hp-scratch"
# After a reboot the array may have another name.
BY_LABEL = f"/dev/disk/by-label/{LABEL}"
OPTIONS = "noatime,discard"
# By label, and with nofail, because after a stop the disks are empty.
FSTAB_LINE = f"LABEL={LABEL} {MOUNT_POINT} ext4 {OPTIONS},nofail,x-systemd.device-timeout=90s 0 0"
# The kernel's model name for instance store; EBS volumes are "Amazon Elastic Block Store".
MODEL = "Amazon EC2 NVMe Instance Storage"
# The folder where AWS's deep learning images mount the same disks, as one volume group, by a service that starts late
# (oneshot, After=network-online.target, TimeoutStartSec=300) and succeeds even if it could not mount them.
IMAGE_MOUNT = "/opt/dlami/nvme"
IMAGE_UNIT = "dlami-nvme"


def run(node: Node) -> str:
    """Step ``scratch``."""
    host, mounts = node.host, node.host.mounts()
    if node.identity.group.nvme_disks == 0:
        raise Skip(f"{node.identity.group.instance_type} has no instance store")
    if units.exists(host, IMAGE_UNIT) or IMAGE_MOUNT in mounts:
        _await_image(node)
        host.link(MOUNT_POINT, IMAGE_MOUNT)
        return f"the image mounts the instance store at {IMAGE_MOUNT}; {MOUNT_POINT} leads there"
    if MOUNT_POINT in mounts:
        device = mounts[MOUNT_POINT][0]
        # An earlier run may have been killed right after the mount.
        if fstab.source(host, MOUNT_POINT) is None and _labelled(host, device):
            fstab.put(host, FSTAB_LINE)
        return f"{device} is mounted at {MOUNT_POINT}"
    disks = _disks(node)
    made = next((name for name in (BY_LABEL, ARRAY) if host.path(name).exists()), None)
    if not disks and made is None:
        raise Skip("no instance-store disk is attached")
    device = made or _array(node, disks)
    if not _labelled(host, device):
        host.run("mkfs.ext4", "-q", "-L", LABEL, "-m", "0", "-E", "lazy_itable_init=1", device, timeout=300)
    host.folder(MOUNT_POINT)
    host.run("mount", "-o", OPTIONS, device, MOUNT_POINT, timeout=60)
    # Everybody may write, and nobody may remove other users' files.
    host.path(MOUNT_POINT).chmod(0o1777)
    # HyperPod does not run the scripts again after a reboot.
    fstab.put(host, FSTAB_LINE)
    return f"{device} at {MOUNT_POINT}"


def _await_image(node: Node) -> None:
    """Wait until the image has mounted its disks. They are never touched: it may be about to make a volume group of
    them.
    """

    def mounted() -> bool:
        if IMAGE_MOUNT in node.host.mounts():
            return True
        shown = node.host.run("systemctl", "show", "--property", "ActiveState", "--value", IMAGE_UNIT, check=False)
        state = shown.out.strip()
        if state in ("active", "failed") and IMAGE_MOUNT not in node.host.mounts():
            raise StepError(f"{IMAGE_UNIT}.service is {state} and has not mounted {IMAGE_MOUNT}")
        raise NotYet(f"{IMAGE_UNIT}.service is {state}")

    node.host.poll(f"the image did not mount {IMAGE_MOUNT}", mounted, node.timeout("image-disks"), first=0.1, most=2)


def _labelled(host: Host, device: str) -> bool:
    return host.run("blkid", "-p", "-s", "LABEL", "-o", "value", device, check=False).out.strip() == LABEL


def _disks(node: Node) -> List[str]:
    """Return unused instance-store disks."""
    block = node.host.path("/sys/block")
    used = {source for source, _ in node.host.mounts().values()}
    found = []
    for entry in sorted(block.glob("nvme*n*")) if block.is_dir() else []:
        model = node.host.read(f"/sys/block/{entry.name}/device/model") or ""
        in_use = any(entry.glob(f"{entry.name}p*")) or any(entry.glob("holders/*")) or f"/dev/{entry.name}" in used
        if model.strip() == MODEL and not in_use:
            found.append(f"/dev/{entry.name}")
    return found


def _array(node: Node, disks: List[str]) -> str:
    """Return the device for the file system: a single disk, or a RAID 0 of all disks."""
    host = node.host
    if len(disks) == 1:
        return disks[0]
    if host.which("mdadm") is None:
        raise StepError(f"mdadm is not installed; {len(disks)} instance-store disks are left unused")
    # A killed run may have left the array's members marked but not assembled.
    host.run("mdadm", "--assemble", ARRAY, *disks, check=False)
    if not host.path(ARRAY).exists():
        host.run(
            "mdadm", "--create", ARRAY, "--run", "--force", "--level=0", f"--raid-devices={len(disks)}", *disks,
            timeout=60,
        )  # fmt: skip
        host.changes.append(ARRAY)
    return ARRAY
