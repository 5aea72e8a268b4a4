"""What fits into a terminal of which width."""

import io
from contextlib import AbstractContextManager
from unittest.mock import patch

from rich.console import Console, RenderableType

from operations.terminal.tables import Rows

WIDTHS = (40, 80, 120)


def drawn(shown: RenderableType, width: int = 0) -> list[str]:
    """The lines of something in a terminal of this width, in which nothing wraps them, or in a pipe."""
    text = io.StringIO()
    terminal = Console(file=text, width=width or 80, force_terminal=bool(width), color_system=None, soft_wrap=True)
    terminal.print(shown)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def check_widths(shown: RenderableType) -> None:
    """No terminal gets a longer line than it has room for, unless that is a word, nor a word that is cut."""
    whole = {word.rstrip(":") for line in drawn(shown) for word in line.split()}
    for width in WIDTHS:
        for line in drawn(shown, width):
            assert len(line) <= width or len(line.split()) == 1, f"{len(line)} of {width} columns: {line}"
            assert {word.rstrip(":") for word in line.split()} <= whole, f"cut in {width} columns: {line}"


def watched() -> AbstractContextManager[object]:
    """Within it, every table is looked at as soon as it is made."""
    made = Rows.__post_init__

    def look(table: Rows) -> None:
        made(table)
        check_widths(table)

    return patch.object(Rows, "__post_init__", look)
