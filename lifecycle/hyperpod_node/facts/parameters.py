"""Reads hyperpod_parameters.json, which the stack's program renders next to these scripts from the same dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from reprlib import repr as short
from typing import Any, Literal, Mapping, Union, get_args, get_origin, get_type_hints

from ..host.errors import StepError
from .model import ExtraConf, Node, NodeRecord, Parameters, People

FILE_NAME = "hyperpod_parameters.json"
# The default form of a text: one line.
_LINE = r"[ -~]*"
# None of our numbers is as large; a float holds every whole number below it.
_MOST = 2**53
# Python parses a class's types from their text, which takes most of the time here.
_types = functools.lru_cache(maxsize=None)(get_type_hints)
_WORDS = {int: "a whole number", float: "a number", bool: "true or false"}


def run(node: Node) -> str:
    """Step ``parameters``."""
    path = node.host.settings.source / FILE_NAME
    node.parameters_ = parse(load(node), str(path))
    return f"cluster {node.parameters.cluster_id}, groups {', '.join(node.parameters.groups)}"


def load(node: Node) -> Mapping[str, Any]:
    """Return the unparsed document. Raises StepError if it is missing or no JSON object."""
    path = node.host.settings.source / FILE_NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StepError(f"{path} is missing; the lifecycle bucket should have it next to on_create.sh") from None
    except (OSError, ValueError, RecursionError) as error:
        raise StepError(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise StepError(f"{path} is not a JSON object")
    return document


def render(parameters: Union[Parameters, People, ExtraConf, NodeRecord]) -> str:
    """Return the file's text."""
    defaults = {field.name: field.default for field in dataclasses.fields(parameters)}
    told = {name: value for name, value in dataclasses.asdict(parameters).items() if value != defaults[name]}
    return json.dumps(told, indent=2, sort_keys=True) + "\n"


def parse(document: Mapping[str, Any], path: str) -> Parameters:
    """Parse the text that ``render`` wrote. Raises StepError naming the key that is missing or wrong.

    HYPERPOD_LOST_AFTER in the environment replaces ``lost_after_seconds``.
    """
    try:
        found: Parameters = _object(Parameters, document, "")
        if not found.instance_groups:
            raise ValueError("instance_groups is empty")
        return dataclasses.replace(found, lost_after_seconds=_lost_after(found))
    except ValueError as error:
        raise StepError(f"{path}: {error}") from None


def parse_people(document: Any, path: str) -> People:
    """Parse the text that ``render`` wrote of people. Raises StepError naming the key that is missing or wrong."""
    try:
        found: People = _object(People, document, "the list")
        return found
    except ValueError as error:
        raise StepError(f"{path}: {error}") from None


def part(kind: Any, document: Any, key: str) -> Any:
    """Parse one of the file's objects, by its dataclass. Raises ValueError naming the key that is missing or wrong."""
    return _object(kind, document, key)


def _lost_after(found: Parameters) -> float:
    """Return the seconds of silence after which a node is lost."""
    override = os.environ.get("HYPERPOD_LOST_AFTER")
    key = "HYPERPOD_LOST_AFTER" if override else "lost_after_seconds"
    try:
        seconds = float(override) if override else found.lost_after_seconds
    except ValueError:
        raise ValueError(f"{key} is {override!r}, and should be a number") from None
    if not 0 < seconds < _MOST:
        raise ValueError(f"{key} is {seconds:g}, and should be more than 0")
    return seconds


def _object(kind: Any, value: Any, key: str) -> Any:
    """Build a dataclass from an object with all of its fields except optional ones; other keys are ignored."""
    if not isinstance(value, dict):
        raise ValueError(f"{key} is {short(value)}, and should be an object")
    types = _types(kind)
    fields = {field.name: (f"{key}.{field.name}" if key else field.name, field) for field in dataclasses.fields(kind)}
    lacking = {name: where for name, (where, field) in fields.items() if name not in value}
    if missing := [where for name, where in lacking.items() if fields[name][1].default is dataclasses.MISSING]:
        raise ValueError(f"lacks {', '.join(missing)}")
    return kind(
        **{
            name: _read(types[name], value[name], where, field.metadata.get("form", _LINE))
            for name, (where, field) in fields.items()
            if name not in lacking
        }
    )


def _read(kind: Any, value: Any, key: str, form: str) -> Any:
    """Return a value of a field's type, and of its form if it is text. Raises ValueError naming the key."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Union:  # with None alone, as Optional
        return None if value is None else _read(arguments[0], value, key, form)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{key} is {short(value)}, which is none of {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{key} is {short(value)}, and should be a list")
        return tuple(_read(arguments[0], item, f"{key}[{index}]", form) for index, item in enumerate(value))
    if dataclasses.is_dataclass(kind):
        return _object(kind, value, key)
    if kind is str:
        if not isinstance(value, str) or not re.fullmatch(form, value):
            raise ValueError(f"{key} is {short(value)}, and should be a text of the form {form}")
        return value
    return _number(kind, value, key)


def _number(kind: Any, value: Any, key: str) -> Any:
    """Return a number of this type, or a truth value, which is a number in Python."""
    if kind is float and type(value) is int and value < _MOST:
        value = float(value)
    if type(value) is not kind or not 0 <= value < _MOST:
        raise ValueError(f"{key} is {short(value)}, and should be {_WORDS[kind]}")
    return value
