"""The overview: the page to open first, and the same for all four variants."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from ..panels import (
    ANY_IS_BAD,
    NODE,
    NODE_BUSY,
    RATE,
    Look,
    Query,
    bars,
    board,
    figure,
    graph,
    low,
    number,
    rows,
    states,
    warn,
    words,
)
from ..shipped import BY_NAME

_BUSY = f"hyperpod:accelerator_busy_ratio{{{NODE}}}"
_HELD = f"hyperpod:accelerators_allocated{{{NODE}}}"
_ALL = f"hyperpod:accelerators{{{NODE}}}"
_CHECKS = {"0": ("failed", "red"), "1": ("passed", "green")}
_ABOUT = """
An **accelerator** is a GPU, or on Trainium a device. It is *allocated* while a job of Slurm or a pod of Kubernetes
holds it, and *busy* by the share of time in which it computes. On EKS, exporters belong to AWS's add-on, and health
checks set conditions of Kubernetes' nodes: the panels of both are empty there. On Trainium a NeuronCore has a figure
only while a runtime is loaded; an unused node shows nothing under *busy*.
"""


def overview() -> Dashboard:
    """The cluster at a glance, then what needs a look, then each node's load."""
    return board(
        BY_NAME["overview"],
        (
            (
                "Now",
                (
                    number("Nodes", f"count(hyperpod_node_info{{{NODE}}})", look=figure(4)),
                    number("Accelerators", f"sum({_ALL})", look=figure(4)),
                    number(
                        "Allocated",
                        f"sum({_HELD}) / sum({_ALL})",
                        look=figure(4, unit="percentunit", top=1, steps=low(0.5, 0.8)),
                    ),
                    number(
                        "Busy",
                        f"avg({_BUSY})",
                        look=figure(4, unit="percentunit", top=1, steps=low(0.3, 0.6)),
                    ),
                    number(
                        "Failed health checks",
                        f"count(hyperpod_health_check_ok{{{NODE}}} == 0) or vector(0)",
                        look=figure(4, steps=ANY_IS_BAD),
                    ),
                    number(
                        "Exporters down",
                        f"count(hyperpod_exporter_up{{{NODE}}} == 0) or vector(0)",
                        look=figure(4, steps=ANY_IS_BAD),
                    ),
                    graph(
                        "Accelerators: total, allocated, busy",
                        Query(f"sum({_ALL})", "total"),
                        Query(f"sum({_HELD})", "allocated"),
                        Query(f"sum({_ALL} * on (cluster, group, node) {NODE_BUSY})", "busy"),
                        look=Look(),
                    ),
                    graph("Busy, by group", Query(f"avg by (group) ({_BUSY})", "{{group}}"), look=_share()),
                ),
            ),
            (
                "Needs attention",
                (
                    rows(
                        "Nodes that stopped reporting in the last hour",
                        _lost(f"hyperpod_node_info{{{NODE}}}"),
                        "seconds since",
                        look=Look(unit="s", width=8, empty="none"),
                    ),
                    bars(
                        "Allocated, and less than a tenth busy",
                        Query(
                            f"bottomk(10, avg by (node) {NODE_BUSY} < 0.1 and on (node) (sum by (node) ({_HELD}) > 0))"
                        ),
                        look=Look(unit="percentunit", width=8, top=1, steps=low(0.05, 0.5), empty="none"),
                    ),
                    rows(
                        "Failed health checks",
                        f"max by (node, group, check) (hyperpod_health_check_ok{{{NODE}}}) == 0",
                        "result",
                        look=Look(width=8, empty="none"),
                    ),
                    states(
                        "Health checks of each node: all passed, or not",
                        Query(f"min by (node) (hyperpod_health_check_ok{{{NODE}}})"),
                        _CHECKS,
                        look=Look(),
                    ),
                    states(
                        "Exporters of each node: all up, or not",
                        Query(f"min by (node) (hyperpod_exporter_up{{{NODE}}})"),
                        {"0": ("down", "red"), "1": ("up", "green")},
                        look=Look(empty="AWS's add-on looks after its exporters"),
                    ),
                ),
            ),
            (
                "Nodes",
                (
                    graph("Accelerators busy", Query(f"avg by (node) ({_BUSY})"), look=_share()),
                    graph(
                        "Processors busy",
                        Query(f'1 - avg by (node) (rate(node_cpu_seconds_total{{{NODE}, mode="idle"}}[{RATE}]))'),
                        look=_share(),
                    ),
                    graph(
                        "Memory used",
                        Query(
                            f"1 - sum by (node) (node_memory_MemAvailable_bytes{{{NODE}}}) "
                            f"/ sum by (node) (node_memory_MemTotal_bytes{{{NODE}}})"
                        ),
                        look=_share(steps=warn(0.9, 0.97)),
                    ),
                    graph(
                        "Fullest local disk",
                        Query(_fullest()),
                        look=_share(steps=warn(0.8, 0.9)),
                    ),
                    words(_ABOUT),
                ),
            ),
        ),
    )


def _share(*, steps: tuple[tuple[float | None, str], ...] = ()) -> Look:
    return Look(unit="percentunit", top=1, steps=steps)


def _lost(series: str) -> str:
    """When a series of the last hour that is gone was last seen: seconds ago."""
    return f"time() - max by (node, group) (max_over_time(timestamp({series})[1h:1m])) unless on (node, group) {series}"


def _fullest() -> str:
    disks = f'{{{NODE}, fstype=~"ext4|xfs|btrfs"}}'
    return f"max by (node) (1 - node_filesystem_avail_bytes{disks} / node_filesystem_size_bytes{disks})"
