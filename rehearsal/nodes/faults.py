"""Faults of simulated hosts that tests and drills share."""

from .cluster import Cluster
from .hosts import Host
from .lustre import FileSystem

# What waits, waits in no time.
VIRTUAL = {"REHEARSAL_VIRTUAL_TIME": "1"}
# A node that cannot succeed waits for its controller; on HyperPod for a quarter of an hour.
HASTY = {
    "HYPERPOD_TIMEOUT_CONTROLLER": "8",
    "HYPERPOD_TIMEOUT_REGISTER": "8",
    "HYPERPOD_TIMEOUT_SLURM": "8",
    "HYPERPOD_TIMEOUT_RESOURCE_CONFIG": "2",
}
_FILL = """
mkdir -p /run/kept && cp -a {folder}/. /run/kept && size=$(($(du -sk /run/kept | cut -f1) + 64)) &&
mount.real -t tmpfs -o size=${{size}}k,mode=755,uid=$(id -u slurm) spool {folder} &&
cp -a /run/kept/. {folder} && rm -r /run/kept
cat /dev/zero > {folder}/full
"""
_RELIEVE = """
rm {folder}/full; systemctl stop {unit}; mkdir -p /run/kept && cp -a {folder}/. /run/kept && umount {folder} &&
cp -a /run/kept/. {folder} && rm -r /run/kept; systemctl start {unit}
"""


def fill(host: Host, folder: str) -> None:
    """Leave no space on the disk that has this folder, and nothing else."""
    host.run(_FILL.format(folder=folder))


def relieve(host: Host, folder: str, unit: str) -> None:
    """Make space there again, and start the unit anew that uses it."""
    host.run(_RELIEVE.format(folder=folder, unit=unit))


def file_system(cluster: Cluster) -> FileSystem:
    """The stack's own file system."""
    return next(one for one in cluster.endpoint.file_systems if one.id == cluster.stack.file_system)
