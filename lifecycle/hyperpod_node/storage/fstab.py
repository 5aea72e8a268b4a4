"""/etc/fstab: mounts for a reboot, when no lifecycle script runs."""

from __future__ import annotations

import threading
from typing import Optional

from ..host.host import Host

PATH = "/etc/fstab"
# Steps run at the same time, and each reads the file before it writes it.
_LOCK = threading.Lock()


def source(host: Host, mount_point: str) -> Optional[str]:
    """Return the source that the file mounts at a mount point, None without a line for it."""
    for line in (host.read(PATH) or "").splitlines():
        fields = line.split()
        if len(fields) > 1 and fields[1] == mount_point and not line.lstrip().startswith("#"):
            return fields[0]
    return None


def put(host: Host, line: str) -> None:
    """Write one line for its mount point, replacing any other."""
    mount_point = line.split()[1]
    with _LOCK:
        kept = []
        for old in (host.read(PATH) or "").splitlines():
            fields = old.split()
            if old.lstrip().startswith("#") or len(fields) < 2 or fields[1] != mount_point:
                kept.append(old)
        host.write(PATH, "\n".join([*kept, line]) + "\n")
