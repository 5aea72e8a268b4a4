"""Checks of the keys of Slurm. Every rule yields its own problems."""

from collections.abc import Iterator, Sequence

from hyperpod_node.slurm.partitions import RESERVED, is_taken

from ..accounting.checks import accounting_problems, charged_problems
from ..catalogue.accelerators import ACCELERATORS
from ..catalogue.regions import Region
from ..people.keys import User
from ..schema.problems import Problem
from ..storage.keys import Fsx
from ..workers.keys import ClusterKeys
from .keys import Slurm

_KEY = "hyperpod:slurm"
_OUT = "leave it out with slurm.setup image"


def slurm_problems(
    settings: ClusterKeys,
    chosen: Slurm,
    users: Sequence[User],
    fsx: Fsx,
    region: Region | None,
    *,
    existing_vpc: bool,
    continuous: bool,
) -> Iterator[Problem]:
    """Yield every problem of the keys of Slurm, except for the folders that they name."""
    if settings.orchestrator == "eks":
        if chosen != Slurm():
            fix = "leave it out with orchestrator eks; there it is hyperpod:teams"
            yield Problem(key=_KEY, what="is for Slurm", fix=fix)
        return
    yield from worker_partition_problems(settings)
    yield from charged_problems(users, chosen.accounts, kept=chosen.accounting is not None)
    if chosen.container_packages and not chosen.containers:
        fix = "add slurm.containers: true, or leave it out"
        yield Problem(key=f"{_KEY}.containerPackages", what="no job may run in a container", fix=fix)
    yield from accounting_problems(chosen.accounting, chosen.accounts, chosen.qos, region, existing=existing_vpc)
    yield from image_problems(chosen, fsx, continuous=continuous)


def worker_partition_problems(settings: ClusterKeys) -> Iterator[Problem]:
    """Report groups whose partition would have the name of another. A cluster's only group has no separate one.

    Group names and HyperPod's own partition names have the same form (SageMaker API Reference,
    ClusterInstanceGroupSpecification and ClusterSlurmConfigDetails), and Slurm limits them no further.
    """
    if len(settings.workers) < 2:
        return
    shared = ACCELERATORS[settings.accelerator].slurm_partition
    for number, group in enumerate(settings.workers):
        if is_taken(group.name, {shared}):
            yield Problem(
                key=f"hyperpod:workers[{number}].name",
                what=f'Slurm has a partition "{group.name}" with other nodes, and each group has one of its name',
                fix=f"another name than {', '.join((*RESERVED, shared))}",
            )


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
