"""Which metrics and labels exist: what exporters were published to give, and this project's own contract."""

import csv
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser as promql

from components.alerts import rule_groups
from components.config import Config
from components.storage.file_systems import bandwidth

FOLDER = Path(__file__).parent
# What every series of a node carries, and the label by which Prometheus knows a scrape.
COMMON = frozenset({"__name__", "cluster", "node", "group", "job"})
# The agent that scrapes adds these, for every target.
_SCRAPED = {
    "up": frozenset({"instance"}),
    "ALERTS": frozenset({"alertname", "alertstate", "severity"}),
    # The kubelet's own, of which the EKS add-on is known to give this one.
    "kubelet_node_name": frozenset({"node"}),
}
_TABLES = ("dcgm", "efa", "kube_state_metrics", "kueue", "lustre", "neuron", "node_exporter", "slurm")


def namespace(config: Config, cluster: str) -> str:
    """The rules that a stack with a file system of its own gives its workspace."""
    settings = config.settings
    moved = bandwidth(settings.fsx_gib, settings.fsx.throughput)
    return rule_groups.namespace(cluster, settings.orchestrator, settings.accelerator, config.worker_groups, moved)


def rows(path: Path) -> list[dict[str, str]]:
    """A table's rows."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def published() -> Mapping[str, frozenset[str]]:
    """Every metric that an exporter or this project gives, with the labels of its own."""
    tables = [FOLDER / "published" / f"{name}.csv" for name in _TABLES]
    found = {
        row["metric"]: frozenset(row["labels"].split())
        for path in (*tables, FOLDER / "contract.csv")
        for row in rows(path)
    }
    return {**found, **_SCRAPED}


@cache
def addon() -> tuple[tuple[re.Pattern[str], frozenset[str]], ...]:
    """The labels that the EKS add-on puts on metrics, by a pattern of their names; the first that matches counts."""
    table = rows(FOLDER / "published" / "eks_addon.csv")
    return tuple((re.compile(row["metrics"]), frozenset(row["labels"].split())) for row in table)


def selectors(expr: Any) -> Iterator[promql.VectorSelector]:
    """Every selector of an expression, in order."""
    for node in walk(expr):
        if isinstance(node, promql.VectorSelector):
            yield node


def walk(expr: Any) -> Iterator[Any]:
    """An expression and every part of it."""
    rest = [expr]
    while rest:
        yield (one := rest.pop())
        inside = (getattr(one, name, None) for name in ("lhs", "rhs", "expr", "param", "vector_selector"))
        parts = [part for part in inside if part is not None] + list(getattr(one, "args", ()))
        rest += reversed(parts)


def matchers(selector: promql.VectorSelector) -> Mapping[str, str]:
    """A selector's labels and what they must be; the name as ``__name__``."""
    found = {one.name: one.value for one in selector.matchers.matchers}
    return {**found, **({"__name__": selector.name} if selector.name else {})}


def named(selector: promql.VectorSelector, known: Mapping[str, frozenset[str]]) -> list[str]:
    """The names that a selector asks for, known or not; each branch of a pattern counts as one."""
    if selector.name:
        return [selector.name]
    pattern = matchers(selector).get("__name__", "")
    head, bracket, rest = pattern.partition("(")
    branches = [head + one + rest.partition(")")[2] for one in rest.partition(")")[0].split("|")] if bracket else None
    names = [name for branch in branches or pattern.split("|") for name in _like(branch, known)]
    return names or [pattern]


def _like(pattern: str, known: Mapping[str, frozenset[str]]) -> list[str]:
    return [name for name in known if re.fullmatch(pattern, name)] or [pattern]


def problems(text: str, more: Mapping[str, frozenset[str]] | None = None) -> list[str]:
    """What an expression names that nothing gives: metrics, and labels that none of its metrics has.

    ``more`` are metrics beside the published ones: what recording rules give.
    """
    expr, known = promql.parse(text), {**published(), **(more or {})}
    lacking = [name for one in selectors(expr) for name in named(one, known) if name not in known]
    if lacking:
        return [f"no exporter gives {name}" for name in lacking]
    said = []
    for one in selectors(expr):
        has = labels_of(one, known)
        said += [f"{named(one, known)[0]} has no label {label}" for label in matchers(one) if label not in has]
    return said + _groupings(expr, known)


def labels_of(selector: promql.VectorSelector, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The labels that a selector's series may have: with ``cluster_name``, as the EKS add-on gives them."""
    names = named(selector, known)
    own = frozenset().union(*(known[name] for name in names)) | COMMON
    if "cluster_name" not in matchers(selector):
        return own
    return own.union(*(labels for name in names for pattern, labels in addon() if pattern.fullmatch(name)))


def _groupings(expr: Any, known: Mapping[str, frozenset[str]]) -> list[str]:
    """Labels that a ``by``, ``on`` or ``group_left`` names and no metric below has."""
    said = []
    for node in walk(expr):
        if asked := _grouped(getattr(node, "modifier", None)):
            has = COMMON.union(*(labels_of(one, known) for one in selectors(node))) | _made(node)
            said += [f"nothing below has the label {label}" for label in asked if label not in has]
    return said


def _grouped(modifier: Any) -> list[str]:
    matching = getattr(modifier, "matching", None)
    lists = (
        getattr(modifier, "labels", None),
        getattr(modifier, "group_labels", None),
        getattr(matching, "labels", None),
    )
    return [label for one in lists for label in one or ()]


def _made(expr: Any) -> set[str]:
    """Labels that label_replace and count_values make."""
    made = {one.args[1].val for one in walk(expr) if isinstance(one, promql.Call) and one.func.name == "label_replace"}
    return made | {one.param.val for one in walk(expr) if isinstance(getattr(one, "param", None), promql.StringLiteral)}
