"""Pulumi.yaml and Pulumi.<stack>.yaml, read as the CLI reads them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from components.config import is_kept_secret, kept_secret, mistyped, parse
from components.documents import load

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class ProjectError(Exception):
    """A project or stack file is invalid; the text says which file, where and why. ``hint`` is what would be right."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Project:
    """A project with one stack's configuration, every value as the text that the engine hands to a program."""

    folder: Path
    name: str
    stack: str
    main: Path
    config: dict[str, str]


def stack_names(folder: Path) -> list[str]:
    """The stacks of a project that have a file."""
    return sorted(path.name.split(".")[1] for path in folder.glob("Pulumi.*.yaml"))


def _meant(stack: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(stack, known, n=1)
    return f"did you mean {near[0]}?" if near else f"stacks here: {', '.join(known)}"


def load_project(folder: Path, stack: str, overrides: Sequence[str] = ()) -> Project:
    """Read both files and lay ``key=value`` overrides over them.

    Raises ProjectError, and ConfigError where a value is of the wrong type.
    """
    project = _read(folder / "Pulumi.yaml")
    path = folder / f"Pulumi.{stack}.yaml"
    if not path.is_file():
        raise ProjectError(f'there is no stack "{stack}": {path.name} is missing', _meant(stack, stack_names(folder)))
    name = str(project["name"])
    values = {_full(key, name): value for key, value in (_read(path).get("config") or {}).items()}
    for override in overrides:
        key, value = parse_override(override)
        values[_full(key, name)] = value
    schema = {_full(key, name): entry for key, entry in (project.get("config") or {}).items()}
    return Project(
        folder=folder,
        name=name,
        stack=stack,
        main=folder / project.get("main", ".") / "__main__.py",
        config=_with_schema(values, schema),
    )


def parse_override(text: str, option: str = "--config") -> tuple[str, Any]:
    """``key=value`` as ``pulumi config set`` takes them; lists and objects as JSON. Raises ProjectError."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ProjectError(f'{option} takes key=value, not "{text}"', f"{option} hyperpod:size=large, for example")
    if value[:1] in ("{", "["):
        try:
            return key.strip(), json.loads(value)
        except ValueError as error:
            raise ProjectError(f"{key}: not JSON ({error})") from error
    return key.strip(), value


def _read(path: Path) -> dict[str, Any]:
    try:
        document = _document(path.read_text())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise ProjectError(f"{path.name}, {where}: {error.problem or 'not YAML'}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"{path.name}: {error}") from error
    if not isinstance(document, dict):
        raise ProjectError(f"{path.name}: a mapping of keys is expected")
    config = document.get("config")
    if config is not None and not isinstance(config, dict):
        raise ProjectError(f"{path.name}: config: a mapping of keys is expected")
    return document


@lru_cache(maxsize=8)
def _document(text: str) -> Any:
    """Nobody changes what is read, and one process reads the same files for every command and change of a rehearsal."""
    return load(text)


def _full(key: str, project: str) -> str:
    return key if ":" in key else f"{project}:{key}"


def _with_schema(values: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, str]:
    """Defaults filled in and types checked as the CLI does; keys that the schema lacks are the program's to refuse.

    The CLI stops at the first value of a wrong type. Here the rest is checked too, by the program's own rules. Raises
    ConfigError with everything that is wrong.
    """
    config = {key: _text(value) for key, value in values.items()}
    problems = []
    for key, entry in schema.items():
        if key not in values:
            if "default" not in entry:
                raise ProjectError(f"Stack is missing configuration value '{key}'")
            config[key] = _text(entry["default"])
            continue
        wanted, value = entry.get("type", "string"), values[key]
        if is_kept_secret(value):
            problems.append(kept_secret(key))
        elif not _fits(value, wanted):
            problems.append(mistyped(key, value, wanted))
    if problems:
        parse(config, problems)
    return config


def _fits(value: Any, wanted: str) -> bool:
    if isinstance(value, str) and wanted in ("integer", "boolean"):
        return value.lstrip("-").isdigit() if wanted == "integer" else value in ("true", "false")
    if wanted == "integer" and isinstance(value, bool):
        return False
    return isinstance(value, _TYPES[wanted])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)
