"""Writes the key reference of docs/configuration.md from Pulumi.yaml and the model: ``python -m docs.reference``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from components.config.fields import Change, Model, limits, models
from components.config.model import Settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"
BEGIN = "<!-- From here on `make docs-reference` writes this page, from Pulumi.yaml and components/config/model.py. -->"
_HEAD = "| Key | Values | Default | Meaning | A change in a deployed stack |\n|---|---|---|---|---|"
_SIMPLE = {bool: "true or false", int: "whole number", str: "text", dict: "names with texts"}


def reference() -> str:
    """The tables: one for the keys, and one for each key that has keys of its own."""
    schema = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    rows = [
        _row(key, field, schema[key]["description"], schema[key]["default"]) for key, field in Settings.keys().items()
    ]
    parts = ["## Keys", "\n".join([_HEAD, *rows])]
    for path, model in sections(Settings):
        rows = [_row(key, field, field.description or "", field.default) for key, field in model.keys().items()]
        parts += [f"## {path}", "\n".join([_HEAD, *rows])]
    return "\n\n".join(parts) + "\n"


def page() -> str:
    """All of docs/configuration.md: what people have written on top, and the reference."""
    return PAGE.read_text().split(BEGIN)[0] + f"{BEGIN}\n\n{reference()}"


def sections(model: type[Model], path: str = "") -> Iterator[tuple[str, type[Model]]]:
    """The models below a model, each with the key that holds it, at any depth."""
    for key, field in model.keys().items():
        for below in models(field.annotation):
            yield f"{path}{key}", below
            yield from sections(below, f"{path}{key}.")


def change(field: FieldInfo) -> Change | None:
    """What a change of a key does; None for a key that only holds others."""
    return next((one for one in field.metadata if isinstance(one, Change)), None)


def _row(key: str, field: FieldInfo, meaning: str, default: Any) -> str:
    below = next(models(field.annotation), None)
    values = "see below" if below else _values(field.annotation, field.metadata)
    cells = [f"`{key}`", values, _default(field, default), " ".join(meaning.split()), str(change(field) or "")]
    return f"| {' | '.join(cells)} |"


def _default(field: FieldInfo, default: Any) -> str:
    if field.is_required():
        return "required"
    if isinstance(default, bool | int):
        return json.dumps(default)
    return default if isinstance(default, str) else ""


def _values(annotation: Any, metadata: list[Any]) -> str:
    """What a value may be. A text's form is told where it is wrong."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _values(arguments[0], [*metadata, *arguments[1:]])
    if origin is Literal:
        *others, last = map(str, arguments)
        return f"{', '.join(others)} or {last}" if others else last
    if origin is tuple:
        return f"list of: {_values(arguments[0], [])}"
    if NoneType in arguments:
        return _values(next(one for one in arguments if one is not NoneType), metadata)
    return limits(metadata) or _SIMPLE[origin or annotation]


if __name__ == "__main__":
    PAGE.write_text(page())
