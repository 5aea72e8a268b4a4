"""A benchmark as a picture: bus bandwidth over message size, with the threshold."""

from __future__ import annotations

from pathlib import Path

# Figures are drawn to files: no window, and no state of pyplot.
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from .benchmark import Result, readable


def draw(result: Result, path: Path) -> None:
    """Write the picture; the ending of the name says which format (png, svg, pdf)."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot([row.size for row in result.rows], [row.busbw for row in result.rows], marker="o", label="bus bandwidth")
    if result.threshold is not None:
        axes.axhline(result.threshold, color="tab:red", linestyle="--", label=f"threshold {result.threshold:.1f} GB/s")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: readable(size)))
    axes.set_xlabel("message size")
    axes.set_ylabel("GB/s")
    axes.set_ylim(bottom=0)
    verdict = "PASS" if result.passed else "FAIL"
    axes.set_title(
        f"{result.collective}, {result.nodes} x {result.instance_type}, {result.transport}: "
        f"peak {result.peak:.1f} GB/s, {verdict}"
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
