"""Pulumi.yaml and Pulumi.<stack>.yaml, read as the CLI reads them."""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from components.config import BY_OPTION, Config, ConfigError, is_kept_secret, kept_secret, mistyped, parse

from . import stack_names
from .stack_file import Document, ProjectError, line_of, read, require_stack_file

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}


@dataclass(frozen=True)
class Project:
    """A project with one stack's configuration, every value as the text that the engine hands to a program.

    ``lines``: where the stack's file sets each key, by its path below config; 0 for what an option has set.
    """

    folder: Path
    name: str
    stack: str
    main: Path
    config: dict[str, str]
    lines: Mapping[str, int] = field(default_factory=dict)

    def located(self, refused: ConfigError) -> ConfigError:
        """The same problems, each with the file and line that is at fault, where one is."""
        found = [(problem, line_of(self.lines, problem.key)) for problem in refused.problems]
        places = {line: f"Pulumi.{self.stack}.yaml, line {line}" if line else BY_OPTION for _, line in found}
        return ConfigError([one if line is None else replace(one, where=places[line]) for one, line in found])


def _meant(stack: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(stack, known, n=1)
    return f"did you mean {near[0]}?" if near else f"stacks here: {', '.join(known)}"


def load_project(folder: Path, stack: str, overrides: Sequence[str] = ()) -> Project:
    """Read both files and lay ``key=value`` overrides over them.

    Raises ProjectError, and ConfigError where a value is of the wrong type.
    """
    whole = read(folder / "Pulumi.yaml")
    project = whole.content
    path = folder / f"Pulumi.{stack}.yaml"
    if not path.is_file():
        raise ProjectError(f'there is no stack "{stack}": {path.name} is missing', _meant(stack, stack_names(folder)))
    name = str(project["name"])
    document = read(path)
    require_stack_file(path, document)
    values, lines = _values(path, document, name)
    for override in overrides:
        key, value = parse_override(override)
        values[_full(key, name)] = value
        start = f"config.{_full(key, name)}"
        lines = {path: line for path, line in lines.items() if not path.startswith(start)} | {start: 0}
    schema = {_full(key, name): entry for key, entry in _config(folder / "Pulumi.yaml", whole).items()}
    found = Project(
        folder=folder,
        name=name,
        stack=stack,
        main=folder / project.get("main", ".") / "__main__.py",
        config={},
        lines=lines,
    )
    try:
        return replace(found, config=_with_schema(values, schema))
    except ConfigError as refused:
        raise found.located(refused) from None


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


def _config(path: Path, document: Document) -> Mapping[str, Any]:
    config = document.content.get("config")
    if config is not None and not isinstance(config, dict):
        line = document.lines["config"]
        raise ProjectError(f"{path.name}, line {line}: config: keys with values are expected", name="stack-file")
    return config or {}


def _values(path: Path, document: Document, project: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The file's configuration by full keys, and their lines. Raises ProjectError for a key with two names."""
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for name, value in _config(path, document).items():
        key, line = _full(str(name), project), document.lines.get(f"config.{name}", 0)
        if key in values:
            said = f"{path.name}, line {line}: {key} is set again, after line {lines[f'config.{key}']}"
            raise ProjectError(said, "delete one of the two lines", "stack-file")
        values[key] = value
        start = f"config.{name}"
        lines |= {
            f"config.{key}{inner.removeprefix(start)}": at
            for inner, at in document.lines.items()
            if inner == start or inner.startswith((f"{start}.", f"{start}["))
        }
    return values, lines


def checked(project: Project) -> Config:
    """The project's configuration. Raises ConfigError with every problem, each with its file and line."""
    try:
        return parse(project.config)
    except ConfigError as refused:
        raise project.located(refused) from None


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
