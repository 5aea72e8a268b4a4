"""Storage: the shared Lustre file system, counted once, and the disks of each node."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from ..panels import ANY_IS_BAD, CLUSTER, NODE, RATE, Look, Query, bars, board, figure, graph, number, rows, warn, words
from ..shipped import BY_NAME

# Read-only images of packages are always full, and memory is not a disk.
_DISK = f'{{{NODE}, fstype=~"ext4|xfs|btrfs"}}'
_LUSTRE = f'{{{CLUSTER}, component="client"}}'
_FULL = f"1 - node_filesystem_avail_bytes{_DISK} / node_filesystem_size_bytes{_DISK}"
_INODES = f"1 - node_filesystem_files_free{_DISK} / node_filesystem_files{_DISK}"
_ABOUT = """
Every node sees the same file system, so its size is counted once, and its traffic is the sum of all nodes'. What FSx
itself measures (disk throughput of each server, metadata operations) is in CloudWatch, namespace `AWS/FSx`. On EKS,
Lustre's clients report nothing to Prometheus: the first two rows are empty there, and CloudWatch has the figures.
"""


def _rate(counter: str) -> str:
    return f'sum by (node) (rate({counter}{{{NODE}, component="client"}}[{RATE}]))'


def storage() -> Dashboard:
    """Shared first: it stops everything at once when it is full."""
    capacity = f"max by (target) (lustre_capacity_kibibytes{_LUSTRE})"
    free = f"max by (target) (lustre_available_kibibytes{_LUSTRE})"
    slow = f"rate(node_disk_io_time_seconds_total{{{NODE}}}[{RATE}])"
    return board(
        BY_NAME["storage"],
        (
            (
                "Shared file system",
                (
                    number("Size", f"sum({capacity}) * 1024", look=figure(6, unit="bytes")),
                    number(
                        "Used",
                        f"1 - sum({free}) / sum({capacity})",
                        look=figure(6, unit="percentunit", top=1, steps=warn(0.8, 0.9)),
                    ),
                    number(
                        "Files used",
                        f"1 - sum(max by (target) (lustre_inodes_free{_LUSTRE})) "
                        f"/ sum(max by (target) (lustre_inodes_maximum{_LUSTRE}))",
                        look=figure(6, unit="percentunit", top=1, steps=warn(0.8, 0.9)),
                    ),
                    number(
                        "Nodes that have it mounted",
                        f"count(count by (node) (lustre_capacity_kibibytes{_LUSTRE}))",
                        look=figure(6),
                    ),
                    graph(
                        "Used",
                        Query(f"1 - {free} / {capacity}", "{{target}}"),
                        look=Look(unit="percentunit", top=1, steps=warn(0.8, 0.9)),
                    ),
                    graph(
                        "Read and written, all nodes",
                        Query(f'sum(rate(lustre_read_bytes_total{{{NODE}, component="client"}}[{RATE}]))', "read"),
                        Query(f'sum(rate(lustre_write_bytes_total{{{NODE}, component="client"}}[{RATE}]))', "written"),
                        look=Look(unit="Bps"),
                    ),
                ),
            ),
            (
                "Who uses it",
                (
                    graph("Read", Query(_rate("lustre_read_bytes_total")), look=Look(unit="Bps", width=8)),
                    graph("Written", Query(_rate("lustre_write_bytes_total")), look=Look(unit="Bps", width=8)),
                    graph(
                        "Operations",
                        Query(
                            f'sum by (operation) (rate(lustre_stats_total{{{NODE}, component="client"}}[{RATE}]))',
                            "{{operation}}",
                        ),
                        look=Look(unit="ops", width=8),
                    ),
                ),
            ),
            (
                "Disks of nodes",
                (
                    bars(
                        "Ten fullest",
                        Query(f"topk(10, max by (node, mountpoint) ({_FULL}))", "{{node}} {{mountpoint}}"),
                        look=Look(unit="percentunit", top=1, steps=warn(0.8, 0.9), width=8),
                    ),
                    bars(
                        "Ten with the fewest free files",
                        Query(f"topk(10, max by (node, mountpoint) ({_INODES}))", "{{node}} {{mountpoint}}"),
                        look=Look(unit="percentunit", top=1, steps=warn(0.8, 0.9), width=8),
                    ),
                    rows(
                        "Disks that became read-only",
                        f"max by (node, mountpoint, device) (node_filesystem_readonly{_DISK}) > 0",
                        "read-only",
                        look=Look(width=8, empty="none", steps=ANY_IS_BAD),
                    ),
                    graph(
                        "Read and written",
                        Query(f"sum by (node) (rate(node_disk_read_bytes_total{{{NODE}}}[{RATE}]))", "{{node}}, read"),
                        Query(
                            f"sum by (node) (rate(node_disk_written_bytes_total{{{NODE}}}[{RATE}]))",
                            "{{node}}, written",
                        ),
                        look=Look(unit="Bps"),
                    ),
                    graph(
                        "Busiest disk",
                        Query(f"max by (node) ({slow})"),
                        look=Look(unit="percentunit", top=1, steps=warn(0.8, 0.95)),
                    ),
                    words(_ABOUT),
                ),
            ),
        ),
    )
