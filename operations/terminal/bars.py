"""A line per component with a bar, for a terminal of 80 columns: how far it is, or when its time is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text

# With a name of 20 characters, a count, two times and what lies between, these fill 80 columns.
WIDTH = 32
_SO_FAR = 16


@dataclass(frozen=True)
class Span:
    """A part of a bar: what lies in it has the mark, for those who see no colours."""

    start: float
    finish: float
    critical: bool = False


def progress(lines: Iterable[tuple[str, int, int, Text]]) -> Group:
    """Components in progress: name, how many of how many are done, and what is being done."""
    rows = list(lines)
    # Only the words give way where there is little room.
    width = max((len(name) for name, *_ in rows), default=0)
    drawn = []
    for name, done, number, words in rows:
        full = _SO_FAR * done // number
        line = Text(f"  {name:{width}} ", "bold", no_wrap=True, overflow="ellipsis")
        line.append("━" * full, "not bold green").append("╌" * (_SO_FAR - full), "not bold dim")
        drawn.append(line.append(f" {f'{done}/{number}':>7} ", "not bold").append_text(words))
    return Group(*drawn)


def spans(parts: Sequence[Span], whole: float) -> Text:
    """A bar on an axis from 0 to so many seconds: solid on the critical path, shaded elsewhere."""
    cells = [" "] * WIDTH
    for part in sorted(parts, key=lambda one: one.critical):
        first = min(int(WIDTH * part.start / (whole or 1.0)), WIDTH - 1)
        last = max(first + 1, min(round(WIDTH * part.finish / (whole or 1.0)), WIDTH))
        cells[first:last] = ("█" if part.critical else "░") * (last - first)
    return Text("".join(cells).rstrip())
