"""Reboots of a living cluster's nodes, and the checks that follow."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from .. import patience
from ..checks import CheckFailed, require
from .checks import all_idle, hostname_everywhere, output
from .cluster import Cluster
from .hosts import Host


def reboot_others(cluster: Cluster) -> str:
    """Every node but the controller reboots without a lifecycle script, and comes back as it was."""
    hosts = [host for host in cluster.hosts if host.role != "controller"]
    before = {host.name: mounts(host) for host in hosts}
    began = time.monotonic()
    reboot(cluster, hosts)
    until("all workers are idle", lambda: all_idle(cluster))
    seconds = time.monotonic() - began
    for host in hosts:
        output(host, "test -d /fsx/.hyperpod/slurm")
        until(f"{host.name} has its mounts", lambda host=host: before[host.name] <= mounts(host))  # type: ignore[misc]
        healthy(host)
    hostname_everywhere(cluster)
    return f"{len(hosts)} nodes, all idle after {seconds:.1f} s"


def reboot(cluster: Cluster, hosts: Sequence[Host]) -> None:
    """Reboot several hosts at once."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(cluster.shut_down, hosts))
    for host in hosts:
        # Not on a pool thread: a host dies with the thread that started it.
        cluster.power_on(host)


def healthy(host: Host) -> None:
    """No unit of the host has failed. Raises CheckFailed with the failed ones."""
    failed = host.run("systemctl --failed --no-legend --plain").stdout.split("\n")
    names = [line.split()[0] for line in failed if line]
    require(not names, f"{host.name} has failed units: {', '.join(names)}")


def mounts(host: Host) -> set[str]:
    """The mounts on a host that users see."""
    points = [line.split()[1] for line in host.run(["cat", "/proc/mounts"]).stdout.splitlines()]
    return {point for point in points if point in ("/fsx", "/home", "/scratch", "/opt/dlami/nvme", "/opt/sagemaker")}


def until(what: str, true: Callable[[], object], seconds: float = 180.0) -> None:
    """Wait until a condition is true, or a check passes. Raises CheckFailed with what is lacking after that time."""
    lacked = ""

    def passes() -> bool:
        nonlocal lacked
        try:
            # A check that passes may return nothing.
            return true() is not False
        except CheckFailed as error:
            lacked = f": {error}"
            return False

    require(patience.until(passes, seconds, every=0.1), f"{what}: not in time{lacked}")
