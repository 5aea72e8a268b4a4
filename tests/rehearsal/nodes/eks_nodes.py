"""Reboots of EKS nodes: containerd's and kubelet's data is back, wherever and whenever its disk is mounted."""

from collections.abc import Mapping

from rehearsal.checks import require
from rehearsal.nodes.checks import output
from rehearsal.nodes.cluster import Cluster
from rehearsal.nodes.eks_image import SERVICES, log_of, starts
from rehearsal.nodes.growth import healthy, mounts, reboot, until
from rehearsal.nodes.hosts import Host

DATA_VOLUME = "/opt/sagemaker"
WAIT_UNIT, LATE_UNIT = "hyperpod-data-volume.service", "hyperpod-late-data-volume.service"


def reboot_eks(cluster: Cluster) -> str:
    """Reboot all nodes, which are up. Raises CheckFailed if one does not come back as it was."""
    hosts = cluster.hosts
    for host in hosts:
        for name in SERVICES:
            # systemd reports a service as started before its program has written anything.
            on_volume = f"{host.name}: {name} is on {DATA_VOLUME} and not on the root volume"
            until(on_volume, lambda: any(where != "none" for where, _ in _starts(host, name)), 10)  # noqa: B023
    before = {host.name: {name: _starts(host, name) for name in SERVICES} for host in hosts}
    had = {host.name: mounts(host) for host in hosts}
    reboot(cluster, hosts)
    for host in hosts:
        until(f"{host.name} has its mounts", lambda: had[host.name] <= mounts(host))  # noqa: B023
        _started_as_before(host, before[host.name])
    return f"{len(hosts)} nodes with their pods' folders on {DATA_VOLUME}"


def volume_too_late(cluster: Cluster, host: Host) -> str:
    """A node reboots, and its data volume is mounted only after its boot has given up. Raises CheckFailed."""
    before = {name: _starts(host, name) for name in SERVICES}
    host.write(f"/etc/systemd/system/{WAIT_UNIT}.d/hasty.conf", "[Service]\nTimeoutStartSec=1\n")
    output(host, "systemctl disable rehearsal-data-volume")
    reboot(cluster, [host])
    for name, found in before.items():
        require(_starts(host, name) == found, f"{host.name}: {name} started without {DATA_VOLUME}")
    said = output(host, f"journalctl --boot --output cat --unit {LATE_UNIT}")
    require(f"waiting for {DATA_VOLUME}: containerd and kubelet" in said, f"{host.name} says {said!r}")
    output(host, "systemctl start rehearsal-data-volume")
    _started_as_before(host, before)
    return f"{host.name} has its pods' folders as soon as {DATA_VOLUME} is mounted"


def _starts(host: Host, service: str) -> list[tuple[str, str]]:
    """What a service found at each start."""
    return starts(host.read(log_of(service)))


def _started_as_before(host: Host, before: Mapping[str, list[tuple[str, str]]]) -> None:
    """Each service has started once more, and found what it had."""
    for name, found in before.items():
        until(f"{host.name}: {name} starts again", lambda: len(_starts(host, name)) > len(found), 20)  # noqa: B023
        (where, state), (was, old) = _starts(host, name)[-1], found[-1]
        require(where == was, f"{host.name}: after the reboot {name} started on {where}, and was on {was}")
        require(state == old, f"{host.name}: after the reboot {name} started empty")
    healthy(host)
