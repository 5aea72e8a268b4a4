"""What has to be there before a deployment begins: programs, and charts."""

from __future__ import annotations

import shutil

from components.kubernetes.charts import FOLDER, HYPERPOD, KUEUE, faults
from stack.failures import cannot_know

from .. import target as targets
from ..console import note
from . import charts


def require_aws_cli() -> None:
    """pulumi-eks checks the AWS CLI's version, and the Kubernetes provider gets every token from it."""
    if shutil.which("aws") is None:
        raise cannot_know(
            "an EKS stack needs the AWS CLI on PATH: pulumi-eks and the Kubernetes provider call it",
            "install version 2: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
        )


def bring_charts() -> None:
    """Download the charts that `pulumi up` installs on EKS, unless the pinned ones are there."""
    for chart in (HYPERPOD, KUEUE):
        if faults(chart, targets.ROOT / FOLDER / chart.name):
            note(f"Downloading the chart {chart.name} {chart.version} ...")
            charts.bring(chart)
