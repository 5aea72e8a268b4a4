"""What the benchmarks that measure several sizes print: progress on standard error, and a table of the figures."""

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def say(line: str) -> None:
    """Tell what happens, on standard error."""
    print(line, file=sys.stderr, flush=True)


def show(title: str, found: Sequence[Mapping[str, float]]) -> None:
    """Print a column for each size; the first figure of each is its number of nodes."""
    table = Table(box=None, padding=(0, 2, 0, 0), title=title)
    table.add_column("")
    for one in found:
        table.add_column(f"{one['nodes']:,} nodes", justify="right")
    for name in list(found[0])[1:]:
        table.add_row(name.replace("_", " "), *(f"{one[name]:,}" for one in found))
    Console().print(table)
