"""Refuses keys that ``slurm.setup: image`` cannot serve, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator

from ..schema.problems import Problem
from ..storage.keys import Fsx
from .keys import Slurm

_OUT = "leave it out with slurm.setup image"


def image_problems(slurm: Slurm, fsx: Fsx, *, continuous: bool) -> Iterator[Problem]:
    """Yield every key that the image's set-up cannot serve."""
    if not slurm.by_image:
        return
    accounting = slurm.accounting
    for key, is_set, why in (
        ("slurm.containers", slurm.containers, "the image sets Enroot and Pyxis up by itself"),
        ("slurm.containerPackages", slurm.container_packages, "the image has Enroot and Pyxis"),
        (
            "slurm.sharedQueue",
            slurm.shared_queue,
            "the image of a replaced controller starts slurmctld with an empty queue before the scripts run",
        ),
        (
            "slurm.accounting.retentionMonths",
            accounting is not None and "retention_months" in accounting.model_fields_set,
            "slurmdbd.conf is the image's",
        ),
        ("fsx.efa", fsx.efa, "the image mounts the file system before the scripts could let its client use EFA"),
        (
            "fsx.homeFileSystemId",
            fsx.home_file_system_id,
            "HyperPod mounts by DNS name and type, which an id does not tell; fsx.homeStorageGiB makes one",
        ),
    ):
        if is_set:
            yield Problem(key=f"hyperpod:{key}", what=why, fix=_OUT)
    if not continuous and slurm.on_rds:
        # CreateCluster, AccountingDatabase: "This field is only supported for clusters using Continuous".
        yield Problem(
            key="hyperpod:nodeProvisioning",
            what="HyperPod's own slurmdbd uses a database on RDS (slurm.accounting.database) only in this mode",
            fix="set it to Continuous",
        )
