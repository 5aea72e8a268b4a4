"""Asks the kernel questions that it may never answer, or only once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import List, Optional


def stuck(path: Path, timeout: float) -> str:
    """Return why a file system does not answer within so many seconds; empty if it does.

    A separate process asks, for which nobody waits: a process that hangs in the kernel cannot be ended.
    """
    asked = subprocess.Popen(
        ["stat", "--file-system", "--format=%T", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said = asked.communicate(timeout=timeout)[1].decode("utf-8", "replace").strip()
    except subprocess.TimeoutExpired:
        asked.kill()
        return f"does not answer within {timeout:g} s"
    return "" if asked.returncode == 0 else said.rpartition(": ")[2] or f"stat ended with {asked.returncode}"


def kernel_log(path: Path) -> Optional[List[str]]:
    """Return the records of /dev/kmsg, the kernel's log as far as its ring goes back; None if it cannot be read."""
    try:
        descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    parts: List[bytes] = []
    try:
        # Each read of the device is one record, and the last one would block.
        while True:
            try:
                part = os.read(descriptor, 1 << 16)
            except BlockingIOError:
                break
            except BrokenPipeError:  # what came next has been overwritten meanwhile
                continue
            if not part:
                break
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace").splitlines()
