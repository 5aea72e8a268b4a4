"""How long AWS takes to create each kind of resource. Nothing sleeps; the engine adds up the seconds."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from components.catalogue import rows

from .state import HYPERPOD_CLUSTER

# A control-plane call, for types without a figure in the table.
_CALL_SECONDS = 3.0
_FILE_SYSTEMS = ("aws:fsx/lustreFileSystem:LustreFileSystem", "aws:fsx/openZfsFileSystem:OpenZfsFileSystem")
# What moves a file system's data or servers; days of backups and the like are taken at once.
_REBUILDS = {"storageCapacity", "perUnitStorageThroughput", "throughputCapacity"}


@dataclass(frozen=True, kw_only=True)
class Duration:
    """Seconds until AWS calls a resource of the type ready."""

    type: str
    seconds: float
    source: str


@dataclass(frozen=True, kw_only=True)
class ChangeDuration:
    """Seconds until AWS has changed or deleted a resource of the type, None where that takes a call."""

    type: str
    update: float | None = None
    delete: float | None = None
    source: str


@cache
def durations() -> Mapping[str, Duration]:
    """The rows of ``durations.csv`` by type."""
    return rows.table(Path(__file__).with_name("durations.csv"), Duration, "type")


@cache
def _changes() -> Mapping[str, ChangeDuration]:
    return rows.table(Path(__file__).with_name("change_durations.csv"), ChangeDuration, "type")


def duration(type_token: str, inputs: Mapping[str, Any]) -> float:
    """Seconds until AWS calls the resource ready (durations.csv). Types without a row, like providers, take none."""
    table = durations()
    names = (f"{type_token}/{inputs.get('vpcEndpointType', '')}", type_token, f"{type_token.split(':')[0]}:*")
    return next((table[name].seconds for name in names if name in table), 0.0)


def update_duration(type_token: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> float:
    """Seconds until AWS has changed the resource (change_durations.csv). What only gets other tags takes a call."""
    changed = {key for key in {*old, *new} if old.get(key) != new.get(key)}
    if changed <= {"tags", "tagsAll"} or (type_token == HYPERPOD_CLUSTER and not _adds_nodes(old, new)):
        return _CALL_SECONDS
    if type_token in _FILE_SYSTEMS and not changed & _REBUILDS:
        return _CALL_SECONDS
    row = _changes().get(type_token)
    return row.update if row and row.update is not None else _CALL_SECONDS


def _adds_nodes(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether instances have to come up: what only ends some is called done without waiting for it."""
    before = {group["instanceGroupName"]: group["instanceCount"] for group in old.get("instanceGroups") or []}
    return any(
        group["instanceCount"] > before.get(group["instanceGroupName"], 0) for group in new.get("instanceGroups") or []
    )


def delete_duration(type_token: str) -> float:
    """Seconds until the resource is gone (change_durations.csv)."""
    row = _changes().get(type_token)
    return row.delete if row and row.delete is not None else _CALL_SECONDS


def clock(seconds: float) -> str:
    """``18:13``, or ``1:02:03`` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
