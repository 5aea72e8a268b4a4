"""systemd's units: finds, starts and disables them, and reads their daemons' last errors."""

from __future__ import annotations

from typing import Dict, List

from .errors import NotYet, StepError
from .host import Host

UNITS = "/etc/systemd/system"
FOLDERS = (UNITS, "/usr/local/lib/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system")
# A unit that must not run on this node: it is disabled, and does not start even on request.
NEVER = """# Made by the HyperPod lifecycle scripts: this node is a {role}.
[Unit]
ConditionPathExists=/etc/hyperpod/runs-{unit}
"""
# No unit has this name. systemd finds a unit's first drop-in only after it has looked for a unit that it does not know
# (seen with 252).
UNKNOWN = "hyperpod-none.service"
# Seconds for which a daemon counts as starting.
STARTS = 5.0
# The number of lines of a daemon's log to search for its last error.
LOG_LINES = 40
# Bytes. Slurm's state and logs are written a few kilobytes at a time; below this a disk is full for them.
LEAST_FREE = 1 << 20


def mount(folder: str) -> str:
    """Return the name that systemd requires for the unit that mounts a folder (systemd.mount)."""
    return folder.strip("/").replace("/", "-") + ".mount"


def after_mount(folder: str) -> str:
    """Return the order of a service that uses a file system of fstab with x-systemd.automount, to its last moment.

    When the machine boots, the unit that mounts it on demand exists by remote-fs.target. When it stops, the mount has
    to outlast the service; its unit is before remote-fs.target only without that option (systemd 249, src/core/mount.c,
    mount_add_default_ordering_dependencies).
    """
    return f"After=remote-fs.target {mount(folder)}"


def require(host: Host, unit: str) -> str:
    """Return a unit's file. Raises StepError if Slurm is not installed."""
    for folder in FOLDERS:
        text = host.read(f"{folder}/{unit}.service")
        if text is not None:
            return text
    raise StepError(f"Slurm is not installed: no {unit}.service in {', '.join(FOLDERS)}")


def exists(host: Host, unit: str) -> bool:
    """Whether a service with this name exists."""
    return any(host.path(f"{folder}/{unit}.service").exists() for folder in FOLDERS)


def prevent(host: Host, role: str, *units: str) -> None:
    """Prevent units from running on a node of this role."""
    drop_ins = {f"{UNITS}/{unit}.service.d/10-hyperpod.conf": unit for unit in units if exists(host, unit)}
    texts = {name: NEVER.format(role=role, unit=unit) for name, unit in drop_ins.items()}
    wrong = {name: text for name, text in texts.items() if host.read(name) != text}
    if wrong:
        _link(host, "disable", "--now", *(drop_ins[name] for name in wrong))
        for name, text in wrong.items():
            host.write(name, text)
    if drop_ins:
        current(host, *drop_ins.values())


def current(host: Host, *units: str) -> List[Dict[str, str]]:
    """Return systemd's state of units (``systemctl show``), once it knows their files.

    ``systemctl daemon-reload`` reads every unit again: 0.1 s of CPU time on a small machine. A unit that systemd has
    not loaded needs none, so it is only done if one was loaded before its files changed.
    """
    properties = "--property=ActiveState,NeedDaemonReload,UnitFileState"
    shown = host.run("systemctl", "show", properties, UNKNOWN, *units, check=False)
    blocks = [dict(line.split("=", 1) for line in block.splitlines()) for block in shown.out.strip().split("\n\n")]
    if any(block.get("NeedDaemonReload") == "yes" for block in blocks):
        host.run("systemctl", "daemon-reload")
    found = blocks[1:]
    return found + [{}] * (len(units) - len(found))


def active(host: Host, unit: str) -> bool:
    """Whether a unit runs."""
    return host.run("systemctl", "is-active", "--quiet", unit, check=False).code == 0


def _link(host: Host, *verb: str) -> None:
    """Enable or disable units. systemd reads the links when the machine boots.

    By default systemctl reloads all units at once, and Debian's script for services of System V does so twice.
    """
    host.run("systemctl", verb[0], "--no-reload", *verb[1:], check=False, env={"SYSTEMCTL_SKIP_SYSV": "1"})


def stop(host: Host, *units: str) -> None:
    """Stop units for good."""
    _link(host, "disable", *units)
    host.run("systemctl", "stop", *units, check=False, timeout=120)


def start(host: Host, unit: str, restart: bool = False, wait: bool = True) -> bool:
    """Enable and start a unit; restart it on request. Return True if it ran before.

    Without ``wait`` this only asks for the start: its daemon may need several, and others check which one works.
    """
    (shown,) = current(host, unit)
    state = shown.get("ActiveState")
    running = state in ("active", "reloading")
    how = () if wait else ("--no-block",)
    if shown.get("UnitFileState", "disabled") == "disabled":
        _link(host, "enable", unit)
    if not running:
        if state != "inactive":
            # After a failed start systemd may refuse the next one for a while.
            host.run("systemctl", "reset-failed", unit, check=False)
        # Where a unit says itself when it is ready, that may take as long as the first answer does.
        host.run("systemctl", "start", *how, unit, timeout=host.settings.timeouts["slurm"])
    elif restart:
        host.run("systemctl", "restart", unit, timeout=host.settings.timeouts["slurm"], check=wait)
    return running


def failure_reason(host: Host, unit: str) -> str:
    """Return why a daemon does not work: a full disk, or the last error in its log; empty without any."""
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
    """Return the state for a poll that began then; after a while also why the unit does not run, if it does not."""
    if host.now() - began < STARTS or active(host, unit):
        return NotYet(seen)
    why = failure_reason(host, unit)
    return NotYet(f"{seen}; {unit} is not running" + (f": {why}" if why else ""))
