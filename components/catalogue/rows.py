"""Tables of facts: a CSV file's rows as frozen dataclasses, every cell checked by pydantic against the field's type."""

import csv
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from pydantic import BeforeValidator, TypeAdapter, ValidationError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# A cell of several words, with spaces between them.
Words: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(str.split)]
WordSet: TypeAlias = Annotated[frozenset[str], BeforeValidator(str.split)]

_Row = TypeVar("_Row", bound="DataclassInstance")


class TableError(ValueError):
    """A table that cannot be read; the message names file, line and column."""


def read(path: Path, row: type[_Row]) -> tuple[_Row, ...]:
    """Return a table's rows in order. Its columns are the fields of ``row``; an empty cell leaves a field at its
    default.

    Raises TableError.
    """
    adapter = TypeAdapter(row)
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns, expected = set(reader.fieldnames or ()), {field.name for field in fields(row)}
        if columns != expected:
            wrong = ", ".join(sorted(columns ^ expected))
            raise TableError(f"{path.name}: {row.__name__} and the first line do not have the same columns: {wrong}")
        return tuple(_row(adapter, path, reader.line_num, cells) for cells in reader)


def table(path: Path, row: type[_Row], key: str) -> Mapping[str, _Row]:
    """Return a table's rows by a column without duplicates. Raises TableError."""
    found: dict[str, _Row] = {}
    for one in read(path, row):
        name = getattr(one, key)
        if name in found:
            raise TableError(f'{path.name}: two rows have the {key} "{name}"')
        found[name] = one
    return MappingProxyType(found)


def _row(adapter: TypeAdapter[_Row], path: Path, line: int, cells: dict[Any, Any]) -> _Row:
    where = f"{path.name}, line {line}"
    if None in cells:
        raise TableError(f"{where}: more cells than columns; quote a cell with a comma")
    try:
        return adapter.validate_python({column: cell for column, cell in cells.items() if cell})
    except ValidationError as error:
        problems = (f"column {one['loc'][0]}: {_problem(one)}" for one in error.errors())
        raise TableError(f"{where}, {'; '.join(problems)}") from None


def _problem(error: Any) -> str:
    if error["type"] == "missing":
        return "the cell is empty"
    return f'"{error["input"]}": {error["msg"]}'
