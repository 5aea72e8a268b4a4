"""Describes what can be configured: each key with its values, its default, its meaning, and the effect of a change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from ..schema.fields import Change, limits, models
from .model import Settings

_SIMPLE = {bool: "true or false", int: "whole number", str: "text", dict: "names with texts"}


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key by its path, such as fsx.storageGiB. ``values`` is empty if it only holds others, its ``parts``.

    ``choices`` are its values if these are a few words. ``change`` describes the effect of a change on a deployed
    stack, ``kind`` classifies it (``Change``).
    """

    path: str
    values: str
    default: str
    meaning: str
    change: str
    kind: str
    choices: tuple[str, ...] = ()
    parts: tuple[Key, ...] = ()

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition(".")[2]

    def below(self) -> Iterator[Key]:
        """Return every key below this one, at any depth."""
        for part in self.parts:
            yield part
            yield from part.below()


def keys(schema: Mapping[str, Mapping[str, Any]]) -> tuple[Key, ...]:
    """Return the keys of a stack. ``schema`` is ``config`` of Pulumi.yaml, which has their meanings and defaults."""
    return tuple(
        _key(name, field, schema[name]["description"], schema[name]["default"])
        for name, field in Settings.keys().items()
    )


def _key(path: str, field: FieldInfo, meaning: str, default: Any) -> Key:
    parts = [
        _key(f"{path}.{name}", part, part.description or "", part.default)
        for model in models(field.annotation)
        for name, part in model.keys().items()
    ]
    change = next((one for one in field.metadata if isinstance(one, Change)), None)
    return Key(
        path=path,
        values="" if parts else _values(field.annotation, field.metadata),
        default=_default(field, default),
        meaning=" ".join(meaning.split()),
        change=str(change or ""),
        kind=change.kind if change else "",
        choices=() if parts else _choices(field.annotation),
        parts=tuple(parts),
    )


def _choices(annotation: Any) -> tuple[str, ...]:
    if annotation is bool:
        return "true", "false"
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    return next(filter(None, map(_choices, get_args(annotation))), ()) if NoneType in get_args(annotation) else ()


def _default(field: FieldInfo, default: Any) -> str:
    if field.is_required():
        return "required"
    if isinstance(default, bool | int):
        return json.dumps(default)
    return default if isinstance(default, str) else ""


def _values(annotation: Any, metadata: list[Any]) -> str:
    """Describe the valid values. The form of a text is explained in its error."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _values(arguments[0], [*metadata, *arguments[1:]])
    if origin is Literal:
        *others, last = _choices(annotation)
        return f"{', '.join(others)} or {last}" if others else last
    if origin is tuple:
        return f"list of: {_values(arguments[0], [])}"
    if NoneType in arguments:
        return _values(next(one for one in arguments if one is not NoneType), metadata)
    return limits(metadata) or _SIMPLE[origin or annotation]
