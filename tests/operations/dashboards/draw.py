"""Pictures of the dashboards, drawn from their JSON by matplotlib and not by Grafana.

Layout, queries, units, thresholds and names are the dashboard's; the series are made up, and a real Prometheus answers.

    python -m tests.operations.dashboards.draw                   the pictures of docs/metrics.md
    python -m tests.operations.dashboards.draw --all FOLDER      every dashboard
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from operations.dashboards.panels import rendered
from operations.dashboards.shipped import BY_NAME, SHIPPED, Shipped
from tests.operations.dashboards.fleet import END, Fleet
from tests.operations.dashboards.prometheus import Prometheus, Target, names, serving, targets
from tests.support import ROOT

PICTURES = ROOT / "docs" / "pictures"
SHOWN = ("overview", "gpu-health")
_FLEET = Fleet(workers=8, gpus=8, devices=4, hours=2)
_COLOURS = {"green": "#4c9a4c", "orange": "#e08b2c", "red": "#c94040"}
_ROW_INCHES, _COLUMN_INCHES, _DPI = 0.42, 0.58, 80
_LEGEND = 6
Answers = Mapping[str, list[dict[str, Any]]]
_BYTES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_SHORT = ("", "K", "M", "G", "T")


def said(value: float, unit: str) -> str:
    """A figure as Grafana writes it, by its id of the unit."""
    if unit == "percentunit":
        return f"{value:.0%}" if value >= 0.01 or value == 0 else f"{value:.2%}"
    if unit == "currencyUSD":
        return f"${value:,.2f}"
    if unit in ("bytes", "mbytes"):
        return f"{_scaled(value * (1 << 20) if unit == 'mbytes' else value, 1024, _BYTES)}B"
    if unit == "s":
        return f"{value:.3g} s" if value < 120 else f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"
    suffix = {"Bps": "B/s", "ops": " ops/s", "watt": "W", "hertz": "Hz", "celsius": " °C"}.get(unit, "")
    return f"{value:.4g}{suffix}" if unit in ("none", "celsius") else f"{_scaled(value, 1000, _SHORT)}{suffix}"


def _scaled(value: float, step: int, prefixes: Sequence[str]) -> str:
    place = 0
    while abs(value) >= step and place < len(prefixes) - 1:
        value, place = value / step, place + 1
    return f"{value:.3g} {prefixes[place]}".rstrip() if place else f"{value:.3g}"


def draw(shipped: Shipped, prometheus: Prometheus, path: Path) -> None:
    """One dashboard as a PNG."""
    model = rendered(shipped)
    asked: dict[int, list[tuple[Target, list[dict[str, Any]]]]] = {}
    for panel in model["panels"]:
        found = targets({**model, "panels": [panel]})
        asked[panel["id"]] = [(one, prometheus.ask(one)) for one in found]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in model["panels"]) + 1.4
    figure = Figure(figsize=(24 * _COLUMN_INCHES, height * _ROW_INCHES), dpi=_DPI, facecolor="#f4f5f5")
    title = f"{model['title']}    (drawn from the dashboard, not by Grafana; made-up series)"
    figure.text(0.008, 1 - 0.4 / height, title, fontsize=12, va="top", weight="bold")
    for panel in model["panels"]:
        _place(figure, panel, asked[panel["id"]], height)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = BytesIO()
    figure.savefig(picture, format="png")
    # 64 colours are enough, and a third of the bytes.
    Image.open(picture).convert("RGB").quantize(64).save(path, optimize=True)


def _place(figure: Figure, panel: dict[str, Any], found: Any, height: float) -> None:
    at = panel["gridPos"]
    top = at["y"] + 1.4
    left, width = at["x"] / 24 + 0.006, at["w"] / 24 - 0.012
    if panel["type"] == "row":
        figure.text(left, 1 - (top + 0.75) / height, panel["title"], fontsize=11, weight="bold")
        return
    below, above = (at["h"] - 0.15) / height, 1 - (top + 0.1) / height
    box = figure.add_axes((left, above - below, width, below))
    box.set(xticks=[], yticks=[])
    for side in box.spines.values():
        side.set_color("#d5d8dc")
    box.text(0.01, 1 - 0.15 / at["h"], panel["title"], transform=box.transAxes, fontsize=8.5, weight="bold", va="top")
    kind = panel["type"]
    if kind == "text":
        _words(box, panel["options"]["content"], at)
    elif not any(answer for _, answer in found):
        box.text(0.5, 0.4, "No data", transform=box.transAxes, ha="center", color="red", fontsize=14)
    else:
        _KINDS[kind](box, panel, found)


def _inner(box: Axes, left: float, bottom: float, height: float) -> Axes:
    axes = box.inset_axes((left, bottom, 0.985 - left, height))
    axes.tick_params(labelsize=7, length=2)
    return axes


def _graph(box: Axes, panel: dict[str, Any], found: Any) -> None:
    unit, stacked = _unit(panel), panel["fieldConfig"]["defaults"]["custom"].get("stacking", {}).get("mode") == "normal"
    lines = [(_name(target, one["metric"]), one["values"]) for target, answer in found for one in answer]
    if panel["options"]["legend"]["sortBy"] and not stacked:
        lines.sort(key=lambda line: -float(line[1][-1][1]))
    # Room for the legend, in a panel of eight rows.
    shown = min(len(lines), _LEGEND)
    bottom = 0.13 + 0.058 * -(-shown // 2)
    axes = _inner(box, 0.07, bottom, 0.86 - bottom)
    if stacked:
        times = sorted({at for _, values in lines for at, _ in values})
        layers = [[float(dict(values).get(at, 0)) for at in times] for _, values in lines]
        axes.stackplot([_minutes(at) for at in times], *layers, labels=[name for name, _ in lines], alpha=0.6)
    else:
        for name, values in lines:
            axes.plot([_minutes(at) for at, _ in values], [float(value) for _, value in values], label=name, lw=1)
    if panel["fieldConfig"]["defaults"]["custom"].get("thresholdsStyle"):
        for step in _steps(panel)[1:]:
            axes.axhline(step["value"], color=_COLOURS[step["color"]], ls="--", lw=0.8)
    top = max(float(value) for _, values in lines for _, value in values)
    axes.set_ylim(
        0, panel["fieldConfig"]["defaults"].get("max") or (top if not stacked else axes.get_ylim()[1]) * 1.1 or 1
    )
    axes.set_xlim(-60, 0)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: said(value, unit)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} min" if value else "now"))
    axes.grid(visible=True, alpha=0.3)
    handles, labels = axes.get_legend_handles_labels()
    more = [f"... {len(lines) - shown} more"] if len(lines) > shown else []
    box.legend(handles[:shown] + handles[shown : shown + len(more)], labels[:shown] + more, ncols=2, fontsize=6.5,
               loc="lower left", frameon=False, borderaxespad=0.2, labelspacing=0.25)  # fmt: skip


def _number(box: Axes, panel: dict[str, Any], found: Any) -> None:
    value = float(found[0][1][0]["values"][-1][1])
    decimals = panel["fieldConfig"]["defaults"].get("decimals")
    value = value if decimals is None else round(value, decimals)
    box.text(0.5, 0.4, said(value, _unit(panel)), transform=box.transAxes, fontsize=20, ha="center", va="center",
             color=_colour(panel, value))  # fmt: skip


def _bars(box: Axes, panel: dict[str, Any], found: Any) -> None:
    target, answer = found[0]
    pairs = sorted(((float(one["value"][1]), _name(target, one["metric"])) for one in answer), reverse=True)[:10]
    axes = _inner(box, 0.36, 0.05, 0.82)
    axes.barh(range(len(pairs)), [value for value, _ in pairs], color=[_colour(panel, value) for value, _ in pairs])
    axes.set_yticks(range(len(pairs)), [name for _, name in pairs])
    axes.invert_yaxis()
    for place, (value, _) in enumerate(pairs):
        axes.text(value, place, f" {said(value, _unit(panel))}", va="center", fontsize=7)
    axes.set_xlim(0, panel["fieldConfig"]["defaults"].get("max") or (max(value for value, _ in pairs) or 1) * 1.25)
    axes.set_xticks([])


def _table(box: Axes, panel: dict[str, Any], found: Any) -> None:
    answer = found[0][1]
    columns = sorted({key for one in answer for key in one["metric"] if key != "__name__"})
    renamed = panel["transformations"][0]["options"]["renameByName"]["Value"]
    lines = [
        [one["metric"].get(key, "") for key in columns] + [said(float(one["value"][1]), _unit(panel))] for one in answer
    ]
    for row, cells in enumerate([[*columns, renamed], *lines[:9]]):
        for column, cell in enumerate(cells):
            place = (0.02 + 0.96 * column / len(cells), 0.84 - 0.082 * row)
            box.text(
                *place, cell, transform=box.transAxes, fontsize=7.5, va="top", weight="bold" if row == 0 else "normal"
            )


def _states(box: Axes, panel: dict[str, Any], found: Any) -> None:
    target, answer = found[0]
    options = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    axes = _inner(box, 0.2, 0.13, 0.72)
    shown = answer[:12]
    for place, one in enumerate(shown):
        for at, value in one["values"]:
            axes.barh(
                place, 2, left=_minutes(at) - 2, color=_COLOURS[options[str(int(float(value)))]["color"]], height=0.8
            )
    axes.set_yticks(range(len(shown)), [_name(target, one["metric"]) for one in shown])
    axes.invert_yaxis()
    axes.set_xlim(-60, 0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} min" if value else "now"))


def _words(box: Axes, content: str, at: Mapping[str, int]) -> None:
    text = "\n".join(textwrap.wrap(content.replace("*", "").replace("`", ""), at["w"] * 9))
    box.text(0.01, 1 - 0.75 / at["h"], text, transform=box.transAxes, fontsize=7.5, va="top")


_KINDS = {"timeseries": _graph, "stat": _number, "bargauge": _bars, "table": _table, "state-timeline": _states}


def _minutes(at: float) -> float:
    return (at - END) / 60


def _unit(panel: Mapping[str, Any]) -> str:
    return str(panel["fieldConfig"]["defaults"].get("unit", ""))


def _steps(panel: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(panel["fieldConfig"]["defaults"]["thresholds"]["steps"])


def _colour(panel: Mapping[str, Any], value: float) -> str:
    reached = [step for step in _steps(panel) if step["value"] is None or value >= step["value"]]
    return _COLOURS[reached[-1]["color"]]


def _name(target: Target, labels: Mapping[str, str]) -> str:
    text = target.legend
    for key in set(labels):
        text = text.replace(f"{{{{{key}}}}}", labels[key])
    return text.replace("{{namespace}}", "")


def main(words: Sequence[str]) -> None:
    """Draw the pictures that are shown, or all into a folder."""
    folder = Path(words[1]) if words[:1] == ["--all"] else PICTURES
    chosen = SHIPPED if words else [BY_NAME[name] for name in SHOWN]
    wanted = names(target.expr for one in chosen for target in targets(rendered(one)))
    with tempfile.TemporaryDirectory() as place, serving(_FLEET.text(wanted), Path(place)) as prometheus:
        for one in chosen:
            draw(one, prometheus, folder / f"dashboard-{one.name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
