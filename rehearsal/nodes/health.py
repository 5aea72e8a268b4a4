"""Faults that a node's health checks find, and HyperPod's agent doing what they ask it for."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from components.config import Config

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


def _no_gpu(config: Config) -> str:
    return "" if config.worker_groups[0].type.accelerator == "gpu" else "the workers have no GPU"


def _no_efa(config: Config) -> str:
    return "" if config.worker_groups[0].type.efa == "yes" else "the workers may have no EFA device"


@dataclass(frozen=True)
class Fault:
    """What is broken, how to break and to mend it, and the reason that Slurm has then, as a pattern.

    ``resumed``: whether its owner has to say that the node is well. ``unfit``: why a stack's workers cannot have it.
    """

    name: str
    breaks: str
    begin: str
    end: str
    reason: str
    resumed: bool = False
    unfit: Callable[[Config], str] = lambda config: ""


FAULTS = {
    fault.name: fault
    for fault in (
        Fault(
            "gpu-missing",
            "a GPU's device is gone, and comes back",
            "mv /dev/nvidia0 /dev/gone",
            "mv /dev/gone /dev/nvidia0",
            r"hyperpod-health: accelerators: \d+ of \d+ devices /dev/nvidia\*",
            unfit=_no_gpu,
        ),
        # The kernel's log of a real node is a device, read in the same form.
        Fault(
            "gpu-xid",
            "the kernel's log has XID 79 of a GPU, which its owner resets",
            f"printf '%s\\n' \"4,4711,42000000,-;{_XID}\" > /dev/kmsg",
            "rm /dev/kmsg",
            r"hyperpod-health: xid: XID 79 on 0000:53:00 \(RESTART_BM\)",
            resumed=True,
            unfit=_no_gpu,
        ),
        Fault(
            "fsx-unmounted",
            "a worker loses its mount of the file system, which is mounted again",
            # After a reboot systemd would mount it again at once.
            "systemctl stop fsx.automount; umount -l /fsx || ! grep ' /fsx ' /proc/mounts",
            "mount /fsx",
            "hyperpod-health: lustre: /fsx is not mounted",
        ),
        Fault(
            "efa-missing",
            "an EFA device is gone, and comes back",
            "mount.real -o remount,bind,rw /sys; mv /sys/class/infiniband/rdmap16s27 /sys/module",
            "mv /sys/module/rdmap16s27 /sys/class/infiniband",
            r"hyperpod-health: efa: \d+ of \d+ EFA devices",
            unfit=_no_efa,
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
    done = host.run(f'sed -i \'s/"health_policy": "[a-z]*"/"health_policy": "{policy}"/\' /etc/hyperpod/node.json')
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
