"""``cost``: what a stack costs per hour and month, by part, from the dated tables or from AWS's price list."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.catalogue.accelerators import lookup
from components.catalogue.prices import HOURS_PER_MONTH, PRICES
from components.config import Config
from components.estimates import cost
from components.estimates.amounts import Cost

from ..aws import Aws

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
# The tiers of Persistent 2 (125, 250, 500, 1000 MB/s per TiB) are none of Persistent 1's (50, 100, 200), so that the
# throughput alone tells them apart (Amazon FSx for Lustre Pricing). The attributes are those that public cost
# estimators ask the price list for; where it calls them otherwise, the table's price stays, and is named.
_LUSTRE = {"fileSystemType": "Lustre", "storageType": "SSD"}
_LUSTRE_ITEM = "fsx_lustre_"
_HOURS = {"hrs": 1.0, "hour": 1.0, "hours": 1.0, "gb-mo": 1 / HOURS_PER_MONTH, "gb-month": 1 / HOURS_PER_MONTH}


@dataclass(frozen=True, kw_only=True)
class Bill:
    """A stack's cost, and where the figures are from."""

    cost: Cost
    sources: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        return {**self.cost.as_json(), "sources": list(self.sources)}


def bill(config: Config, rates: Mapping[str, float] | None = None) -> Bill:
    """The cost by part. ``rates`` are the price list's, as ``live_rates`` finds them; the tables have the rest."""
    found = rates or {}
    estimate = cost.estimate(config, found)
    if rates is None:
        sources = _table_sources(config)
    else:
        asked = ", ".join(sorted(found)) or "nothing of this stack"
        sources = [f"AWS price list of {config.region.name}: {asked}"]
        if estimate.listed:
            sources.append(f"from the tables, as without --live: {', '.join(estimate.listed)}")
    return Bill(cost=estimate, sources=tuple(sources))


def _table_sources(config: Config) -> list[str]:
    types = dict.fromkeys(row.name for group in config.instance_groups for row in group.types)
    named = [f"{name}: {lookup(name).price_source or 'no price is known'}" for name in types]
    dated = sorted(row.as_of for row in PRICES.values() if row.as_of)
    return [*named, f"everything else: components/catalogue/prices.csv, figures of {dated[0]} to {dated[-1]}"]


def live_rates(config: Config, aws: Aws) -> dict[str, float]:
    """Hourly USD of the stack's instance types and other items in its region, as far as the price list has them."""
    found = {}
    for item in dict.fromkeys(item for of in cost.quantities(config).values() for item in of):
        hourly = next(_rates(aws, config.region.name, item), None)
        if hourly is not None:
            found[item] = hourly
    return found


def _rates(aws: Aws, region: str, item: str) -> Iterator[float]:
    """On-demand rates of an item, none where it is not known how the price list calls it."""
    if item.startswith(_LUSTRE_ITEM):
        terms = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in _LUSTRE.items()]
        for attributes, product in _products(aws, "AmazonFSx", region, terms):
            throughput = re.match(r"\d+", attributes.get("throughputCapacity", ""))
            if throughput and throughput[0] == item.removeprefix(_LUSTRE_ITEM):
                yield from _dimensions(product)
    elif item in _USAGE or item not in PRICES:
        service, usage = _USAGE.get(item, ("AmazonSageMaker", f"Cluster:{item}"))
        terms = [{"Type": "CONTAINS", "Field": "usagetype", "Value": usage}]
        for attributes, product in _products(aws, service, region, terms):
            # It begins with the region's short name, as USW2-.
            if f"-{attributes.get('usagetype', '')}".endswith(f"-{usage}"):
                yield from _dimensions(product)


def _products(
    aws: Aws, service: str, region: str, terms: list[dict[str, str]]
) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Products of a service in a region, each with its attributes."""
    filters = [{"Type": "TERM_MATCH", "Field": "regionCode", "Value": region}, *terms]
    listed = aws.pages(
        "pricing", "get_products", "PriceList", region=_PRICING_REGION, ServiceCode=service, Filters=filters
    )
    for text in listed:
        product = json.loads(text)
        yield product["product"]["attributes"], product


def _dimensions(product: Mapping[str, Any]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd, hours = float(dimension["pricePerUnit"].get("USD", 0)), _HOURS.get(dimension["unit"].lower())
            if usd and hours is not None:
                yield usd * hours
