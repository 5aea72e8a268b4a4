"""Faults that a node's health checks find, and HyperPod's agent doing what they ask it for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ..checks import require
from .checks import output
from .cluster import Cluster
from .growth import until
from .hosts import Host

# Seconds between two health checks here, in place of 300. A setting in slurm.conf comes before the project's own.
INTERVAL = 2
# Within an interval, and what a busy machine takes for the checks themselves.
_SECONDS = 30.0
_ACCOUNTING = "/opt/slurm/etc/accounting.conf"
_XID = "NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@dataclass(frozen=True)
class Fault:
    """How to break a node, how to mend it, and the reason that Slurm has then."""

    name: str
    begin: str
    end: str
    reason: str


FAULTS = {
    fault.name: fault
    for fault in (
        Fault(
            "device",
            "mv /dev/nvidia0 /dev/gone",
            "mv /dev/gone /dev/nvidia0",
            r"hyperpod-health: accelerators: {left} of {all} devices /dev/nvidia\*",
        ),
        # The kernel's log of a real node is a device, read in the same form.
        Fault(
            "xid",
            f"printf '%s\\n' \"4,4711,42000000,-;{_XID}\" > /dev/kmsg",
            "rm /dev/kmsg",
            r"hyperpod-health: xid: XID 79 on 0000:53:00 \(RESTART_BM\)",
        ),
        Fault(
            "mount",
            # After a reboot systemd would mount it again at once.
            "systemctl stop fsx.automount; umount -l /fsx || ! grep ' /fsx ' /proc/mounts",
            "mount /fsx",
            r"hyperpod-health: lustre: /fsx is not mounted",
        ),
        Fault(
            "efa",
            "mount.real -o remount,bind,rw /sys; mv /sys/class/infiniband/rdmap16s27 /sys/module",
            "mv /sys/module/rdmap16s27 /sys/class/infiniband",
            r"hyperpod-health: efa: 31 of 32 EFA devices",
        ),
    )
}


def often(cluster: Cluster) -> None:
    """Have Slurm check the nodes every few seconds, from the next start of slurmctld on."""
    text = cluster.controller.read(_ACCOUNTING)
    cluster.controller.write(_ACCOUNTING, f"{text}HealthCheckInterval={INTERVAL}\n", owner="slurm")


def state(cluster: Cluster, host: Host) -> str:
    """A node's state and reason, as Slurm lists them, without the mark of one that is slow to answer."""
    return output(cluster.controller, f"sinfo -h -N -n {host.hostname} -o '%T %E' | sort -u").strip().replace("* ", " ")


def becomes(cluster: Cluster, host: Host, word: str) -> float:
    """Wait until Slurm shows a node in a state that begins so. Returns the seconds; raises CheckFailed."""
    began = time.monotonic()
    until(f"{host.name} is {word}", lambda: state(cluster, host).startswith(word), _SECONDS)
    return time.monotonic() - began


def set_policy(host: Host, policy: str) -> None:
    """Give a node another policy than the stack's."""
    done = host.run(f'sed -i \'s/"policy": "[a-z]*"/"policy": "{policy}"/\' /etc/hyperpod/health.json')
    require(done.returncode == 0, done.stderr)


def unmoved(cluster: Cluster, host: Host, what: Callable[[], str]) -> None:
    """Wait until the node has been checked twice more, and require that something is as it was."""
    before = what()
    for _ in range(2):
        last = _last_run(host)
        until(f"{host.name} is checked", lambda last=last: _last_run(host) != last, _SECONDS)  # type: ignore[misc]
    require(what() == before, f"{host.name} was {before!r} and is {what()!r}")


def _last_run(host: Host) -> str:
    return host.run(["stat", "-c", "%Y %y", "/run/hyperpod-health/results.json"]).stdout


def obey(cluster: Cluster, host: Host) -> Host:
    """Do as HyperPod's agent does with a node that Slurm shows as failed for "Action:...". Returns the node then there.

    SageMaker Developer Guide, "Manually replace or reboot a node using Slurm". A node that was rebooted is resumed.
    """
    until(f"{host.name} is HyperPod's", lambda: " Action:" in state(cluster, host), _SECONDS)
    if state(cluster, host).endswith("Action:Reboot"):
        cluster.reboot(host)
        output(cluster.controller, f"scontrol update nodename={host.hostname} state=resume")
        return host
    require(state(cluster, host).endswith("Action:Replace"), state(cluster, host))
    fresh = cluster.fresh_host(host)
    cluster.take_place(host, fresh)
    require(cluster.script(fresh).wait(90) == 0, f"{fresh.name}: {cluster.scripts[fresh.name].last_line}")
    return fresh
