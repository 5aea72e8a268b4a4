"""Dashboards in this project's style: each file of ``boards/`` is drawn by Grafana's own SDK.

A file has ``rows`` of panels, and ``macros``: words in capitals that stand for a part of an expression. A panel's first
key is its kind, with its title. A query's labels are those of docs/metrics.md: ``cluster``, ``group``, ``node``, then
what tells devices apart.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, statetimeline, table, text
from grafana_foundation_sdk.builders import timeseries as graphs
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from components.catalogue.accelerators import CATALOGUE
from components.catalogue.prices import PRICED_REGIONS
from components.common.documents import load

from .shipped import TAG, Shipped

BOARDS = Path(__file__).parent / "boards"
COLUMNS = 24
# What every board's expressions can name. neuron-monitor has no figure of a node without a runtime: NODE_BUSY, how busy
# each node's accelerators are, is 0 there, but only where it does report its devices.
_MACROS = {
    "CLUSTER": 'cluster="$cluster"',
    "GROUP": 'CLUSTER, group=~"$group"',
    "NODE": 'GROUP, node=~"$node"',
    "GPU": 'NODE, gpu=~"$gpu"',
    "NODE_BUSY": (
        "(avg by (cluster, group, node) (hyperpod:accelerator_busy_ratio{NODE}) or "
        "hyperpod:accelerators{NODE} * 0 and on (cluster, node) hardware_ecc_events_total{NODE})"
    ),
}
# What every node has, and no pod.
_PRESENT = "hyperpod_node_info"
_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_Number: TypeAlias = int | float


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel of a file. One of the first seven fields is its title, or its text, and says its kind.

    ``graph`` has lines over time, ``stack`` stacked areas, ``states`` for each value of ``colours`` a bar over time in
    its text and colour. ``number``, ``bars`` and ``table`` have the latest values, the table's in ``column``.
    ``unit`` is Grafana's id of it; ``empty`` is shown where no series is good news. A figure is orange from the first
    value of ``warn`` on and red from the second; with ``low`` it is green from the second on; with ``red`` red from it.
    """

    graph: str = ""
    stack: str = ""
    number: str = ""
    bars: str = ""
    table: str = ""
    states: str = ""
    text: str = ""
    expr: str = ""
    legend: str = "{{node}}"
    series: Mapping[str, str] = field(default_factory=dict)
    column: str = ""
    colours: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    unit: str = "short"
    width: int = 12
    height: int = 0
    warn: tuple[_Number, _Number] | None = None
    low: tuple[_Number, _Number] | None = None
    red: _Number | None = None
    top: _Number | None = None
    decimals: int | None = None
    empty: str = ""
    note: str = ""

    @property
    def steps(self) -> list[tuple[_Number | None, str]]:
        """A value, and the colour from there on. The first has no value."""
        if self.low:
            return [(None, "red"), (self.low[0], "orange"), (self.low[1], "green")]
        bad = [(self.warn[0], "orange"), (self.warn[1], "red")] if self.warn else []
        return [(None, "green"), *bad, *([] if self.red is None else [(self.red, "red")])]


def rendered(shipped: Shipped) -> dict[str, Any]:
    """A dashboard's JSON, as Grafana imports it."""
    return dict(json.loads(json.dumps(_board(shipped), cls=JSONEncoder, sort_keys=True)))


def _board(shipped: Shipped) -> models.Dashboard:
    """Named rows of panels, and variables for the data source, cluster, group, node and what else the panels name."""
    content = (BOARDS / f"{shipped.name}.yaml").read_text()
    document = load(content)
    macros = _MACROS | document.get("macros", {})
    made = dashboard.Dashboard(shipped.title).uid(shipped.uid).tags([TAG]).timezone("browser").editable()
    made.description(shipped.about).time("now-6h", "now").refresh("1m").tooltip(models.DashboardCursorSync.CROSSHAIR)
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made.with_variable(_variable("cluster", "Cluster", f"label_values({_PRESENT}, cluster)", everything=False))
    made.with_variable(_variable("group", "Group", f"label_values({_PRESENT}{{CLUSTER}}, group)"))
    made.with_variable(_variable("node", "Node", f"label_values({_PRESENT}{{GROUP}}, node)"))
    if "{GPU" in content:
        made.with_variable(_variable("gpu", "GPU", "label_values(DCGM_FI_DEV_GPU_UTIL{NODE}, gpu)"))
    if "${price" in content:
        made.with_variable(dashboard.ConstantVariable("price").value(price()))
    link = dashboard.DashboardLink("HyperPod").type(models.DashboardLinkType.DASHBOARDS).tags([TAG]).as_dropdown(True)
    made.link(link.keep_time(True).include_vars(True))
    for title, panels in document["rows"].items():
        made.with_row(dashboard.Row(title))
        for panel in panels:
            made.with_panel(_panel(Panel(**panel), macros))
    return _numbered(made.build())


def _numbered(built: models.Dashboard) -> models.Dashboard:
    """The dashboard with a number for each panel: links name it. The SDK leaves panels without, and rows with 0."""
    for number, one in enumerate(built.panels or (), 1):
        one.id_val = number
    for variable in built.templating.list_val or ():
        if variable.type_val == models.VariableType.CONSTANT:
            variable.hide = models.VariableHide.HIDE_VARIABLE
    return built


def _variable(name: str, label: str, query: str, *, everything: bool = True) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(name).label(label).datasource(_SOURCE)
    made.query({"query": _expanded(query, _MACROS), "refId": name})
    made.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.NATURAL_ASC)
    if everything:
        # Series without the label match as well: on EKS those of pods have no group.
        made.multi(True).include_all(True).all_value(".*")
        made.current(models.VariableOption(selected=True, text="All", value="$__all"))
    return made


def _expanded(expr: str, macros: Mapping[str, str]) -> str:
    """The expression without macros, which may name each other."""
    names = re.compile(rf"\b(?:{'|'.join(macros)})\b")
    while names.search(expr):
        expr = names.sub(lambda found: macros[found[0]], expr)
    return expr


def _panel(one: Panel, macros: Mapping[str, str]) -> Any:
    if one.text:
        made = text.Panel().title("About this page").content(with_prices(one.text))
        return made.span(COLUMNS).height(one.height or 4)
    made = _kind(one)
    made.title(one.graph or one.stack or one.number or one.bars or one.table or one.states)
    made.datasource(_SOURCE).span(one.width).height(one.height or (4 if one.number else 8)).unit(one.unit)
    if one.note:
        made.description(one.note)
    if one.empty:
        made.no_value(one.empty)
    if one.top is not None:
        made.max(one.top)
    # A count has no decimals. Shares and dollars keep Grafana's own.
    decimals = 0 if one.number and one.unit == "short" else one.decimals
    if decimals is not None:
        made.decimals(decimals)
    steps = [models.Threshold(value=value, color=colour) for value, colour in one.steps]
    made.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    series = one.series or {"" if one.number or one.table else one.legend: one.expr}
    for ref, (legend, expr) in zip("ABCDEFGH", series.items(), strict=False):
        query = prometheus.Dataquery().expr(_expanded(expr, macros)).legend_format(legend).ref_id(ref)
        query.datasource(_SOURCE)
        if one.bars or one.table:
            query.instant()
        made.with_target(query.format(PromQueryFormat.TABLE) if one.table else query)
    return made


def _kind(one: Panel) -> Any:
    """The SDK's panel, with what only its kind has."""
    latest = common.ReduceDataOptions().calcs(["lastNotNull"])
    if one.number:
        return stat.Panel().graph_mode(common_models.BigValueGraphMode.AREA).reduce_options(latest)
    if one.bars:
        made = bargauge.Panel().orientation(common_models.VizOrientation.HORIZONTAL).min(0).reduce_options(latest)
        return made.display_mode(common_models.BarGaugeDisplayMode.BASIC)
    if one.table:
        options = {"excludeByName": {"Time": True, "__name__": True}, "renameByName": {"Value": one.column}}
        organize = models.DataTransformerConfig(id_val="organize", options=options)
        return table.Panel().filterable(True).with_transformation(organize)
    if one.states:
        results = {
            value: models.ValueMappingResult(text=said, color=colour, index=index)
            for index, (value, (said, colour)) in enumerate(one.colours.items())
        }
        made_states = statetimeline.Panel().show_value(common_models.VisibilityMode.NEVER).row_height(0.8)
        return made_states.mappings([models.ValueMap(options=results)])
    return _graph(one)


def _graph(one: Panel) -> graphs.Panel:
    """Lines over time, from zero, with a table of their last and highest values below, the highest first."""
    legend = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.TABLE).show_legend(True)
    legend = legend.placement(common_models.LegendPlacement.BOTTOM).calcs(["lastNotNull", "max"])
    legend = legend.sort_by("Last *").sort_desc(True)  # The title of the column of lastNotNull.
    mode = common_models.TooltipDisplayMode.MULTI
    panel = graphs.Panel().legend(legend).tooltip(common.VizTooltipOptions().mode(mode)).min(0).line_width(1)
    panel = panel.show_points(common_models.VisibilityMode.NEVER).fill_opacity(40 if one.stack else 5)
    if one.stack:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    if len(one.steps) > 1:
        dashed = common_models.GraphThresholdsStyleMode.DASHED
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(dashed))
    return panel


_BASIS = {
    "ec2": "EC2's on-demand rate, where no HyperPod rate is listed",
    "capacity-block": "A capacity block's effective hourly rate, where nothing else is sold",
}
# HyperPod's own rates; and of accelerators, which the bill consists of, estimates too.
_PRICED = [
    kind for kind in CATALOGUE.values() if kind.price_basis == "hyperpod" or (kind.accelerator and kind.hourly_usd)
]


def price() -> str:
    """PromQL with a series for each instance type: its label ``instance_type``, and USD an hour."""
    return " or ".join(
        f'label_replace(vector({kind.hourly_usd:g}), "instance_type", "{kind.name}", "", "")' for kind in _PRICED
    )


def with_prices(text: str) -> str:
    """A board's text with PRICED_REGIONS, and with ESTIMATES: the types whose price is not HyperPod's own."""
    estimates = " ".join(f"{said}: {', '.join(_families(name))}." for name, said in _BASIS.items())
    return text.replace("PRICED_REGIONS", " and ".join(PRICED_REGIONS)).replace("ESTIMATES", estimates)


def _families(basis: str) -> list[str]:
    """The types with prices of a basis: a family where all of its types are, or a type."""
    found: list[str] = []
    for kind in (kind for kind in _PRICED if kind.price_basis == basis):
        family = kind.name.rsplit(".", 1)[0]
        whole = all(one.price_basis == basis for one in CATALOGUE.values() if one.name.startswith(f"{family}."))
        found.append(family if whole else kind.name)
    return list(dict.fromkeys(found))
