"""What an EKS node's image adds: containerd and kubelet, and disks that are mounted late; Docker on a node of Slurm.

AWS's deep learning images mount the instance store at /opt/dlami/nvme with dlami-nvme.service, a oneshot after
network-online.target, which succeeds even if it could not mount (as users of the images report). HyperPod mounts the
group's data volume at /opt/sagemaker (SageMaker API Reference, ClusterEbsVolumeConfig). Both come seconds after a boot.
"""

from pathlib import Path

_SERVICE = """[Unit]
Description={name}, played
After={after}
Wants=network-online.target

[Service]
ExecStart=/usr/lib/rehearsal/eks-service {name}
Restart=always

[Install]
WantedBy=multi-user.target
"""
_DISK = """[Unit]
Description=Mounts {point} late
After=network-online.target
Wants=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=300
ExecStart=/bin/sh -c 'sleep {seconds}; mkdir -p {point} /var/lib/rehearsal/{name} && {mount}'

[Install]
WantedBy=multi-user.target
"""
# A volume's content is on the host's disk, so it survives a reboot.
_MOUNT = "mount --bind /var/lib/rehearsal/{name} {point}"
# Seconds after the network is up. By then systemd has long started containerd and kubelet, unless they wait.
_LATE = {"dlami-nvme": ("/opt/dlami/nvme", 1.0), "rehearsal-data-volume": ("/opt/sagemaker", 1.5)}
_STARTS = "/var/log/{name}.starts"
SERVICES = ("containerd", "kubelet")


def add_eks(image: Path) -> None:
    """Add an EKS node's units to an image that has systemd."""
    units = image / "etc/systemd/system"
    for name, text in unit_texts("kubelet", *_LATE).items():
        (units / f"{name}.service").write_text(text)
        (units / f"multi-user.target.wants/{name}.service").symlink_to(f"/etc/systemd/system/{name}.service")


def unit_texts(service: str, *disks: str) -> dict[str, str]:
    """The units of containerd, of the service that uses it, and of disks that are mounted late, by name."""
    texts = {
        "containerd": _SERVICE.format(name="containerd", after="network-online.target local-fs.target"),
        service: _SERVICE.format(name=service, after="containerd.service"),
    }
    for name in disks:
        point, seconds = _LATE[name]
        mount = _MOUNT.format(name=name, point=point)
        texts[name] = _DISK.format(name=name, point=point, seconds=seconds, mount=mount)
    return texts


def starts(text: str) -> list[tuple[str, str]]:
    """What a service found at each start: what was mounted over its folder, and whose state was in it."""
    return [(words[0], words[1]) for words in (line.split() for line in text.splitlines())]


def log_of(service: str) -> str:
    """The file in which a service records its starts."""
    return _STARTS.format(name=service)
