"""EKS nodes and their reboot: what containerd and kubelet keep is there again, wherever and whenever it is mounted."""

from __future__ import annotations

from ..checks import require
from .cluster import Cluster
from .eks_image import SERVICES, log_of, starts
from .growth import healthy, mounts, reboot, until
from .hosts import Host

DATA_VOLUME = "/opt/sagemaker"


def reboot_eks(cluster: Cluster) -> str:
    """All nodes, booted before, go down and up. Raises CheckFailed where one is not what it was."""
    hosts = cluster.hosts
    before = {host.name: {name: _last(host, name) for name in SERVICES} for host in hosts}
    had = {host.name: mounts(host) for host in hosts}
    for host in hosts:
        for name in SERVICES:
            where, _ = before[host.name][name]
            require(where != "none", f"{host.name}: {name} is on the root volume, not on {DATA_VOLUME}")
    reboot(cluster, hosts)
    for host in hosts:
        until(f"{host.name} has its mounts", lambda host=host: had[host.name] <= mounts(host))  # type: ignore[misc]
        for name in SERVICES:
            count = len(starts(host.read(log_of(name))))
            require(count > 1, f"{host.name}: {name} did not start after the reboot")
            where, state = _last(host, name)
            was, old = before[host.name][name]
            require(where == was, f"{host.name}: after the reboot {name} started on {where}, and was on {was}")
            require(state == old, f"{host.name}: after the reboot {name} started empty")
        healthy(host)
    return f"{len(hosts)} nodes with their pods' folders on {DATA_VOLUME}"


def _last(host: Host, service: str) -> tuple[str, str]:
    """What a service found when it started last."""
    found = starts(host.read(log_of(service)))
    require(found, f"{host.name}: {service} did not start")
    return found[-1]
