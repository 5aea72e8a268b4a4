"""How long AWS takes to make each kind of resource. Nothing sleeps; the engine adds the seconds up."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _durations() -> dict[str, float]:
    with (Path(__file__).parent / "durations.csv").open(newline="") as table:
        return {row["type"]: float(row["seconds"]) for row in csv.DictReader(table)}


def duration(type_token: str, inputs: Mapping[str, Any]) -> float:
    """Seconds until AWS calls the resource ready (durations.csv). Types without a row, like providers, take none."""
    table = _durations()
    names = (f"{type_token}/{inputs.get('vpcEndpointType', '')}", type_token, f"{type_token.split(':')[0]}:*")
    return next((table[name] for name in names if name in table), 0.0)


def clock(seconds: float) -> str:
    """``18:13``, or ``1:02:03`` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
