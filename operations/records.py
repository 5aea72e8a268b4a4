"""Results of earlier runs of the verbs, as JSON lines in ``.operations/STACK``, which git ignores."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .target import Target

FOLDER = ".operations"


def folder(target: Target) -> Path:
    """The stack's folder, created if it is missing."""
    path = target.project.folder / FOLDER / target.stack
    path.mkdir(parents=True, exist_ok=True)
    return path


def add(target: Target, name: str, record: Mapping[str, Any]) -> None:
    """Append a record with the time."""
    line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **record}, default=str)
    with (folder(target) / f"{name}.jsonl").open("a") as file:
        file.write(line + "\n")


def read(target: Target, name: str) -> list[dict[str, Any]]:
    """All records of that name, oldest first, without incomplete lines."""
    path = target.project.folder / FOLDER / target.stack / f"{name}.jsonl"
    if not path.is_file():
        return []
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records
