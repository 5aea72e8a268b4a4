"""Tables without borders for terminals of any width, and for pipes, which have none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from .command_line import broken, printable
from .output_options import OPTIONS

# A column's name, and "right" or "whole" where its cells are numbers or bars, which are not wrapped.
Column: TypeAlias = str | tuple[str, Literal["left", "right", "whole"]]
# Spaces between two columns, and the width below which a column of words is tiresome to read.
_BETWEEN, _READABLE = 2, 24


@dataclass
class Rows:
    """A table in which no terminal breaks a word, and no line is too long as long as its words are not.

    Where its columns have no room beside each other, those of ``spare`` are left out (the most important come first and
    stay longest), words are wrapped, and at last columns are folded: each has a line of its own below every row.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Text]]
    spare: Sequence[str] = ()
    indented: bool = False

    def __post_init__(self) -> None:
        self._named = [(one, "left") if isinstance(one, str) else one for one in self.columns]
        self._cells = [[Text(printable(cell)) if isinstance(cell, str) else cell for cell in row] for row in self.rows]
        self._widths: list[int] = []
        self._least: list[int] = []
        for place, (name, kind) in enumerate(self._named):
            cells = [name, *(row[place].plain for row in self._cells)]
            self._widths.append(max(map(len, cells)))
            words = [word for cell in cells for word in cell.split()] if kind == "left" else [*name.split(), *cells[1:]]
            self._least.append(max(map(len, words), default=0))
            if kind == "left":
                self._least[-1] = max(self._least[-1], min(self._widths[-1], _READABLE))

    def left_out(self, console: Console) -> list[str]:
        """The names of the columns for which there is no room. A pipe gets all, as does everybody with -o wide."""
        return self._left_out(self._room(console, console.width))

    def _room(self, console: Console, width: int) -> int | None:
        return width if console.is_terminal and OPTIONS.output != "wide" else None

    def _left_out(self, room: int | None) -> list[str]:
        if room is None:
            return []
        width = {name: width for (name, _), width in zip(self._named, self._widths, strict=True)}
        shown = [name for name in width if name not in self.spare]
        for name in self.spare:
            if self._total([width[one] for one in (*shown, name)]) <= room:
                shown.append(name)
        return [name for name in self.spare if name not in shown]

    def _total(self, widths: Sequence[int]) -> int:
        return sum(widths) + _BETWEEN * (len(widths) - (not self.indented))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = self._room(console, options.max_width)
        missing = self._left_out(room)
        shown = [place for place, (name, _) in enumerate(self._named) if name not in missing]
        folded: list[int] = []
        widths = [self._widths[place] for place in shown]
        if room is not None:
            folded = self._folded(shown, room)
            shown = [place for place in shown if place not in folded]
            widths = self._fitted(shown, room)
        wide = options.update(max_width=self._total(widths))
        if not folded:
            yield from console.render(self._table(shown, widths, self._cells), wide)
            return
        yield from console.render(self._table(shown, widths, []), wide)
        for row in self._cells:
            yield from console.render(self._table(shown, widths, [row], heading=False), wide)
            told = [place for place in folded if row[place].plain.strip()]
            yield from (self._below(self._named[place][0], row[place], options.max_width) for place in told)

    def _below(self, name: str, cell: Text, room: int) -> Text:
        line = f"{' ' * _BETWEEN * (1 + self.indented)}{f'{name}: ' if name else ''}{cell.plain}"
        return Text("\n".join(broken(line, room)), cell.style, no_wrap=True, overflow="ignore")

    def _folded(self, shown: Sequence[int], room: int) -> list[int]:
        """The columns that have to be folded, the widest first: never what a row is about, nor the mark before that."""
        beside = list(shown)
        could = sorted(beside[1 if self._named[0][0] else 2 :], key=self._widths.__getitem__)
        while could and self._total([self._least[place] for place in beside]) > room:
            beside.remove(could.pop())
        return [place for place in shown if place not in beside]

    def _fitted(self, shown: Sequence[int], room: int) -> list[int]:
        """The columns' widths, the greatest made smaller until there is room for all, none smaller than its least."""
        fitted = {place: self._widths[place] for place in shown}
        while self._total([*fitted.values()]) > room:
            able = [place for place, width in fitted.items() if width > self._least[place]]
            if not able:
                break
            fitted[max(able, key=fitted.__getitem__)] -= 1
        return [*fitted.values()]

    def _table(
        self, shown: Sequence[int], widths: Sequence[int], rows: Sequence[Sequence[Text]], *, heading: bool = True
    ) -> Table:
        table = Table(box=None, padding=(0, 0, 0, _BETWEEN), pad_edge=self.indented, show_header=heading)
        for place, width in zip(shown, widths, strict=True):
            name, kind = self._named[place]
            table.add_column(Text(name), justify="right" if kind == "right" else "left", width=width)
        for row in rows:
            table.add_row(*(row[place] for place in shown))
        return table
