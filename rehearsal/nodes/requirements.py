"""What a machine needs for the node rehearsal, and how to get it."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from operations.terminal.command_line import called

from . import slurm_packages

# A file (or pattern) that shows whether a package is installed, and the package's name in Debian 12.
_PACKAGES = {
    "/lib/systemd/systemd": "systemd",
    "/usr/sbin/munged": "munge",
    "/usr/sbin/sshd": "openssh-server",
    "/usr/bin/ssh": "openssh-client",
    "/usr/sbin/chronyd": "chrony",
    "/usr/sbin/ip": "iproute2",
    "/usr/bin/nsenter": "util-linux",
    "/usr/bin/mount": "mount",
    "/usr/bin/pkill": "procps",
    "/usr/sbin/mariadbd": "mariadb-server",
    "/usr/sbin/logrotate": "logrotate",
    "/usr/bin/patchelf": "patchelf",
    "/usr/bin/python3": "python3",
    "/usr/bin/mpirun": "openmpi-bin",
    # HyperPod's image has a compiler; nodes with containers build plug-ins of Slurm's.
    "/usr/bin/cc": "gcc",
    "/usr/bin/make": "make",
    "/usr/include/stdio.h": "libc6-dev",
    "/usr/lib/python3/dist-packages/torch": "python3-torch",
    "/usr/lib/*-linux-gnu/openblas-pthread": "libopenblas0-pthread",
    # promtool comes with the first, amtool with the second. Tests of alert rules use them, without root.
    "/usr/bin/prometheus": "prometheus",
    "/usr/bin/prometheus-alertmanager": "prometheus-alertmanager",
    "/usr/bin/prometheus-node-exporter": "prometheus-node-exporter",
}
# What the kernel must support, and why.
_FILE_SYSTEMS = {
    "overlay": "of which a host's disk is made",
    "cgroup2": "in which a host's systemd keeps its units",
    "autofs": "by which its systemd mounts /fsx when it is used",
}
_CAP_SYS_ADMIN = 21


def packages() -> list[str]:
    """Every Debian package that the node rehearsal needs."""
    return list(_PACKAGES.values())


def missing(slurm: str = slurm_packages.DEFAULT) -> list[str]:
    """What is missing, one line each. Empty if hosts with this release of Slurm can start."""
    lines = []
    if os.geteuid() != 0:
        lines.append(
            "root: namespaces, mounts and network links are made; run it with sudo or in a privileged container"
        )
    elif not _capabilities() >> _CAP_SYS_ADMIN & 1:
        lines.append("CAP_SYS_ADMIN: this container may not make namespaces; start it with --privileged")
    packages = [name for path, name in _PACKAGES.items() if not any(Path("/").glob(path.lstrip("/")))]
    if packages:
        lines.append(f"Debian packages: {', '.join(packages)}")
    if slurm_packages.missing(slurm):
        lines.append(f"Slurm {slurm}: not downloaded yet")
    kernel = Path("/proc/filesystems").read_text().split()
    for name, why in _FILE_SYSTEMS.items():
        if name not in kernel:
            lines.append(f"{name}: the kernel has no file system of this kind, {why} (modprobe {name})")
    return lines


def _capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def named(lacking: Iterable[str]) -> list[str]:
    """What ``missing`` found, by name."""
    return [line.partition(":")[0] for line in lacking]


def how(lacking: Iterable[str], stack: str) -> str:
    """The commands, in one line, that install what can be installed and then rehearse a stack's nodes."""
    as_root = "sudo " if os.geteuid() != 0 else ""
    installed = any(name.startswith(("Debian", "Slurm")) for name in named(lacking))
    first = f"{as_root}make node-packages && " if installed else ""
    return f"{first}{as_root}{called()} rehearse nodes {stack}"


if __name__ == "__main__":
    # For apt-get: the Makefile installs what this prints.
    if sys.argv[1:] == ["--lacking"]:
        print(*dict.fromkeys(name for release in slurm_packages.RELEASES for name in named(missing(release))), sep=", ")
    else:
        print(*packages())
