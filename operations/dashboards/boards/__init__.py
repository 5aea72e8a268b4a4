"""Every dashboard, as functions that build it. The names are those of ``shipped.SHIPPED``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from ..shipped import Shipped
from .cluster import overview
from .cost import cost
from .gpu import gpu, gpu_health
from .network import efa
from .neuron import neuron
from .queues import kubernetes, slurm
from .storage import storage
from .training import training

BOARDS: Mapping[str, Callable[[], Dashboard]] = {
    "overview": overview,
    "gpu": gpu,
    "gpu-health": gpu_health,
    "efa": efa,
    "neuron": neuron,
    "storage": storage,
    "slurm": slurm,
    "kubernetes": kubernetes,
    "training": training,
    "cost": cost,
}


def rendered(shipped: Shipped) -> dict[str, Any]:
    """A dashboard's JSON, as Grafana imports it."""
    return dict(json.loads(json.dumps(BOARDS[shipped.name](), cls=JSONEncoder, sort_keys=True)))
