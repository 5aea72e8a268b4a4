"""What nodes cost by the catalogue, as the cost board's expressions and text have it."""

from __future__ import annotations

from components.catalogue.accelerators import CATALOGUE
from components.catalogue.prices import PRICED_REGIONS

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


def told(text: str) -> str:
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
