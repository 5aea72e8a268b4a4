"""Tables of facts say which file, line and column is wrong."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

import pytest

from components.catalogue.rows import TableError, Words, WordSet, read, table


@dataclass(frozen=True, kw_only=True)
class Fruit:
    name: str
    sweet: bool = False
    colours: Words = ()
    shops: WordSet = frozenset()
    kilos: float | None = None
    kind: Literal["stone", "pome"] = "pome"
    ripe: date | None = None


HEADER = "name,sweet,colours,shops,kilos,kind,ripe\n"


def written(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "fruits.csv"
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return path


def test_cells_become_what_the_fields_are_and_empty_ones_the_default(tmp_path: Path) -> None:
    plum = "plum,true,blue red,a b,1.5,stone,2026-09-01"
    assert read(written(tmp_path, plum, "apple,,,,,,"), Fruit) == (
        Fruit(
            name="plum",
            sweet=True,
            colours=("blue", "red"),
            shops=frozenset({"a", "b"}),
            kilos=1.5,
            kind="stone",
            ripe=date(2026, 9, 1),
        ),
        Fruit(name="apple"),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (",true,,,,,", "fruits.csv, line 3, column name: the cell is empty"),
        ("plum,perhaps,,,,,", 'fruits.csv, line 3, column sweet: "perhaps": .*boolean'),
        ("plum,,,,many,nut,", "column kilos: \"many\": .*number.*; column kind: \"nut\": .*'stone' or 'pome'"),
        ("plum,,,,,,soon", 'column ripe: "soon": .*date'),
        ("plum,,red, green,,,,", "fruits.csv, line 3: more cells than columns"),
    ],
)
def test_a_bad_cell_is_named(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=said):
        read(written(tmp_path, "apple,,,,,,", line), Fruit)


def test_columns_are_the_fields(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"fruits\.csv: Fruit and the first line .*: kilo, kilos"):
        read(written(tmp_path, header=HEADER.replace("kilos", "kilo")), Fruit)


def test_a_key_is_there_once(tmp_path: Path) -> None:
    assert list(table(written(tmp_path, "plum,,,,,,", "apple,,,,,,"), Fruit, "name")) == ["plum", "apple"]
    with pytest.raises(TableError, match=r'fruits\.csv: two rows have the name "plum"'):
        table(written(tmp_path, "plum,,,,,,", "plum,true,,,,,"), Fruit, "name")
