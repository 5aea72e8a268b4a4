"""Drills of a worker's health: a device, its kernel's log or its mount goes bad, Slurm drains it, and it comes back."""

from __future__ import annotations

import time
from functools import partial

from ..checks import require
from ..nodes.checks import output
from ..nodes.cluster import Cluster
from ..nodes.health import FAULTS, Fault, becomes, state
from .model import Drill, Finding

# Slurm's HealthCheckProgram, which slurmd runs every 300 s.
_CHECK = "/opt/hyperpod/bin/hyperpod-health-check || true"


def _checked(cluster: Cluster) -> None:
    for host in cluster.workers:
        output(host, _CHECK)


def _drill(cluster: Cluster, fault: Fault) -> Finding:
    *others, host = cluster.workers
    _checked(cluster)
    began = time.monotonic()
    output(host, fault.begin)
    _checked(cluster)
    becomes(cluster, host, "drained")
    said = state(cluster, host)
    for other in others:
        require(state(cluster, other).startswith("idle"), f"{other.name} too is {state(cluster, other)}")
    output(host, fault.end)
    _checked(cluster)
    if fault.resumed:
        require(state(cluster, host).startswith("drained"), f"{host.name} was resumed before its owner did so")
        output(cluster.controller, f"scontrol update nodename={host.hostname} state=resume")
        _checked(cluster)
    becomes(cluster, host, "idle")
    return Finding(said, seconds=time.monotonic() - began)


HEALTH: tuple[Drill[Cluster], ...] = tuple(
    Drill(fault.name, fault.breaks, "nodes", fault.reason, partial(_drill, fault=fault), fault.unfit)
    for fault in FAULTS.values()
)
