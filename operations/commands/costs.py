"""The verb ``cost``."""

from typing import Annotated

import typer

from components.estimates.amounts import Cost, difference, known

from .. import target
from ..failures import Exit, Failure, bad_input, cannot_know
from ..spending.costs import bill, live_rates
from ..terminal import console


def cost_command(
    stack: console.Stack,
    other: Annotated[
        str, typer.Argument(metavar="[OTHER]", help="Another stack: show what it costs more or less, by part.")
    ] = "",
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="Override a configuration value. Repeatable."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Use AWS's current prices in the stack's region. Needs credentials.")
    ] = False,
    max_hourly: Annotated[
        float | None,
        typer.Option("--max-hourly", metavar="USD", min=0, help="Exit with 1 above it, and with 3 if unknown."),
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Show what a stack costs, by part.

    Without --live, the prices come from this project's tables and AWS is not
    called. "~" marks an estimate, "<=" the most that it can be. --max-hourly
    is for scripts: exits with 1 if the stack costs more, and with 3 if a price
    is unknown, as an estimate does not count.

    \b
      hyperpod cost dev
      hyperpod cost dev slurm-gpu
      hyperpod cost slurm-gpu --config hyperpod:size=large
      hyperpod cost slurm-gpu --live --json
      hyperpod cost slurm-gpu --max-hourly 150
    """
    chosen = target.load(stack, config)
    if other:
        if live or max_hourly is not None:
            raise bad_input("OTHER compares two stacks by the tables alone", "leave --live and --max-hourly out")
        _compare(bill(chosen.config).cost, bill(target.load(other).config).cost, stack, other, as_json)
        return
    found = bill(chosen.config, live_rates(chosen.config, chosen.aws) if live else None)
    price = found.cost
    within = None if max_hourly is None else price.within(max_hourly)
    if as_json:
        console.emit(found.as_json() | ({} if max_hourly is None else {"max_hourly_usd": max_hourly, "within": within}))
    else:
        _show(stack, price, found.sources)
    if max_hourly is None or within:
        return
    if as_json:
        raise typer.Exit(Exit.FAILED if within is False else Exit.CANNOT_KNOW)
    raise _refused(stack, price, max_hourly, within, live=live)


def _show(stack: str, price: Cost, sources: tuple[str, ...]) -> None:
    console.prose(f"{stack}: {price.headline}", "bold")
    console.table(
        "",
        ["part", ("$/hour", "right"), ("$/month", "right")],
        price.rows,
        ("$/month",),
    )
    for line in price.warnings:
        console.prose(f"Warning: {line}", "yellow")
    for line in (*price.notes, *sources):
        console.remark(line)


def _refused(stack: str, price: Cost, limit: float, within: bool | None, *, live: bool) -> Failure:
    if within is False:
        return Failure(f"{stack} costs more than ${limit:,.2f} an hour: {price.words}", "a smaller or cheaper stack")
    hint = (
        "a type and region with a price" if live else f"hyperpod cost {stack} --live --max-hourly {limit:g}    asks AWS"
    )
    return cannot_know(f"whether {stack} costs at most ${limit:,.2f} an hour is unknown: {price.words}", hint)


def _compare(one: Cost, two: Cost, stack: str, other: str, as_json: bool) -> None:
    """Show two stacks' costs by the tables, part by part, and the difference."""
    nothing = known("", 0.0)
    parts = {name: (one.parts.get(name, nothing), two.parts.get(name, nothing)) for name in {**one.parts, **two.parts}}
    more = difference(one, two)
    if as_json:
        first, second = one.as_json(), two.as_json()
        both = {name: {stack: first["parts"].get(name, 0.0), other: second["parts"].get(name, 0.0)} for name in parts}
        hourly = {stack: first["hourly_usd"], other: second["hourly_usd"]}
        warnings = [*dict.fromkeys((*one.warnings, *two.warnings))]
        console.emit({"parts": both, "hourly_usd": hourly, "difference": more, "warnings": warnings})
        return
    if more is None:
        title = f"{other}: {two.words}\n{stack}: {one.words}"
    else:
        title = f"{other} costs ${abs(more):,.2f} an hour {'more' if more >= 0 else 'less'} than {stack}"
    for line in title.splitlines():
        console.prose(line, "bold")
    rows = [(name, a, b, b.least - a.least if a.known and b.known else None) for name, (a, b) in parts.items()]
    rows.sort(key=lambda row: (row[3] is not None, -abs(row[3] or 0.0)))
    console.table(
        "",
        ["part", (f"{stack} $/hour", "right"), (f"{other} $/hour", "right"), ("difference", "right")],
        [(n, a.figure(3), b.figure(3), "unknown" if diff is None else f"{diff:+,.3f}") for n, a, b, diff in rows],
    )
