"""A file of YAML with the lines of its keys: what is wrong with it is told with file and line."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from components.common.documents import compose, load

# Keys beside `config` that Pulumi writes or reads (Pulumi's documentation, "Stack settings file reference").
BESIDE = ("encryptedkey", "encryptionsalt", "environment", "secretsprovider")


class ProjectError(Exception):
    """A project or stack file is invalid; the text says which file, where and why. ``hint`` is what would be right.

    ``name`` is that of the failure in operations/failures/known/, where the file itself is at fault.
    """

    def __init__(self, message: str, hint: str = "", name: str = "") -> None:
        super().__init__(message)
        self.hint, self.name = hint, name


@dataclass(frozen=True)
class Document:
    """What a file says. ``lines``: where each key stands, by its path, as config.hyperpod:workers[0].count."""

    content: Mapping[str, Any]
    lines: Mapping[str, int]


def read(path: Path) -> Document:
    """Read a file with keys. Raises ProjectError with file and line."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise _wrong(path, line, "this is not UTF-8 text", "save it as UTF-8, or start from a copy") from None
    except OSError as error:
        raise ProjectError(f"{path.name}: {error.strerror}", name="stack-file") from error
    try:
        return _document(path, text)
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        what = f"the character {error.character:#04x}, which YAML does not allow"
        raise _wrong(path, line, what, "remove it; is this a text file?") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        number = mark.line if mark else 0
        lines = text.splitlines()
        if lines and "\t" in re.match(r"\s*", lines[min(number, len(lines) - 1)])[0]:  # type: ignore[index]
            raise _wrong(path, number + 1, "a tab; YAML is indented with spaces", "use spaces instead") from error
        where = f"column {mark.column + 1}: " if mark else ""
        raise _wrong(path, number + 1, f"{where}{error.problem or 'not YAML'}", "edit that line") from error


@lru_cache(maxsize=8)
def _document(path: Path, text: str) -> Document:
    """Nobody changes what is read, and one process reads the same files for every command and change of a rehearsal."""
    node = compose(text)
    if node is None:
        raise ProjectError(
            f"{path.name}: the file is empty", "`hyperpod init NAME --dry-run` prints a whole one", "stack-file"
        )
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(path, node.start_mark.line + 1, "keys with values are expected", "as `config:`")
    lines: dict[str, int] = {}
    twice = list(_twice(node, "", lines))
    if twice:
        found = "\n".join(
            f"{path.name}, line {again}: {key} is set again, after line {first}" for key, first, again in twice
        )
        raise ProjectError(found, "delete one of the two lines", "stack-file")
    return Document(load(text), lines)


def _twice(node: yaml.Node, path: str, lines: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    """The keys that a mapping has twice, with their lines; ``lines`` gets those of all keys."""
    if isinstance(node, yaml.SequenceNode):
        for number, one in enumerate(node.value):
            lines[f"{path}[{number}]"] = one.start_mark.line + 1
            yield from _twice(one, f"{path}[{number}]", lines)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner, line = f"{path}.{key.value}".removeprefix("."), key.start_mark.line + 1
            # Anchors may be merged any number of times.
            if inner in lines and key.value != "<<":
                yield inner.removeprefix("config."), lines[inner], line
            lines[inner] = line
            yield from _twice(value, inner, lines)


def require_stack_file(path: Path, document: Document) -> None:
    """Raise ProjectError for a key that no stack's file has."""
    for key in document.content:
        if key == "config" or key in BESIDE:
            continue
        near = difflib.get_close_matches(str(key), ("config", *BESIDE), n=1)
        hint = f"did you mean {near[0]}?" if near else "configuration belongs under `config:`"
        raise _wrong(path, document.lines.get(str(key), 1), f"a stack's file has no key {key}", hint)


def line_of(lines: Mapping[str, int], key: str) -> int | None:
    """The line of a key of the configuration, or of what it is a part of; None where neither is in the file."""
    path = f"config.{key}"
    while path != "config":
        if path in lines:
            return lines[path]
        shorter = re.sub(r"(\.[^.:\[\]]+|\[\d+\])$", "", path)
        if shorter == path:
            return None
        path = shorter
    return None


def _wrong(path: Path, line: int, what: str, hint: str) -> ProjectError:
    return ProjectError(f"{path.name}, line {line}: {what}", hint, "stack-file")
