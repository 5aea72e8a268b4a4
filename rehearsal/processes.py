"""Finds the processes of a run: those with its mark in their environment."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def with_variable(name: str, value: str) -> set[int]:
    """Processes whose environment has this variable with this value. None on a system without /proc."""
    found, assigned = set(), f"{name}={value}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        # Another user's process, or one that has just ended.
        with suppress(OSError):
            if assigned in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
    return found
