"""Writes the dashboards' JSON: ``python -m operations.dashboards.generate``, or ``make dashboards``."""

from __future__ import annotations

import json

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from .boards import BOARDS
from .shipped import BY_NAME, FOLDER


def rendered(name: str) -> str:
    """The JSON of a dashboard, as it is checked in."""
    return json.dumps(BOARDS[name](), cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name in BY_NAME:
        BY_NAME[name].path.write_text(rendered(name), encoding="utf-8")


if __name__ == "__main__":
    main()
