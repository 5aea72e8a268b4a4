"""Puts the data of containerd and kubelet, and on Slurm of Docker, on the node's data volume: images of tens of GB, and
every pod's emptyDir.

The root volume holds neither. Folders are bound over the ones that both programs know, so that their configuration
stays untouched: its place differs between images, and some write it at every start. A bind mount, not a symbolic link:
CSI drivers mount below kubelet's folder, and those mounts must reach the pods.

Never on instance store: it is empty after a stop, which would lose kubelet's record of its node and the pause image
that comes with the machine's, or the container that Docker restarts. No script runs after a reboot, and an image may
mount its disks late; a bind mount of a folder that is not there yet would be made on the root volume, below what is
mounted over it later. So both services wait, by systemd's means, until the volume is really mounted. The rest of a boot
waits with them for ten minutes at most: a later part may mount the volume. They start once it is mounted.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

from ..facts.model import Node
from ..host import units
from ..host.errors import Skip, StepError
from ..host.host import Host
from ..host.units import UNITS
from .scratch import IMAGE_UNIT, MODEL

# The data volume of the instance group: HyperPod attaches and mounts it there (SageMaker API Reference,
# ClusterEbsVolumeConfig). AWS's own script also puts both folders there by default. But two pages of the SageMaker
# Developer Guide say that its image mounts the instance store there, as the volume group vg.01 ("Getting started with
# Amazon EKS support", "Using the Amazon EBS CSI driver").
DATA_VOLUME = "/opt/sagemaker"
Service = Tuple[str, str]
# The unit and folder of each; the one that starts pods stops first and starts last.
SERVICES = (("containerd", "/var/lib/containerd"), ("kubelet", "/var/lib/kubelet"))
# On Slurm's nodes people build images and the exporters of metrics run; a build fills the root volume
# (awsome-distributed-ai, issue 913). Jobs' containers are Enroot's and elsewhere (slurm/prolog.sh).
DOCKER = (("containerd", "/var/lib/containerd"), ("docker", "/var/lib/docker"))
# Anybody's question would start Docker again.
SOCKETS = {"docker": ("docker.socket",)}
# RDMA pins memory, and a container inherits its runtime's limit.
LIMITS_FILE = f"{UNITS}/containerd.service.d/90-hyperpod.conf"
LIMITS = "# Made by the HyperPod lifecycle scripts.\n[Service]\nLimitMEMLOCK=infinity\n"
WAIT_UNIT, LATE_UNIT = "hyperpod-data-volume.service", "hyperpod-late-data-volume.service"
# Wants, not Requires: any program may mount the volume, at any attempt. Pods may have a folder of the instance store
# (hostPath), so they start after the service that mounts it, too.
WAIT = f"""# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Wait until {DATA_VOLUME} is mounted
Wants=opt-sagemaker.mount
After=opt-sagemaker.mount {IMAGE_UNIT}.service
OnFailure={LATE_UNIT}

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=600
ExecStart=/bin/sh -c '{{until}} sleep 0.2; done'
"""
# Not part of the boot, so that the boot does not wait for it.
LATE = f"""# Made by the HyperPod lifecycle scripts.
[Unit]
Description=Start {{names}} once {DATA_VOLUME} is mounted

[Service]
ExecStart=/bin/sh -c '{{until}} sleep 2; done; systemctl --no-block start {{units}}'
"""
UNTIL = (
    f"mountpoint -q {DATA_VOLUME} || echo waiting for {DATA_VOLUME}: {{names}} start once it is mounted; "
    f"until mountpoint -q {DATA_VOLUME}; do"
)
# Without systemd's default dependencies, which put a mount before local-fs.target, and so before every service.
BIND = """# Made by the HyperPod lifecycle scripts.
[Unit]
Description={unit} on {disk}
DefaultDependencies=no
Requires={wait}
After={wait}
Conflicts=umount.target
Before={unit}.service umount.target

[Mount]
What={target}
Where={folder}
Type=none
Options=bind

[Install]
RequiredBy={unit}.service
"""


def run(node: Node) -> str:
    """Step ``pod-disk``."""
    return _place(node, SERVICES, limits_changed=node.host.write(LIMITS_FILE, LIMITS))


def run_docker(node: Node) -> str:
    """Step ``docker-disk``."""
    found = [(unit, folder) for unit, folder in DOCKER if units.exists(node.host, unit)]
    if not found:
        raise Skip("this image has no Docker")
    try:
        return _place(node, found, limits_changed=False)
    except StepError as error:
        # The exporters of metrics run on the root volume, too.
        node.warn(str(error))
        return "not moved"


def _place(node: Node, services: Sequence[Service], limits_changed: bool) -> str:
    host, names = node.host, " and ".join(unit for unit, _ in services)
    stay = f"{names} stay on the root volume"
    try:
        host.poll(f"{DATA_VOLUME} was not mounted", lambda: DATA_VOLUME in host.mounts(), node.timeout("data-volume"))
    except StepError as error:
        _apply(node, services, limits_changed)
        raise StepError(f"{error}: {stay}") from None
    mounts = host.mounts()
    pending = [(unit, folder) for unit, folder in services if folder not in mounts]
    busy = [path for path in mounts if path.startswith(f"{services[-1][1]}/")]
    if pending and busy:
        raise StepError(f"containers run already ({busy[0]} is mounted): {stay}")
    if not pending:
        _apply(node, services, limits_changed)
        return f"{names} are on {DATA_VOLUME}"
    if _on_instance_store(host, mounts[DATA_VOLUME][0]):
        _apply(node, services, limits_changed)
        raise StepError(f"{DATA_VOLUME} is instance store: {stay}")
    running = _running(node, services)
    try:
        for unit in reversed(running):
            for socket in SOCKETS.get(unit, ()):
                # Not every package of Docker has one.
                host.run("systemctl", "stop", socket, check=False, timeout=120)
            host.run("systemctl", "stop", unit, timeout=120)
        for name, text in ((WAIT_UNIT, WAIT), (LATE_UNIT, LATE)):
            started = " ".join(unit for unit, _ in services)
            host.write(f"{UNITS}/{name}", text.format(until=UNTIL.format(names=names), names=names, units=started))
        for unit, folder in pending:
            _move(node, unit, folder)
    finally:
        host.run("systemctl", "daemon-reload")
        _restart(node, running)
    return f"{names} on {DATA_VOLUME}"


def _on_instance_store(host: Host, device: str) -> bool:
    """Whether a disk under the device is instance store (lsblk(8): --inverse also lists its parts)."""
    if host.which("lsblk") is None:
        return False
    shown = host.run("lsblk", "--noheadings", "--inverse", "--output", "MODEL", device, check=False)
    return MODEL in shown.out


def _apply(node: Node, services: Sequence[Service], limits_changed: bool) -> None:
    if limits_changed:
        node.host.run("systemctl", "daemon-reload")
        _restart(node, _running(node, services))


def _running(node: Node, services: Sequence[Service]) -> List[str]:
    """Return the running services among them, in the order in which they start."""
    return [unit for unit, _ in services if units.active(node.host, unit)]


def _restart(node: Node, names: List[str]) -> None:
    for unit in names:
        node.host.run("systemctl", "restart", unit, timeout=120)


def _move(node: Node, unit: str, folder: str) -> None:
    host, target = node.host, f"{DATA_VOLUME}/{unit}"
    host.folder(folder, 0o710)
    # On the root volume: an update of the cluster's software gives the node another one, and an older image's files on
    # the data volume are not for this one. An interrupted copy also starts again.
    marker = f"{host.settings.state_folder}/{unit}-is-on-the-data-volume"
    if not host.path(marker).exists():
        if host.path(target).exists():
            host.run("rm", "--recursive", "--force", "--one-file-system", str(host.path(target)), timeout=600)
        host.folder(target, 0o710)
        host.run("cp", "--archive", "--one-file-system", f"{folder}/.", target, timeout=600)
        host.write(marker, "")
    name = units.mount(folder)
    text = BIND.format(unit=unit, disk=DATA_VOLUME, wait=WAIT_UNIT, target=target, folder=folder)
    host.write(f"{UNITS}/{name}", text)
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "enable", "--now", name, timeout=60)
