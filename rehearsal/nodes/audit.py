"""Finds what a run left on the machine: processes, namespaces, mounts, network links, files."""

import os
import tempfile
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..processes import with_variable
from .sandbox import MARK

# The kernel removes a namespace's links and mounts some time after its last process has ended.
_PATIENCE = 3.0


@dataclass(frozen=True)
class Machine:
    """The machine's state, as far as a run could change it."""

    links: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str]


def look() -> Machine:
    """The machine's current state."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    files = [str(path) for folder in (tempfile.gettempdir(), "/run", "/run/netns") for path in _entries(folder)]
    return Machine(
        links=frozenset(path.name for path in _entries("/sys/class/net")),
        mounts=frozenset(line.split()[4] for line in mounts),
        files=frozenset(path for path in files if "hyperpod" in path or path.startswith("/run/netns/")),
    )


class Namespaces(AbstractContextManager["Namespaces"]):
    """The PID namespaces that a run creates. No process can leave its own.

    They are held open, since the kernel reuses the number of a freed namespace, perhaps for another run. Network
    namespaces cannot be held open: a host without power would still answer.
    """

    def __init__(self) -> None:
        self._own = _number("/proc/self/ns/pid")
        self._held: dict[int, int] = {}

    def note(self, pids: Iterable[int]) -> None:
        """Hold the namespaces that have processes open."""
        for path in (f"/proc/{pid}/ns/pid" for pid in pids):
            if _number(path) not in {0, self._own, *self._held}:
                with suppress(OSError):
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    self._held[os.fstat(descriptor).st_ino] = descriptor

    def has(self, pid: str) -> bool:
        """Whether a process is in one of these namespaces."""
        return _number(f"/proc/{pid}/ns/pid") in self._held

    def __exit__(self, *_: object) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()


def leftovers(before: Machine, run_id: str, made: Namespaces) -> list[str]:
    """Everything that should not be there, one line each. Waits a moment for the kernel to clean up."""
    deadline = time.monotonic() + _PATIENCE
    while (found := _leftovers(before, run_id, made)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _leftovers(before: Machine, run_id: str, made: Namespaces) -> list[str]:
    found, marked = [], with_variable(MARK, run_id)
    for entry in (path.name for path in _entries("/proc")):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        if int(entry) in marked or made.has(entry):
            found.append(f"process {entry} ({_name(entry)})")
    now = look()
    found += [f"network link {name}" for name in sorted(now.links - before.links)]
    found += [f"mount {name}" for name in sorted(now.mounts - before.mounts)]
    return found + [f"file {name}" for name in sorted(now.files - before.files)]


def _name(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"


def _number(path: str) -> int:
    """A namespace's inode number, or 0 if it cannot be read."""
    try:
        return Path(path).stat().st_ino
    except OSError:
        return 0


def _entries(folder: str) -> list[Path]:
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []
