"""A process that sees its pod's volumes at their paths: a mount namespace with a file system of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# What a container needs of its image comes from this machine.
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "usr", "etc", "proc", "sys", "dev")


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine and where the container sees it."""

    source: Path
    path: str


def available() -> bool:
    """Whether this machine lets this user make namespaces of mounts and networks."""
    return subprocess.run([*unshare(), "--net", "true"], capture_output=True).returncode == 0


def command_line(root: Path, mounts: Sequence[Mount], command: Sequence[str]) -> list[str]:
    """The command line that runs ``command`` in a file system made at ``root``, an empty folder."""
    root.mkdir(exist_ok=True)
    inside = shlex.quote(str(root))
    lines = [f"mount -t tmpfs pod {inside}", f"mkdir -p {inside}/tmp {inside}/run {inside}/image"]
    for name in _SYSTEM:
        path, target = Path("/", name), f"{inside}/{name}"
        if path.is_symlink():
            lines.append(f"ln -s {shlex.quote(str(path.readlink()))} {target}")
        elif path.is_dir():
            lines.append(f"mkdir {target} && mount --rbind {path} {target}")
    for mount in mounts:
        # Below the machine's own folders nothing can be added; /dev/shm is there already.
        if mount.path.lstrip("/").split("/")[0] in _SYSTEM:
            continue
        source, target = shlex.quote(str(mount.source)), f"{inside}{shlex.quote(mount.path)}"
        make = f"mkdir -p {target}" if mount.source.is_dir() else f'mkdir -p "$(dirname {target})" && touch {target}'
        lines.append(f"{make} && mount --bind {source} {target}")
    lines.append(f'exec chroot {inside} "$@"')
    return [*unshare(), "sh", "-ceu", "\n".join(lines), "pod", *command]


def unshare() -> list[str]:
    """The start of a command line that has mounts of its own; also for who is not root."""
    mine = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *mine, "--mount", "--propagation", "private"]
