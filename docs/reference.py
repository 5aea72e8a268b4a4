"""Writes the key reference of docs/configuration.md from Pulumi.yaml and the model: ``python -m docs.reference``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from components.config.keys import Key, keys

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"
BEGIN = "<!-- From here on `make docs-reference` writes this page, from Pulumi.yaml and components/config/model.py. -->"
_HEAD = "| Key | Values | Default | Meaning | A change in a deployed stack |\n|---|---|---|---|---|"


def found() -> tuple[Key, ...]:
    """Every key."""
    return keys(yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"])


def reference() -> str:
    """The tables: one for the keys, and one for each key that has keys of its own."""
    holders = [holder for key in found() for holder in (key, *key.below()) if holder.parts]
    parts = ["## Keys", _table(found())]
    for holder in holders:
        parts += [f"## {holder.path}", _table(holder.parts)]
    return "\n\n".join(parts) + "\n"


def page() -> str:
    """All of docs/configuration.md: what people have written on top, and the reference."""
    return PAGE.read_text().split(BEGIN)[0] + f"{BEGIN}\n\n{reference()}"


def _table(rows: Sequence[Key]) -> str:
    return "\n".join([_HEAD, *map(_row, rows)])


def _row(key: Key) -> str:
    cells = [f"`{key.name}`", key.values or "see below", key.default, key.meaning, key.change]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
