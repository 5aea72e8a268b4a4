"""The verb ``job checkpoints``."""

from typing import Annotated

import typer

from .. import target
from ..spending import checkpoints
from ..spending.checkpoints import BYTES_PER_PARAMETER, Checkpoints, duration, size
from ..terminal import console


def checkpoints_command(
    stack: console.Stack,
    parameters: Annotated[
        str, typer.Option("--parameters", metavar="COUNT", help="The model's parameters, such as 8B, 70B or 1.5T.")
    ],
    bytes_per_parameter: Annotated[
        float, typer.Option("--bytes-per-parameter", metavar="N", min=1, help="What a checkpoint keeps of each.")
    ] = BYTES_PER_PARAMETER,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="Override a configuration value. Repeatable."),
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Show how often to save a model's checkpoints, and where.

    The size of one, the seconds that memory, /fsx and S3 take, the expected
    failures of the stack's nodes, and what four intervals cost a day: training
    that stands while it saves, and work that is done again after a failure.
    "*" marks the recommended interval. AWS is not called.

    \b
      hyperpod job checkpoints eks-gpu --parameters 70B
      hyperpod job checkpoints slurm-gpu --parameters 405B -c hyperpod:size=large
      hyperpod job checkpoints slurm-gpu --parameters 8B --json
    """
    found = checkpoints.calculate(target.load(stack, config).config, parameters, bytes_per_parameter)
    if as_json:
        console.emit(found.as_json())
        return
    _show(stack, found)


def _show(stack: str, found: Checkpoints) -> None:
    each = f"{found.bytes_per_parameter:g} bytes a parameter"
    console.prose(f"{stack}: a checkpoint has {size(found.bytes)} ({each})", "bold")
    a_day = found.failures_a_day
    console.prose(
        f"{found.nodes} nodes with {found.accelerators} accelerators fail {a_day:.2g} times a day, "
        f"once in {1 / a_day:,.0f} days"
        if a_day < 0.5
        else f"{found.nodes} nodes with {found.accelerators} accelerators fail {a_day:.1f} times a day"
    )
    console.table(
        "",
        [
            "tier",
            ("GB/s", "right"),
            ("to save", "right"),
            ("every", "right"),
            "",
            ("h/day saving", "right"),
            ("h/day redone", "right"),
            ("$/day", "right"),
        ],
        [
            (
                tier.name,
                f"{tier.bytes_per_s / 1e9:,.1f}",
                duration(tier.save_s),
                duration(choice.every_s),
                "*" if choice.recommended else "",
                f"{choice.saving_h:.3f}",
                f"{choice.redone_h:.3f}",
                choice.usd,
            )
            for tier in found.tiers
            for choice in tier.choices
        ],
    )
    for line in found.notes:
        console.remark(line)
