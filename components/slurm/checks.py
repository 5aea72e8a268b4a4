"""Checks of the keys of Slurm. Every rule yields its own problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..accounting.checks import accounting_problems, charged_problems
from ..catalogue.regions import Region
from ..people.keys import User
from ..schema.problems import Problem
from ..storage.keys import Fsx
from ..workers.keys import ClusterKeys
from .image_checks import image_problems
from .keys import Slurm
from .worker_partitions import worker_partition_problems

_KEY = "hyperpod:slurm"


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
