"""Slurm's systemd units: finds, starts and disables them, and reads their daemons' last errors."""

from __future__ import annotations

from .errors import NotYet, StepError
from .host import Host
from .model import Node

UNITS = "/etc/systemd/system"
FOLDERS = (UNITS, "/usr/local/lib/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system")
# A unit that must not run on this node: it is disabled, and does not start even on request.
NEVER = """# Made by the HyperPod lifecycle scripts: this node is a {role}.
[Unit]
ConditionPathExists=/etc/hyperpod/runs-{unit}
"""
# Seconds for which a daemon counts as starting.
STARTS = 5.0
# The number of lines of a daemon's log to search for its last error.
LOG_LINES = 40
# Bytes. Slurm's state and logs are written a few kilobytes at a time; below this a disk is full for them.
LEAST_FREE = 1 << 20


def require(node: Node, unit: str) -> str:
    """A unit's file. Raises StepError where Slurm is not installed."""
    for folder in FOLDERS:
        text = node.host.read(f"{folder}/{unit}.service")
        if text is not None:
            return text
    raise StepError(f"Slurm is not installed: no {unit}.service in {', '.join(FOLDERS)}")


def exists(host: Host, unit: str) -> bool:
    """Whether a service with this name exists."""
    return any(host.path(f"{folder}/{unit}.service").exists() for folder in FOLDERS)


def never(node: Node, unit: str) -> None:
    """Prevent a unit from running here."""
    host = node.host
    if not exists(host, unit):
        return
    name = f"{UNITS}/{unit}.service.d/10-hyperpod.conf"
    if host.write(name, NEVER.format(role=node.role, unit=unit)):
        host.run("systemctl", "daemon-reload")
        host.run("systemctl", "disable", unit, check=False)
        host.run("systemctl", "stop", unit, check=False)


def active(host: Host, unit: str) -> bool:
    """Whether a unit runs."""
    return host.run("systemctl", "is-active", "--quiet", unit, check=False).code == 0


def start(node: Node, unit: str, restart: bool, wait: bool = True) -> bool:
    """Enabled and running, restarted when asked to. True when it ran before.

    Without ``wait`` it is only asked for: its daemon may need several starts, and which one works is seen elsewhere.
    """
    host, running = node.host, active(node.host, unit)
    how = () if wait else ("--no-block",)
    if not running:
        host.run("systemctl", "enable", unit, check=False)
        # After a failed start systemd may refuse the next one for a while.
        host.run("systemctl", "reset-failed", unit, check=False)
        # Where a unit says itself when it is ready, that may take as long as the first answer does.
        host.run("systemctl", "start", *how, unit, timeout=node.timeout("slurm"))
    elif restart:
        host.run("systemctl", "restart", unit, timeout=node.timeout("slurm"), check=wait)
    return running


def complaint(host: Host, unit: str) -> str:
    """Why a daemon does not do what it should: a full disk, or the last error in its log; empty without any."""
    for folder in (f"/var/spool/{unit}", "/var/log/slurm"):
        if host.free(folder) < LEAST_FREE:
            return f"the disk of {folder} is full"
    shown = host.run(
        "journalctl", "--unit", unit, "--boot", "--lines", str(LOG_LINES), "--output", "cat", "--no-pager",
        check=False, timeout=10,
    )  # fmt: skip
    for text in (shown.out, host.read(f"/var/log/slurm/{unit}.log") or ""):
        lines = text.splitlines()[-LOG_LINES:]
        # The fatal error says more than earlier ones.
        for word in ("fatal: ", "error: "):
            found = [line for line in lines if word in line]
            if found:
                return f"{unit}: {word}{found[-1].split(word, 1)[1].strip()}"
    return ""


def not_yet(host: Host, unit: str, seen: str, began: float) -> NotYet:
    """What a poll saw that began then; after a while also why the unit does not run, where it does not."""
    if host.now() - began < STARTS or active(host, unit):
        return NotYet(seen)
    why = complaint(host, unit)
    return NotYet(f"{seen}; {unit} is not running" + (f": {why}" if why else ""))
