"""What a HyperPod cluster does whose instances do not all come: continuous provisioning, which new clusters have.

SageMaker Developer Guide, "Continuous provisioning for enhanced cluster operations with Slurm" and "... on Amazon EKS":
it is the default of new clusters, and the parameter has no other value. The cluster is in service without what is
missing, and HyperPod requests that again and again. Slurm's controller alone has to come: without an instance for it,
or where its lifecycle script fails, the cluster has failed.
"""

import json
from collections.abc import Mapping
from typing import Any

from components.catalogue.accelerators import lookup
from operations.engine.state import HYPERPOD_CLUSTER

from .books import Books, Live, Refused

_NOTE = "missing"


def short_of(live: Live, kind: str) -> dict[str, int]:
    """How many instances of each group a new cluster goes into service without; nothing where it fails.

    ``kind`` is the fault's: "capacity" is that of accelerators, which AWS lacks first.
    """
    if live.type != HYPERPOD_CLUSTER:
        return {}
    groups = {one["instanceGroupName"]: one for one in live.inputs["instanceGroups"]}
    slurm = "slurm" in (live.inputs.get("orchestrator") or {})
    if kind == "capacity":
        return {name: int(one["instanceCount"]) for name, one in groups.items() if _accelerated(one)}
    if kind == "lifecycle" and not slurm:
        return {name: int(one["instanceCount"]) for name, one in groups.items()}
    return {}


def _accelerated(group: Mapping[str, Any]) -> bool:
    return bool(lookup(group["instanceType"]).accelerator)


def note(live: Live, short: Mapping[str, int], why: Refused) -> None:
    """Record the instances that a cluster lacks."""
    live.notes[_NOTE] = json.dumps({"groups": dict(short), "why": str(why).removeprefix(f"{why.code}: ")})


def missing(live: Live) -> dict[str, int]:
    """How many instances of each group a cluster goes without."""
    found: dict[str, int] = json.loads(live.notes.get(_NOTE, "{}")).get("groups", {})
    return found


def awaited(account: Books) -> list[str]:
    """What the clusters' events tell of instances that did not come (SageMaker API Reference, ListClusterEvents)."""
    told: list[str] = []
    for live in account.find(HYPERPOD_CLUSTER):
        wanted = {one["instanceGroupName"]: int(one["instanceCount"]) for one in live.inputs["instanceGroups"]}
        told += [
            f"{live.name} is InService without {count} of {wanted[group]} instances of {group}, which HyperPod keeps "
            f"requesting: {json.loads(live.notes[_NOTE])['why']}"
            for group, count in missing(live).items()
        ]
    return told


def failed_scripts(account: Books) -> list[str]:
    """Which nodes did not come because their scripts failed, in the form of an engine's failures."""
    return [
        f"{live.name} ({live.type}): nodes of {', '.join(missing(live))} failed: {why}"
        for live in account.find(HYPERPOD_CLUSTER)
        if missing(live) and "lifecycle script" in (why := json.loads(live.notes[_NOTE])["why"]).lower()
    ]


def arrive(account: Books) -> bool:
    """Add the missing instances. Returns whether there were any."""
    found = [live.notes.pop(_NOTE, None) for live in account.find(HYPERPOD_CLUSTER)]
    return any(found)
