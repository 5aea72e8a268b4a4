"""Panels and dashboards in this project's style, on Grafana's own SDK.

A query's labels are those of docs/metrics.md: ``cluster``, ``group``, ``node``, then what tells devices apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, statetimeline, table, text
from grafana_foundation_sdk.builders import timeseries as graphs
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from .shipped import TAG, Shipped

COLUMNS = 24
CLUSTER = 'cluster="$cluster"'
GROUP = f'{CLUSTER}, group=~"$group"'
NODE = f'{GROUP}, node=~"$node"'
GPU = f'{NODE}, gpu=~"$gpu"'
# How busy each node's accelerators are. neuron-monitor has no figure of a node without a runtime: that is 0, but only
# where it does report its devices.
NODE_BUSY = (
    f"(avg by (cluster, group, node) (hyperpod:accelerator_busy_ratio{{{NODE}}}) or "
    f"hyperpod:accelerators{{{NODE}}} * 0 and on (cluster, node) hardware_ecc_events_total{{{NODE}}})"
)
# Grafana's own choice for rates: at least four samples, and never less than a pixel.
RATE = "$__rate_interval"
# What every node has, and no pod.
_PRESENT = "hyperpod_node_info"
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

# A value, and the colour from there on. The first has no value.
Steps: TypeAlias = tuple[tuple[float | None, str], ...]
GOOD: Steps = ((None, "green"),)
ANY_IS_BAD: Steps = ((None, "green"), (1, "red"))


def warn(at: float, bad: float) -> Steps:
    """Green, orange from one value on, red from another."""
    return ((None, "green"), (at, "orange"), (bad, "red"))


def low(bad: float, good: float) -> Steps:
    """Red, orange from one value on, green from another."""
    return ((None, "red"), (bad, "orange"), (good, "green"))


@dataclass(frozen=True)
class Query:
    """PromQL, and how Grafana names a series of its result: ``{{node}}``."""

    expr: str
    legend: str = "{{node}}"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What all panels have. ``unit`` is Grafana's id of it; ``empty`` is shown where no series is good news."""

    unit: str = "short"
    width: int = 12
    height: int = 8
    steps: Steps = ()
    note: str = ""
    empty: str = ""
    top: float | None = None
    decimals: int | None = None


def figure(
    width: int, *, unit: str = "short", steps: Steps = (), empty: str = "", top: float | None = None, decimals: int = 0
) -> Look:
    """The look of a small panel for one number. Shares and dollars keep Grafana's own decimals."""
    places = decimals if unit == "short" else None
    return Look(unit=unit, width=width, height=4, steps=steps, empty=empty, top=top, decimals=places)


class _Fields(Protocol):
    """The methods that the panels of different kinds share."""

    def title(self, title: str, /) -> object: ...
    def description(self, description: str, /) -> object: ...
    def span(self, w: int, /) -> object: ...
    def height(self, h: int, /) -> object: ...
    def datasource(self, datasource: models.DataSourceRef, /) -> object: ...
    def unit(self, unit: str, /) -> object: ...
    def decimals(self, decimals: float, /) -> object: ...
    def max(self, max_val: float, /) -> object: ...
    def no_value(self, no_value: str, /) -> object: ...
    def thresholds(self, thresholds: Builder[models.ThresholdsConfig], /) -> object: ...


def graph(title: str, *queries: Query, look: Look, stacked: bool = False) -> graphs.Panel:
    """Lines over time, from zero, with a table of their last and highest values below, the highest first."""
    legend = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.TABLE).show_legend(True)
    legend = legend.placement(common_models.LegendPlacement.BOTTOM).calcs(["lastNotNull", "max"])
    legend = legend.sort_by("Last *").sort_desc(True)  # The title of the column of lastNotNull.
    mode = common_models.TooltipDisplayMode.MULTI
    panel = graphs.Panel().legend(legend).tooltip(common.VizTooltipOptions().mode(mode)).min(0).line_width(1)
    panel = panel.show_points(common_models.VisibilityMode.NEVER).fill_opacity(40 if stacked else 5)
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    if look.steps:
        dashed = common_models.GraphThresholdsStyleMode.DASHED
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(dashed))
    _look(panel, title, look)
    for ref, query in _named(queries):
        panel.with_target(_query(query, ref))
    return panel


def number(title: str, expr: str, *, look: Look) -> stat.Panel:
    """One figure: the latest."""
    panel = stat.Panel().graph_mode(common_models.BigValueGraphMode.AREA)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    _look(panel, title, look)
    return panel.with_target(_query(Query(expr, ""), "A"))


def bars(title: str, query: Query, *, look: Look) -> bargauge.Panel:
    """A bar for each series of the latest result."""
    panel = bargauge.Panel().orientation(common_models.VizOrientation.HORIZONTAL).min(0)
    panel.display_mode(common_models.BarGaugeDisplayMode.BASIC)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    _look(panel, title, look)
    return panel.with_target(_query(query, "A").instant())


def rows(title: str, expr: str, value: str, *, look: Look) -> table.Panel:
    """A table with a row for each series of the latest result: its labels, and its value in a column of that name."""
    panel = table.Panel().filterable(True)
    _look(panel, title, look)
    options = {"excludeByName": {"Time": True, "__name__": True}, "renameByName": {"Value": value}}
    panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=options))
    return panel.with_target(_query(Query(expr, ""), "A").instant().format(PromQueryFormat.TABLE))


def states(title: str, query: Query, names: dict[str, tuple[str, str]], *, look: Look) -> statetimeline.Panel:
    """A coloured bar over time for each series; ``names`` has the text and colour of each value."""
    panel = statetimeline.Panel().show_value(common_models.VisibilityMode.NEVER).row_height(0.8)
    _look(panel, title, look)
    results = {
        value: models.ValueMappingResult(text=said, color=colour, index=index)
        for index, (value, (said, colour)) in enumerate(names.items())
    }
    panel.mappings([models.ValueMap(options=results)])
    return panel.with_target(_query(query, "A"))


def words(content: str, *, title: str = "About this page", width: int = COLUMNS, height: int = 4) -> text.Panel:
    """Markdown: above all what the page cannot show, and where."""
    return text.Panel().title(title).content(content).span(width).height(height)


AnyPanel: TypeAlias = Builder[models.Panel]


def board(
    shipped: Shipped, rows: Iterable[tuple[str, tuple[AnyPanel, ...]]], *, gpu: bool = False, price: str = ""
) -> models.Dashboard:
    """A dashboard: named rows of panels, and variables for the data source, cluster, group and node.

    ``gpu`` adds the variable for GPUs. ``price`` is an expression that panels write as ``${price:raw}``.
    """
    made = dashboard.Dashboard(shipped.title).uid(shipped.uid).tags([TAG]).timezone("browser").editable()
    made.description(shipped.about).time("now-6h", "now").refresh("1m").tooltip(models.DashboardCursorSync.CROSSHAIR)
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made.with_variable(_variable("cluster", "Cluster", f"label_values({_PRESENT}, cluster)", everything=False))
    made.with_variable(_variable("group", "Group", f"label_values({_PRESENT}{{{CLUSTER}}}, group)"))
    made.with_variable(_variable("node", "Node", f"label_values({_PRESENT}{{{GROUP}}}, node)"))
    if gpu:
        made.with_variable(_variable("gpu", "GPU", f"label_values(DCGM_FI_DEV_GPU_UTIL{{{NODE}}}, gpu)"))
    if price:
        made.with_variable(dashboard.ConstantVariable("price").value(price))
    link = dashboard.DashboardLink("HyperPod").type(models.DashboardLinkType.DASHBOARDS).tags([TAG]).as_dropdown(True)
    made.link(link.keep_time(True).include_vars(True))
    for title, panels in rows:
        made.with_row(dashboard.Row(title))
        for panel in panels:
            made.with_panel(panel)
    built = made.build()
    # Links to a panel name its number. The SDK leaves panels without one, and gives 0 to all rows.
    for number, one in enumerate(built.panels or (), 1):
        one.id_val = number
    for variable in built.templating.list_val or ():
        if variable.type_val == models.VariableType.CONSTANT:
            variable.hide = models.VariableHide.HIDE_VARIABLE
    return built


def _variable(name: str, label: str, query: str, *, everything: bool = True) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(name).label(label).query({"query": query, "refId": name}).datasource(_SOURCE)
    made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.NATURAL_ASC)
    if everything:
        # Series without the label match as well: on EKS those of pods have no group.
        made.multi(True).include_all(True).all_value(".*")
        made.current(models.VariableOption(selected=True, text="All", value="$__all"))
    return made


def _query(query: Query, ref: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref).datasource(_SOURCE)


def _named(queries: Iterable[Query]) -> Iterable[tuple[str, Query]]:
    return zip("ABCDEFGH", queries, strict=False)


def _look(panel: _Fields, title: str, look: Look) -> None:
    panel.title(title)
    panel.datasource(_SOURCE)
    panel.span(look.width)
    panel.height(look.height)
    panel.unit(look.unit)
    if look.note:
        panel.description(look.note)
    if look.empty:
        panel.no_value(look.empty)
    if look.top is not None:
        panel.max(look.top)
    if look.decimals is not None:
        panel.decimals(look.decimals)
    steps = [models.Threshold(value=value, color=colour) for value, colour in look.steps or GOOD]
    absolute = models.ThresholdsMode.ABSOLUTE
    panel.thresholds(dashboard.ThresholdsConfig().mode(absolute).steps(steps))
