"""Writes what other files say into two pages: ``python -m docs.reference``.

docs/configuration.md gets the keys of Pulumi.yaml and the model, docs/troubleshooting.md the failures of stack/advice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from components.config.keys import Key, keys
from components.documents import load
from stack import advice

ROOT = Path(__file__).parents[1]
KEYS, FAILURES = ROOT / "docs" / "configuration.md", ROOT / "docs" / "troubleshooting.md"
BEGIN = "<!-- From here on `make docs-reference` writes this page, from Pulumi.yaml and components/config/model.py. -->"
MADE = "<!-- From here on `make docs-reference` writes this page, from stack/advice.yaml. -->"
_HEAD = "| Key | Values | Default | Meaning | A change in a deployed stack |\n|---|---|---|---|---|"


def found() -> tuple[Key, ...]:
    """Every key."""
    return keys(load((ROOT / "Pulumi.yaml").read_text())["config"])


def reference() -> str:
    """The tables: one for the keys, and one for each key that has keys of its own."""
    holders = [holder for key in found() for holder in (key, *key.below()) if holder.parts]
    parts = ["## Keys", _table(found())]
    for holder in holders:
        parts += [f"## {holder.path}", _table(holder.parts)]
    return "\n\n".join(parts) + "\n"


def failures() -> str:
    """A table of the failures that the project knows, and a section for each, with its code as heading."""
    rows = [f"| [{one.code}](#{one.code.lower()}) | {one.name} | `{one.seen}` |" for one in advice.known()]
    parts = ["\n".join(["| Code | Failure | A message |\n|---|---|---|", *rows])]
    for one in advice.known():
        step = one.step.format(stack="STACK")
        does = f"    {step}" if step.startswith("hyperpod ") else f"**Next**: {step}."
        parts.append(f"## {one.code}\n\n**{one.name}**\n\n    {one.seen}\n\n{one.why}\n\n{does}")
    return "\n\n".join(parts) + "\n"


def pages() -> dict[Path, str]:
    """Each page as it should be: what people have written on top, and what is made."""
    return {
        KEYS: KEYS.read_text().split(BEGIN)[0] + f"{BEGIN}\n\n{reference()}",
        FAILURES: FAILURES.read_text().split(MADE)[0] + f"{MADE}\n\n{failures()}",
    }


def _table(rows: Sequence[Key]) -> str:
    return "\n".join([_HEAD, *map(_row, rows)])


def _row(key: Key) -> str:
    cells = [f"`{key.name}`", key.values or "see below", key.default, key.meaning, key.change]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
