"""Unit prices of everything that is billed besides instances: list prices of us-east-1 and us-west-2, USD.

The figures are rows of ``prices.csv``, each with its source. Instances are priced in ``accelerators``.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal, TypeAlias

from .rows import table

Unit: TypeAlias = Literal["hour", "month", "GB-month", "MBps-month", "GB", "10M samples", "billion samples"]

# The regions whose list prices the tables have; others cost more or less.
PRICED_REGIONS = ("us-east-1", "us-west-2")
# AWS bills a GB-month as 730 hours, 8,760 hours a year over twelve months (AWS Pricing Calculator, assumptions).
HOURS_PER_MONTH = 730


class UnknownPrice(ValueError):
    """An item that the table lacks."""

    def __init__(self, item: str) -> None:
        self.item = item
        near = difflib.get_close_matches(item, PRICES, n=3) or list(PRICES)
        super().__init__(f'no price for "{item}"; there is {", ".join(near)}')


@dataclass(frozen=True, kw_only=True)
class Price:
    """One rate: ``usd`` per ``unit``. ``as_of`` is the source's date, None where it has none."""

    item: str
    usd: float
    unit: Unit
    source: str
    as_of: date | None = None

    @property
    def hourly_usd(self) -> float | None:
        """USD per hour for one permanent unit (a gateway, a key, a GB, a MB/s); None if usage is billed instead."""
        if self.unit == "hour":
            return self.usd
        return self.usd / HOURS_PER_MONTH if self.unit in ("month", "GB-month", "MBps-month") else None


PRICES: Mapping[str, Price] = table(Path(__file__).with_name("prices.csv"), Price, "item")


def price(item: str) -> Price:
    """Return the rate of an item. Raises UnknownPrice."""
    try:
        return PRICES[item]
    except KeyError:
        raise UnknownPrice(item) from None
