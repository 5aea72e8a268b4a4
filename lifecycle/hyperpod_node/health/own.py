"""Runs the checks that users ship with their stack (``hyperpod:healthChecks``): any executable, one finding each.

Exit status 0 is well, 1 is bad, anything else is unknown; the first line of standard output is the reason.
"""

from __future__ import annotations

from typing import Callable, Dict

from ..host.host import Host
from .model import Check, Finding, Subject, bad, ok, unknown

# Below the lifecycle folder, and below the folder that the commands are installed in.
FOLDER = "checks"
# Seconds for each of them.
LIMIT = 10.0
LONGEST_REASON = 120


def found(host: Host) -> Dict[str, Check]:
    """Return the checks that are installed here, by name."""
    folder = f"{host.settings.install_folder}/{FOLDER}"
    path = host.path(folder)
    names = sorted(one.name for one in path.iterdir() if one.is_file()) if path.is_dir() else []
    return {f"own-{name}": _check(f"{folder}/{name}") for name in names}


def _check(command: str) -> Callable[[Subject], Finding]:
    def check(subject: Subject) -> Finding:
        done = subject.host.run(command, check=False, timeout=LIMIT)
        lines = done.out.strip().splitlines()
        reason = "".join(one if one.isprintable() else " " for one in lines[0])[:LONGEST_REASON] if lines else ""
        if done.code == 0:
            return ok(reason)
        why = reason or f"exit status {done.code}"
        return bad(why) if done.code == 1 else unknown(why)

    return check
