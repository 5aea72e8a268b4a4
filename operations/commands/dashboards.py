"""The verb ``dashboards``."""

import os
from pathlib import Path
from typing import Annotated

import typer

from .. import target
from ..dashboards.importing import TOKEN, Imported, import_dashboards, write_dashboards
from ..failures import bad_input
from ..terminal import console


def dashboards_command(
    stack: console.Stack,
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help=f"Your own Grafana. Its token: environment variable {TOKEN}.")
    ] = "",
    data_source: Annotated[
        str, typer.Option("--data-source", metavar="UID", help="Use an existing data source of that Grafana.")
    ] = "",
    write: Annotated[
        Path | None,
        typer.Option("--write", "-w", metavar="FOLDER", help="Write their JSON there instead of importing it."),
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Import a stack's dashboards into Grafana.

    By default into the stack's Amazon Managed Grafana, with a token that is
    deleted at the end. A second import replaces the dashboards of the first:
    to change one, copy it. `deploy` does this by itself.

    \b
      hyperpod dashboards slurm-gpu
      hyperpod dashboards slurm-gpu --url https://grafana.example.com
      hyperpod dashboards slurm-gpu --write dashboards
    """
    if write:
        pages = write_dashboards(target.load(stack), write)
        if as_json:
            console.emit({"dashboards": pages})
        else:
            console.table("", ["dashboard", "file"], [(page.title, page.url) for page in pages])
        return
    token = os.environ.get(TOKEN, "")
    if url and not token:
        raise bad_input(
            f"{TOKEN} is not set", f"export {TOKEN}: a token of a service account with the role Admin in that Grafana"
        )
    found = import_dashboards(target.load(stack), url=url, token=token, data_source=data_source)
    if as_json:
        console.emit(found)
        return
    show(found)


def show(found: Imported) -> None:
    """What was imported, for people."""
    console.table(
        f"{found.grafana}: folder HyperPod", ["dashboard", "address"], [(p.title, p.url) for p in found.dashboards]
    )
    for warning in found.warnings:
        console.prose(f"Warning: {warning}", "yellow")
