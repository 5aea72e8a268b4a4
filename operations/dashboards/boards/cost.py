"""Cost: what nodes cost while they are there, and how much of it works. Prices are the catalogue's, written in."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from components.catalogue.accelerators import CATALOGUE
from components.catalogue.prices import PRICED_REGIONS

from ..panels import NODE, NODE_BUSY, Look, Query, bars, board, figure, graph, number, rows, words
from ..shipped import BY_NAME

_JOB = "hpc_job, namespace, pod"
_ON = "on (cluster, group, node)"
# USD an hour of each node, with its labels.
_NODE_USD = f"hyperpod_node_info{{{NODE}}} * on (instance_type) group_left () (${{price:raw}})"
_UNPRICED = f"hyperpod_node_info{{{NODE}}} unless on (instance_type) (${{price:raw}})"
_SHARE_HELD = f"hyperpod:accelerators_allocated{{{NODE}}} / {_ON} hyperpod:accelerators{{{NODE}}}"
# An integral over the time range: a sample every five minutes, twelve in an hour.
_EVERY = "5m"
_SAMPLES = 12
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


def _about() -> str:
    regions = " and ".join(PRICED_REGIONS)
    basis = [f"{said}: {', '.join(_families(name))}." for name, said in _BASIS.items()]
    return f"""
Prices are **list prices of {regions}** at the time when this dashboard was made, from the project's catalogue
(`components/catalogue/instance_types.csv`, which names each source): HyperPod's on-demand rate; as an **estimate**,
{" ".join(basis)} Nodes of other types are in no figure but *Nodes without a price*.
Counted are nodes while they report, and nothing else: no file system, no traffic, no training plan, no discount.
`hyperpod cost STACK --live` asks AWS for today's prices of the whole stack; your bill has the truth.
*Idle* is what no job holds; *held, not busy* is allocated to jobs whose accelerators do not compute.
"""


def _families(basis: str) -> list[str]:
    """The types with prices of a basis: a family where all of its types are, or a type."""
    found: list[str] = []
    for kind in (kind for kind in _PRICED if kind.price_basis == basis):
        family = kind.name.rsplit(".", 1)[0]
        whole = all(one.price_basis == basis for one in CATALOGUE.values() if one.name.startswith(f"{family}."))
        found.append(family if whole else kind.name)
    return list(dict.fromkeys(found))


def _over_range(expression: str) -> str:
    return f"sum_over_time(({expression})[$__range:{_EVERY}]) / {_SAMPLES}"


def cost() -> Dashboard:
    """Dollars an hour now, dollars in the time range, and by group, node and job."""
    total = f"sum({_NODE_USD})"
    idle = f"sum(({_NODE_USD}) * {_ON} (1 - {_SHARE_HELD}))"
    waiting = f"sum(({_NODE_USD}) * {_ON} clamp_min({_SHARE_HELD} - {_ON} {NODE_BUSY}, 0))"
    busy = f"sum(({_NODE_USD}) * {_ON} {NODE_BUSY})"
    unequipped = f"sum(({_NODE_USD}) unless {_ON} hyperpod:accelerators{{{NODE}}})"
    accelerator = f"({_NODE_USD}) / {_ON} hyperpod:accelerators{{{NODE}}}"
    gpus = [f'DCGM_FI_DEV_GPU_UTIL{{{NODE}, {label}!=""}}' for label in ("hpc_job", "pod")]
    held = f"count by (cluster, group, node, {_JOB}) ({' or '.join(gpus)})"
    dollars = Look(unit="currencyUSD")
    return board(
        BY_NAME["cost"],
        (
            (
                "Now, and in this time range",
                (
                    number("An hour, all", total, look=figure(5, unit="currencyUSD")),
                    number("An hour, of it idle", f"{idle} or vector(0)", look=figure(5, unit="currencyUSD")),
                    number("In this time range", _over_range(total), look=figure(5, unit="currencyUSD")),
                    number("In this time range, of it idle", _over_range(idle), look=figure(5, unit="currencyUSD")),
                    number("Nodes without a price", f"count({_UNPRICED}) or vector(0)", look=figure(4)),
                    graph(
                        "What an hour's dollars do",
                        Query(busy, "busy"),
                        Query(waiting, "held, not busy"),
                        Query(idle, "idle"),
                        Query(unequipped, "nodes without accelerators"),
                        look=dollars,
                        stacked=True,
                    ),
                    graph(
                        "An hour, by group",
                        Query(f"sum by (group) ({_NODE_USD})", "{{group}}"),
                        look=dollars,
                        stacked=True,
                    ),
                ),
            ),
            (
                "Where it goes",
                (
                    rows(
                        "Nodes and prices",
                        f"sum by (group, instance_type) ({_NODE_USD})",
                        "USD an hour",
                        look=Look(unit="currencyUSD", width=8),
                    ),
                    bars(
                        "Idle, ten dearest nodes, an hour",
                        Query(f"topk(10, sum by (node) (({_NODE_USD}) * {_ON} (1 - {_SHARE_HELD})) > 0)"),
                        look=Look(unit="currencyUSD", width=8, empty="nothing is idle"),
                    ),
                    bars(
                        "Jobs or pods, an hour",
                        Query(
                            f"topk(10, sum by ({_JOB}) ({held} * {_ON} group_left () ({accelerator})))",
                            "{{hpc_job}} {{namespace}} {{pod}}",
                        ),
                        look=Look(unit="currencyUSD", width=8, empty="Jobs are known on GPU nodes alone."),
                    ),
                    words(_about(), height=5),
                ),
            ),
        ),
        price=price(),
    )
