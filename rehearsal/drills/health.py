"""Drills of a worker's health: a device, its kernel's log or its mount goes bad, Slurm drains it, and it comes back."""

from __future__ import annotations

import time
from collections.abc import Callable

from components.config import Config

from ..checks import require
from ..nodes.checks import output
from ..nodes.cluster import Cluster
from ..nodes.health import FAULTS, becomes, state
from .model import Drill, Finding

# Slurm's HealthCheckProgram, which slurmd runs every 300 s.
_CHECK = "/opt/hyperpod/bin/hyperpod-health-check || true"


def _checked(cluster: Cluster) -> None:
    for host in cluster.workers:
        output(host, _CHECK)


def _drill(cluster: Cluster, fault: str, resumed: bool) -> Finding:
    """``resumed``: whether its owner has to say that the node is well."""
    *others, host = cluster.workers
    _checked(cluster)
    began = time.monotonic()
    output(host, FAULTS[fault].begin)
    _checked(cluster)
    becomes(cluster, host, "drained")
    said = state(cluster, host)
    for other in others:
        require(state(cluster, other).startswith("idle"), f"{other.name} too is {state(cluster, other)}")
    output(host, FAULTS[fault].end)
    _checked(cluster)
    if resumed:
        require(state(cluster, host).startswith("drained"), f"{host.name} was resumed before its owner did so")
        output(cluster.controller, f"scontrol update nodename={host.hostname} state=resume")
        _checked(cluster)
    becomes(cluster, host, "idle")
    return Finding(said, seconds=time.monotonic() - began)


def _of(
    name: str, breaks: str, fault: str, tells: str, unfit: Callable[[Config], str], resumed: bool = False
) -> Drill[Cluster]:
    return Drill(name, breaks, "nodes", tells, lambda cluster: _drill(cluster, fault, resumed), unfit)


def _no_gpu(config: Config) -> str:
    return "" if config.worker_groups[0].type.accelerator == "gpu" else "the workers have no GPU"


def _no_efa(config: Config) -> str:
    return "" if config.worker_groups[0].type.efa == "yes" else "the workers may have no EFA device"


HEALTH: tuple[Drill[Cluster], ...] = (
    _of(
        "gpu-missing",
        "a GPU's device is gone, and comes back",
        "device",
        r"hyperpod-health: accelerators: \d+ of \d+ devices",
        _no_gpu,
    ),
    _of(
        "gpu-xid",
        "the kernel's log has XID 79 of a GPU, which its owner resets",
        "xid",
        r"hyperpod-health: xid: XID 79",
        _no_gpu,
        resumed=True,
    ),
    _of(
        "fsx-unmounted",
        "a worker loses its mount of the file system, which is mounted again",
        "mount",
        r"hyperpod-health: lustre: /fsx is not mounted",
        lambda config: "",
    ),
    _of(
        "efa-missing",
        "an EFA device is gone, and comes back",
        "efa",
        r"hyperpod-health: efa: \d+ of \d+ EFA devices",
        _no_efa,
    ),
)
