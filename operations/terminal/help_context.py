"""Help in a terminal of any width up to 80 columns. Typer's own is never narrower than 50."""

import shutil
from functools import partial
from typing import Any

import typer

_MOST, _NARROW = 80, 60


class HelpContext(typer.Context):
    """What a verb or a group of verbs is called with."""

    def make_formatter(self) -> Any:
        """What breaks the help's lines. In a narrow terminal a long option has its meaning below it."""
        formatter: Any = self.formatter_class(width=min(shutil.get_terminal_size().columns, _MOST) - 2)
        if formatter.width < _NARROW:
            formatter.write_dl = partial(formatter.write_dl, col_max=12)
        return formatter
