"""The verbs of ``download``, for what a stack needs from others."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from components.kubernetes.charts import HYPERPOD, KUEUE

from ..deployment import charts, containers
from ..terminal import console

_From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FOLDER",
        help="Take the files from this folder instead of the network.",
        file_okay=False,
        exists=True,
    ),
]


def charts_command(
    offline: _From = None,
    as_json: console.Json = False,
) -> None:
    """Download the Helm charts for EKS into charts/.

    The HyperPod chart comes from github.com/aws/sagemaker-hyperpod-cli, Kueue's
    from github.com/kubernetes-sigs/kueue, both at a pinned commit and checked
    file by file. The three charts that the HyperPod chart depends on come from
    their publishers and are checked by digest. `deploy` downloads missing
    charts by itself.

    \b
      hyperpod download charts
      hyperpod download charts --from downloads/
    """
    with Progress(console=console.progress(), transient=True) as progress:
        found = [charts.bring(chart, offline=offline, progress=progress) for chart in (HYPERPOD, KUEUE)]
    if as_json:
        console.emit(found)
        return
    for one in found:
        console.say(f"{one.path}: {one.chart} {one.version}, content verified: {', '.join(one.content)}")


def containers_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to put them; made if it is missing.")],
    offline: _From = None,
    as_json: console.Json = False,
) -> None:
    """Download Enroot and Pyxis for Slurm.

    Only images of HyperPod that bring neither need them: with the folder as
    hyperpod:slurm.containerPackages, nodes install them from the lifecycle
    bucket. Both come from github.com/NVIDIA at a pinned version. SHA256SUMS in
    the folder has their digests: keep it under version control. NVIDIA
    publishes no digest of Enroot's packages, so the first download sets it.

    \b
      hyperpod download containers packages/
      hyperpod download containers packages/ --from downloads/
    """
    with Progress(console=console.progress(), transient=True) as progress:
        found = containers.bring(folder, offline, progress)
    if as_json:
        console.emit(found)
        return
    for one in found:
        verified = "as known" if one.known else "new: compare it with another download"
        console.say(f"{one.path}: sha256 {one.sha256}, {verified}")
    console.say("pulumi config set --path hyperpod:slurm.containers true", "dim")
    console.say(f"pulumi config set --path hyperpod:slurm.containerPackages {folder}", "dim")
