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

_NOTE, _LACKING = "missing", "lacking"


def types_of(group: Mapping[str, Any]) -> list[str]:
    """A group's instance types, in the order in which HyperPod tries them."""
    several = (group.get("instanceRequirements") or {}).get("instanceTypes")
    return list(several or [group["instanceType"]])


def short_of(live: Live, kind: str, of_type: str = "") -> dict[str, int] | None:
    """How many instances of each group a new cluster goes into service without; None where it fails.

    ``kind`` is the fault's: "capacity" is that of accelerators, which AWS lacks first, or of one type alone.
    """
    if live.type != HYPERPOD_CLUSTER:
        return None
    groups = {one["instanceGroupName"]: one for one in live.inputs["instanceGroups"]}
    slurm = "slurm" in (live.inputs.get("orchestrator") or {})
    if kind == "capacity":
        return {name: int(one["instanceCount"]) for name, one in groups.items() if _lacks(one, of_type)}
    if kind == "lifecycle" and not slurm:
        return {name: int(one["instanceCount"]) for name, one in groups.items()}
    return None


def _lacks(group: Mapping[str, Any], of_type: str) -> bool:
    types = types_of(group)
    return types == [of_type] if of_type else bool(lookup(types[0]).accelerator)


def note_lacking(live: Live, of_type: str) -> None:
    """Record a type that AWS lacks: HyperPod falls back to the next one of a group."""
    live.notes[_LACKING] = of_type


def arriving(live: Live, group: Mapping[str, Any]) -> str:
    """The type of which a group's nodes come now (SageMaker Developer Guide, "Continuous provisioning for enhanced
    cluster operations on Amazon EKS", Flexible instance groups): the first that AWS has. Empty if none come.
    """
    if int(group["instanceCount"]) <= missing(live).get(group["instanceGroupName"], 0):
        return ""
    return next((name for name in types_of(group) if name != live.notes.get(_LACKING)), "")


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
        told += _fallen_back(live)
        wanted = {one["instanceGroupName"]: int(one["instanceCount"]) for one in live.inputs["instanceGroups"]}
        told += [
            f"{live.name} is InService without {count} of {wanted[group]} instances of {group}, which HyperPod keeps "
            f"requesting: {json.loads(live.notes[_NOTE])['why']}"
            for group, count in missing(live).items()
        ]
    return told


def _fallen_back(live: Live) -> list[str]:
    return [
        f"{live.name} has {kind} in {one['instanceGroupName']}: AWS lacks {types_of(one)[0]}, which is tried first"
        for one in live.inputs["instanceGroups"]
        if (kind := arriving(live, one)) not in ("", types_of(one)[0])
    ]


def failed_scripts(account: Books) -> list[str]:
    """Which nodes did not come because their scripts failed, in the form of an engine's failures."""
    return [
        f"{live.name} ({live.type}): nodes of {', '.join(missing(live))} failed: {why}"
        for live in account.find(HYPERPOD_CLUSTER)
        if missing(live) and "lifecycle script" in (why := json.loads(live.notes[_NOTE])["why"]).lower()
    ]


def arrive(account: Books) -> bool:
    """Add the missing instances. Returns whether there were any. Nodes of another type than the first stay."""
    found = [live.notes.pop(_NOTE, None) for live in account.find(HYPERPOD_CLUSTER)]
    return any(found)
