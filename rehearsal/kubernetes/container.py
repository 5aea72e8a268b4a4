"""Runs a process in its own mount namespace, where it sees its pod's volumes at their paths."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The machine's folders take the place of the container's image.
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "usr", "etc", "proc", "sys", "dev")


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine, and its path in the container."""

    source: Path
    path: str


def available() -> bool:
    """Whether this user may create mount and network namespaces on this machine."""
    return subprocess.run([*unshare(), "--net", "true"], capture_output=True).returncode == 0


def command_line(root: Path, mounts: Sequence[Mount], command: Sequence[str]) -> list[str]:
    """The command line that runs ``command`` in a file system made at ``root``, an empty folder."""
    root.mkdir(exist_ok=True)
    inside = shlex.quote(str(root))
    lines = [
        f"mount -t tmpfs pod {inside}",
        f"mkdir -p {inside}/tmp {inside}/run {inside}/image",
        f"chmod 1777 {inside}/tmp",
    ]
    for name in _SYSTEM:
        path, target = Path("/", name), f"{inside}/{name}"
        if path.is_symlink():
            lines.append(f"ln -s {shlex.quote(str(path.readlink()))} {target}")
        elif path.is_dir():
            lines.append(f"mkdir {target} && mount --rbind {path} {target}")
    for mount in mounts:
        # Nothing can be added below the machine's own folders. /dev/shm is there already.
        if mount.path.lstrip("/").split("/")[0] in _SYSTEM:
            continue
        source, target = shlex.quote(str(mount.source)), f"{inside}{shlex.quote(mount.path)}"
        make = f"mkdir -p {target}" if mount.source.is_dir() else f'mkdir -p "$(dirname {target})" && touch {target}'
        lines.append(f"{make} && mount --bind {source} {target}")
    lines.append(f'exec chroot {inside} "$@"')
    return [*unshare(), "sh", "-ceu", "\n".join(lines), "pod", *command]


def identity(pod: Mapping[str, Any], groups: Sequence[int]) -> list[str]:
    """The beginning of a command line that gives a container its pod's user, groups and capabilities.

    Empty for a pod that asks for none, and for users who cannot become others.
    """
    own = pod.get("securityContext") or {}
    if "runAsUser" not in own or os.geteuid() != 0:
        return []
    allowed = (pod["containers"][0].get("securityContext") or {}).get("capabilities") or {}
    bounds = [f"+{name.lower()}" for name in allowed.get("add", [])]
    return [
        *("setpriv", f"--reuid={own['runAsUser']}", f"--regid={own.get('runAsGroup', 0)}", "--no-new-privs"),
        f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups",
        *([f"--bounding-set={','.join(['-all', *bounds])}"] if "ALL" in allowed.get("drop", []) else []),
    ]


def unshare() -> list[str]:
    """The beginning of a command line that runs in its own mount namespace, also for users other than root."""
    mine = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *mine, "--mount", "--propagation", "private"]
