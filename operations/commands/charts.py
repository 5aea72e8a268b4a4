"""The verb ``charts``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from components.kubernetes.charts import HYPERPOD, KUEUE

from .. import console
from ..deployment.charts import bring


def charts_command(
    offline: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="Take the archives from this folder instead of the network.",
            file_okay=False,
            exists=True,
        ),
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Download the Helm charts for EKS into charts/.

    The HyperPod chart comes from github.com/aws/sagemaker-hyperpod-cli, Kueue's
    from github.com/kubernetes-sigs/kueue, both at a pinned commit and checked
    file by file. The three charts that the HyperPod chart depends on come from
    their publishers and are checked by digest. `deploy` downloads missing
    charts by itself.

    \b
      hyperpod charts
      hyperpod charts --from downloads/
    """
    with Progress(console=console.progress(), transient=True) as progress:
        found = [bring(chart, offline=offline, progress=progress) for chart in (HYPERPOD, KUEUE)]
    if as_json:
        console.emit(found)
        return
    for one in found:
        console.say(f"{one.path}: {one.chart} {one.version}, content verified: {', '.join(one.content)}")
