"""Maintains Slurm's configuration on the controller while Slurm runs: a part of ``hyperpod-requeue``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, Tuple

from ..facts import node_record
from ..facts.identity import read_instances
from ..host.errors import StepError
from ..host.host import Host
from . import configure

# Seconds after a change in which a node may still be counted by the configuration before, and what Slurm says of it.
SETTLES = 30.0
BETWEEN = re.compile(r"gres/\S+ count reported lower than configured \(\d+ <")


class Configuration:
    """Restores our include after HyperPod's agent has rewritten slurm.conf, and updates the login nodes' copy."""

    def __init__(self, host: Host, log: Callable[[str], None]) -> None:
        self._host, self._log = host, log
        self._record = node_record.read(host)
        self._seen: Tuple[float, ...] = ()
        kinds = {
            (one.gres, one.accelerators) for one in self._record.parameters.instance_groups if one.role == "worker"
        }
        # Only then are they in slurm.conf's own lines, which the agent rewrites without them.
        self._counts_get_lost = len(kinds) > 1
        self._settles_until = 0.0

    def round(self) -> None:
        """Configure again if slurm.conf, the topology or the workers' records are newer than the last look."""
        names = configure.sources(self._host, self._record.shared)
        seen = tuple(_mtime(self._host.path(name)) for name in names)
        changed = seen != self._seen and self._configure()
        # The state of before: later changes of the agent, and our own, are checked once more.
        self._seen = seen
        if not changed and self._host.now() < self._settles_until:
            self._take_back()

    def _configure(self) -> bool:
        """Return False if nothing had to change."""
        try:
            changed = configure.configure_again(self._host)
            # HyperPod's own change too, a replaced node's name: Slurm knows it then, and login nodes do not.
            configure.publish(self._host, self._record)
            if changed:
                self._reread()
                if self._counts_get_lost:
                    self._settles_until = self._host.now() + SETTLES
                configure.hide_login_nodes(self._host, self._record.parameters.groups, read_instances(self._host))
        except (StepError, OSError, ValueError) as error:
            self._log(f"configuration: {error}")
            return True
        return changed

    def _take_back(self) -> None:
        """Return nodes that registered by the previous configuration: Slurm drains them for good."""
        found = self._host.run("sinfo", "-h", "-R", "-o", "%N|%E", check=False).out
        for names, _, why in (line.partition("|") for line in found.splitlines()):
            if BETWEEN.match(why):
                self._host.run("scontrol", "update", f"NodeName={names}", "State=RESUME", check=False)
                self._log(f"{names} is back: its accelerators were counted between two configurations")

    def _reread(self) -> None:
        """Have Slurm read its configuration again. Before 23.11 other node names end it, and it has to be started."""
        done = self._host.run("scontrol", "reconfigure", check=False)
        if done.code == 0:
            self._log("slurm.conf changed, Slurm reads it again")
            return
        again = self._host.run("systemctl", "restart", "slurmctld", check=False, timeout=120)
        self._log(f"slurm.conf changed: {done.reason}; " + ("restarted" if again.code == 0 else again.reason))
        # A restarted slurmctld does not send changes to the nodes.
        configure.tell_nodes(self._host)


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
