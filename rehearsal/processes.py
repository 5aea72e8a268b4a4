"""Finds the processes of a run: those with its mark in their environment."""

import os
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


def is_plugin(pid: int) -> bool:
    """Whether a process is a plugin of Pulumi's, or the program that its Python plugin runs.

    By names in pulumi/pulumi: plugins are pulumi-KIND-NAME, and sdk/python has pulumi-language-python-exec.
    """
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    names = [Path(os.fsdecode(word)).name for word in words]
    return names[0].startswith("pulumi-") or (
        names[0].startswith("python") and "pulumi-language-python-exec" in names[1:4]
    )
