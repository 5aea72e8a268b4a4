"""``cost``: what a stack costs by the hour and month, by part, from the dated tables or from AWS's price list."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components import cost
from components.accelerators import lookup
from components.config import Config
from components.prices import HOURS_PER_MONTH, PRICES

from .aws import Aws

# The Pricing API answers in these regions only, for all of them (AWS Billing User Guide, Price List Query API).
_PRICING_REGION = "us-east-1"
# Where the price list has an item of prices.csv: service code, and how its usage type ends (AWS Price List).
_USAGE = {
    "sagemaker_volume": ("AmazonSageMaker", "Cluster:VolumeUsage.gp2"),
    "nat_gateway_hour": ("AmazonEC2", "NatGateway-Hours"),
    "interface_endpoint_hour": ("AmazonVPC", "VpcEndpoint-Hours"),
    "public_ipv4_hour": ("AmazonVPC", "PublicIPv4:InUseAddress"),
    "eks_hour": ("AmazonEKS", "AmazonEKS-Hours:perCluster"),
}
_HOURS = {"hrs": 1.0, "hour": 1.0, "hours": 1.0, "gb-mo": 1 / HOURS_PER_MONTH, "gb-month": 1 / HOURS_PER_MONTH}


@dataclass(frozen=True, kw_only=True)
class Bill:
    """A stack's cost, in US dollars. ``sources`` say where the figures of instances and other items are from."""

    hourly_usd: float
    monthly_usd: float
    accelerator_hourly_usd: float
    parts: Mapping[str, float]
    notes: tuple[str, ...]
    sources: tuple[str, ...]


def bill(config: Config, rates: Mapping[str, float] | None = None) -> Bill:
    """The cost by part. ``rates`` are the price list's, as ``live_rates`` finds them; the tables have the rest."""
    found = rates or {}
    estimate = cost.estimate(config, found)
    if rates is None:
        sources = _table_sources(config)
    else:
        listed = ", ".join(sorted(found)) or "nothing of this stack"
        sources = [f"AWS price list of {config.region.name}: {listed}", "the rest from the tables, as without --live"]
    return Bill(
        hourly_usd=estimate.hourly_usd,
        monthly_usd=estimate.monthly_usd,
        accelerator_hourly_usd=estimate.accelerator_hourly_usd,
        parts=estimate.parts,
        notes=estimate.notes,
        sources=tuple(sources),
    )


def _table_sources(config: Config) -> list[str]:
    types = dict.fromkeys(group.type.name for group in config.instance_groups)
    named = [f"{name}: {lookup(name).price_source}" for name in types]
    dated = sorted(row.as_of for row in PRICES.values() if row.as_of)
    return [*named, f"everything else: components/prices.csv, figures of {dated[0]} to {dated[-1]}"]


def live_rates(config: Config, aws: Aws) -> dict[str, float]:
    """Hourly USD of instance types and other items in the stack's region, as far as the price list has them."""
    wanted = {g.type.name: ("AmazonSageMaker", f"Cluster:{g.type.name}") for g in config.instance_groups} | _USAGE
    found = {}
    for item, (service, usage) in wanted.items():
        hourly = next(_hourly_prices(aws, config.region.name, service, usage), None)
        if hourly is not None:
            found[item] = hourly
    return found


def _hourly_prices(aws: Aws, region: str, service: str, usage: str) -> Iterator[float]:
    """On-demand rates of products whose usage type ends so. It begins with the region's short name, as USW2-."""
    filters = [
        {"Type": "TERM_MATCH", "Field": "regionCode", "Value": region},
        {"Type": "CONTAINS", "Field": "usagetype", "Value": usage},
    ]
    client = aws.client("pricing", _PRICING_REGION)
    for page in client.get_paginator("get_products").paginate(ServiceCode=service, Filters=filters):
        for text in page["PriceList"]:
            product = json.loads(text)
            kind = str(product["product"]["attributes"].get("usagetype", ""))
            if kind == usage or kind.endswith(f"-{usage}"):
                yield from _dimensions(product)


def _dimensions(product: Mapping[str, Any]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd, hours = float(dimension["pricePerUnit"].get("USD", 0)), _HOURS.get(dimension["unit"].lower())
            if usd and hours is not None:
                yield usd * hours
