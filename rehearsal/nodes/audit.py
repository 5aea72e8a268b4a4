"""Whether anything of a run is left on the machine: processes, namespaces, mounts, network links, files."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .sandbox import MARK

_KINDS = ("net", "mnt", "pid")
# The kernel takes a namespace's links and mounts away after its last process.
_PATIENCE = 3.0


@dataclass(frozen=True)
class Machine:
    """What the machine has, as far as a run could add to it."""

    links: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str]


def look() -> Machine:
    """The machine as it is."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    files = [str(path) for folder in (tempfile.gettempdir(), "/run", "/run/netns") for path in _entries(folder)]
    return Machine(
        links=frozenset(path.name for path in _entries("/sys/class/net")),
        mounts=frozenset(line.split()[4] for line in mounts),
        files=frozenset(path for path in files if "hyperpod" in path or path.startswith("/run/netns/")),
    )


def namespaces(pids: Iterable[int]) -> set[str]:
    """The namespaces of processes, those of the caller left out."""
    own = {_link(f"/proc/self/ns/{kind}") for kind in _KINDS}
    return {found for pid in pids for kind in _KINDS if (found := _link(f"/proc/{pid}/ns/{kind}"))} - own


def leftovers(before: Machine, run_id: str, made: set[str]) -> list[str]:
    """What is there and should not be, a line each. Waits a moment for the kernel to tidy up."""
    deadline = time.monotonic() + _PATIENCE
    while (found := _leftovers(before, run_id, made)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _leftovers(before: Machine, run_id: str, made: set[str]) -> list[str]:
    found = []
    for entry in (path.name for path in _entries("/proc")):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        if _marked(entry, run_id) or any(_link(f"/proc/{entry}/ns/{kind}") in made for kind in _KINDS):
            found.append(f"process {entry} ({_name(entry)})")
    now = look()
    found += [f"network link {name}" for name in sorted(now.links - before.links)]
    found += [f"mount {name}" for name in sorted(now.mounts - before.mounts)]
    return found + [f"file {name}" for name in sorted(now.files - before.files)]


def _marked(pid: str, run_id: str) -> bool:
    try:
        return f"{MARK}={run_id}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _name(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _entries(folder: str) -> list[Path]:
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []
