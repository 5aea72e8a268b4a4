"""Rotates the logs of Slurm's daemons and our own. MUNGE's and MariaDB's come with their packages.

Slurm does not limit its logs. HyperPod's samples add a file for them, its image is not known to have one
(awsome-distributed-training, utils/slurm_logrotate.sh): if another file rotates them, ours leaves them out, because
logrotate refuses a log that two files name.
"""

from __future__ import annotations

from ..host.host import Host

FOLDER, NAME = "/etc/logrotate.d", "hyperpod"
SLURM, OURS = "/var/log/slurm", "/var/log/hyperpod"
# Two months, or a few hundred megabytes where a daemon says more than it should. ``create`` without words keeps a log's
# owner and mode (logrotate(8)).
_RULES = """    weekly
    maxsize 100M
    rotate 8
    missingok
    notifempty
    create
    compress
    delaycompress
"""
# slurmctld(8), slurmd(8), slurmdbd(8): SIGUSR2 opens the log again, for logrotate. By the unit, as another process may
# have the name: the trial of a configuration.
_REOPEN = """    sharedscripts
    postrotate
        for unit in slurmctld slurmd slurmdbd; do
            systemctl kill --kill-who=main --signal=SIGUSR2 "$unit" 2>/dev/null || true
        done
    endscript
"""
HEADER = "# Made by the HyperPod lifecycle scripts.\n"


def rotate(host: Host, role: str) -> None:
    """Write our file for logrotate, whose own timer runs it every day."""
    theirs = "" if _others(host) else f"{SLURM}/*.log {{\n{_as_owner(host, role)}{_RULES}{_REOPEN}}}\n"
    host.write(f"{FOLDER}/{NAME}", f"{HEADER}{theirs}{OURS}/*.log {{\n{_RULES}}}\n")


def _as_owner(host: Host, role: str) -> str:
    """Return the line by which logrotate works as the owner of Slurm's folder, in which root could be led elsewhere:
    "su" (logrotate(8)); root still runs the postrotate script. If only slurmd writes there, the folder becomes root's.
    """
    owner = host.owner(SLURM) if host.path(SLURM).is_dir() else "root"
    if owner == "root" or owner.isdigit():
        return ""
    if role != "controller":
        host.secure(SLURM, 0o755, "root")
        return ""
    return f"    su {owner} {host.path(SLURM).group()}\n"


def _others(host: Host) -> bool:
    """Whether another file rotates Slurm's logs."""
    folder = host.path(FOLDER)
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return any(SLURM in (host.read(f"{FOLDER}/{name}") or "") for name in names if name != NAME)
