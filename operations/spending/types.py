"""``types``: the instance types that HyperPod takes, with what decides between them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from components.catalogue.accelerators import CATALOGUE, AcceleratorName, InstanceType, nearest
from components.estimates.quotas import ON_DEMAND, SPOT

from ..failures import bad_input

Has = Literal["gpu", "trainium", "none"]
_HAS: Mapping[Has, AcceleratorName | Literal[""]] = {"gpu": "gpu", "trainium": "trainium", "none": ""}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which types are asked for: all that fit every criterion given. ``most_usd`` counts estimates, too."""

    text: str = ""
    has: Has | None = None
    efa: bool = False
    nvme: bool = False
    arm: bool = False
    most_usd: float | None = None


def listed(wanted: Wanted) -> list[InstanceType]:
    """The types in the catalogue's order. Raises Failure where there is none."""
    tests: list[Callable[[InstanceType], bool]] = [
        lambda row: row.hyperpod,
        lambda row: wanted.text.lower() in f"{row.name} {row.accelerator_model}".lower(),
        lambda row: wanted.has is None or row.accelerator == _HAS[wanted.has],
        lambda row: not wanted.efa or row.efa != "no",
        lambda row: not wanted.nvme or row.nvme_disks > 0,
        lambda row: not wanted.arm or row.architecture == "arm64",
        lambda row: wanted.most_usd is None or (row.hourly_usd is not None and row.hourly_usd <= wanted.most_usd),
    ]
    found = [row for row in CATALOGUE.values() if all(test(row) for test in tests)]
    if not found:
        near = nearest(wanted.text) if wanted.text else []
        hint = f"did you mean {' or '.join(near)}?" if near else "hyperpod types lists all of them"
        raise bad_input("no instance type of HyperPod fits", hint)
    return found


def as_json(row: InstanceType) -> dict[str, object]:
    """The documented form. ``hourly_usd`` is HyperPod's rate alone; another one is an estimate with its basis."""
    price = row.price_basis == "hyperpod"
    return {
        "name": row.name,
        "accelerator": row.accelerator or None,
        "accelerator_model": row.accelerator_model or None,
        "accelerators": row.accelerators,
        "accelerator_memory_gib": row.accelerator_memory_gib,
        "neuron_cores": row.neuron_cores,
        "vcpus": row.vcpus,
        "architecture": row.architecture,
        "memory_gib": row.memory_gib,
        "network_gbps": row.network_gbps,
        "efa": row.efa,
        "efa_interfaces": row.efa_interfaces,
        "rdma_read": row.rdma_read,
        "nvme_disks": row.nvme_disks,
        "nvme_gb_each": row.nvme_gb_each,
        "hourly_usd": row.hourly_usd if price else None,
        "estimated_hourly_usd": row.hourly_usd,
        "price_basis": row.price_basis,
        "price_source": row.price_source,
        "quota": ON_DEMAND.format(type=row.name),
        "spot_quota": SPOT.format(type=row.name),
    }


def accelerators(row: InstanceType) -> str:
    """``8 x H100``; a dash without any."""
    return f"{row.accelerators} x {row.accelerator_model}" if row.accelerator else "-"


def efa(row: InstanceType) -> str:
    """``32`` interfaces; a question mark where HyperPod was measured without what EC2 lists; a dash without any."""
    return "-" if row.efa == "no" else f"{row.efa_interfaces}{'?' if row.efa == 'maybe' else ''}"


def disks(row: InstanceType) -> str:
    """``8 x 3.8 TB``; a dash without any."""
    if not row.nvme_disks:
        return "-"
    size = f"{row.nvme_gb_each / 1000:.2g} TB" if row.nvme_gb_each >= 1000 else f"{row.nvme_gb_each} GB"
    return f"{row.nvme_disks} x {size}"


def price(row: InstanceType) -> str:
    """HyperPod's rate, or an estimate with its mark."""
    return (
        "unknown" if row.hourly_usd is None else f"{'' if row.price_basis == 'hyperpod' else '~'}{row.hourly_usd:.3f}"
    )
