"""A picture of how figures grow with a size: both axes logarithmic, so that linear growth is a straight line."""

import re
from collections.abc import Mapping
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter


def draw(lines: Mapping[str, Mapping[int, float]], title: str, size: str, path: Path) -> None:
    """Draw a line for each figure, from its values by size; the file's extension sets the format."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, values in lines.items():
        axes.plot(list(values), list(values.values()), marker="o", label=name)
    sizes = sorted({one for values in lines.values() for one in values})
    least = min(value for values in lines.values() for value in values.values() if value > 0)
    linear = [least * one / sizes[0] for one in sizes]
    axes.plot(sizes, linear, color="gray", linestyle="--", label="in proportion to the size")
    axes.set(xscale="log", yscale="log", title=title, xlabel=size, xticks=sizes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.minorticks_off()
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False)
    # The same figures give the same file, without the spaces between its elements.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "growth"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    if path.suffix == ".svg":
        path.write_text(re.sub(r"(?<=>)\s+(?=<)", "", " ".join(path.read_text().split())) + "\n")
