"""Prometheus' text format, version 0.0.4 (prometheus.io, "Exposition formats")."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterable, Mapping, Sequence, Tuple, Union

Labels = Mapping[str, str]
Number = Union[int, float]
Sample = Tuple[Labels, Number]


@dataclass(frozen=True)
class Family:
    """A metric: its name, its meaning, and a value for each set of labels.

    A counter whose name does not end in ``_total`` is ``untyped`` here: collectors built on OpenTelemetry append the
    ending to every other one (the exporter prometheusremotewrite, ``add_metric_suffixes``), and its name would be
    another than the one that rules and dashboards know.
    """

    name: str
    help: str
    samples: Sequence[Sample]
    kind: str = "gauge"


def one(name: str, help_: str, value: Number, **labels: str) -> Family:
    """Return a gauge with a single value."""
    return Family(name, help_, [(labels, value)])


def render(families: Iterable[Family]) -> str:
    """Return the file's text, without metrics that have no values, and values that are no numbers."""
    lines = []
    for family in families:
        samples = [(labels, value) for labels, value in family.samples if math.isfinite(value)]
        if not samples:
            continue
        lines.append(f"# HELP {family.name} {_escape(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines.extend(f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in samples)
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    inside = ",".join('{}="{}"'.format(name, _escape(value).replace('"', '\\"')) for name, value in labels.items())
    return "{" + inside + "}"


def _escape(text: str) -> str:
    # A file of the node may hold bytes that are no text.
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return clean.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: Number) -> str:
    # Counters of 64 bits exactly.
    return str(value) if isinstance(value, int) else repr(float(value))
