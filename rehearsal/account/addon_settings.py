"""The configuration values that EKS's add-ons accept, for add-ons with a published schema (addon_settings.csv)."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from components.catalogue import rows

from .books import Refused

_TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


@dataclass(frozen=True, kw_only=True)
class _Setting:
    addon: str
    path: str
    type: Literal["object", "array", "string", "integer", "boolean"]
    source: str


@cache
def _schemas() -> dict[str, dict[str, type]]:
    """By add-on: the type of the value at each path."""
    schemas: dict[str, dict[str, type]] = {}
    for row in rows.read(Path(__file__).with_name("addon_settings.csv"), _Setting):
        schemas.setdefault(row.addon, {})[row.path] = _TYPES[row.type]
    return schemas


def check_settings(addon: str, text: str) -> None:
    """Refuse values that are not in the add-on's schema; add-ons without a published schema accept none."""
    try:
        values = json.loads(text)
    except ValueError:
        raise Refused("InvalidParameterException", "ConfigurationValue provided in request is not JSON") from None
    if problems := list(_problems(values, _schemas().get(addon, {}), "")):
        raise Refused(
            "InvalidParameterException",
            "ConfigurationValue provided in request is not supported: Json schema validation failed with error: "
            f"[{', '.join(problems)}]",
        )


def _problems(values: Mapping[str, Any], schema: Mapping[str, type], path: str) -> Iterator[str]:
    for key, value in values.items():
        here = f"{path}.{key}" if path else key
        if here in schema:
            if type(value) is not schema[here]:
                yield f"$.{here}: {type(value).__name__} found, {schema[here].__name__} expected"
        elif isinstance(value, Mapping) and any(known.startswith(f"{here}.") for known in schema):
            yield from _problems(value, schema, here)
        else:
            yield f"$.{here}: is not defined in the schema and the schema does not allow additional properties"
