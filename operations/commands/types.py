"""The verb ``types``."""

from typing import Annotated

import typer

from components.catalogue.prices import PRICED_REGIONS
from components.estimates.quotas import ON_DEMAND, SPOT

from ..spending import types
from ..terminal import console
from ..terminal.tables import Column

_COLUMNS: tuple[Column, ...] = (
    "type",
    "accelerators",
    ("each GiB", "right"),
    ("EFA", "right"),
    ("Gbit/s", "right"),
    "NVMe",
    ("vCPUs", "right"),
    ("node GiB", "right"),
    "processor",
    ("$/hour", "right"),
)
# Which of them a narrow terminal gets first.
_SPARE = ("accelerators", "each GiB", "EFA", "node GiB", "NVMe", "vCPUs", "Gbit/s", "processor")


def types_command(
    text: Annotated[str, typer.Argument(metavar="[TEXT]", help="A part of the type's or its accelerator's name.")] = "",
    accelerator: Annotated[
        types.Has | None, typer.Option("--accelerator", help="Only types with these accelerators.")
    ] = None,
    efa: Annotated[bool, typer.Option("--efa", help="Only types with EFA.")] = False,
    nvme: Annotated[bool, typer.Option("--nvme", help="Only types with local disks.")] = False,
    arm: Annotated[bool, typer.Option("--arm", help="Only types with Arm processors.")] = False,
    max_hourly: Annotated[
        float | None, typer.Option("--max-hourly", metavar="USD", min=0, help="Only types that cost at most that.")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """List the instance types that HyperPod takes.

    With accelerators and their memory, EFA interfaces, local disks and price.
    "~" marks an estimate: no rate of HyperPod is published. "?" marks EFA that
    EC2 lists and HyperPod was measured without. A narrow terminal gets fewer
    columns; -o wide and --json have all. AWS is not called.

    \b
      hyperpod types
      hyperpod types h100
      hyperpod types --accelerator gpu --efa --max-hourly 20
      hyperpod types g6e --json
    """
    wanted = types.Wanted(text=text, has=accelerator, efa=efa, nvme=nvme, arm=arm, most_usd=max_hourly)
    found = types.listed(wanted)
    if as_json:
        console.emit([types.as_json(row) for row in found])
        return
    rows = [
        (
            row.name,
            types.accelerators(row),
            str(row.accelerator_memory_gib or "-"),
            types.efa(row),
            f"{row.network_gbps:g}",
            types.disks(row),
            str(row.vcpus),
            str(row.memory_gib),
            row.architecture,
            types.price(row),
        )
        for row in found
    ]
    hidden = console.table("", _COLUMNS, rows, _SPARE)
    console.remark(f"{len(found)} types; dollars of {' and '.join(PRICED_REGIONS)}, ~ an estimate (docs/saving.md)")
    if hidden:
        console.remark(f"no room here for {', '.join(hidden)}: -o wide, --json")
    console.remark(f'quotas: "{ON_DEMAND.format(type="TYPE")}", "{SPOT.format(type="TYPE")}"')
