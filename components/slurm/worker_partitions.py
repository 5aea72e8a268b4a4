"""Checks the names of worker groups as names of their partitions in Slurm."""

from __future__ import annotations

from collections.abc import Iterator

from hyperpod_node.slurm.partitions import RESERVED, is_taken

from ..catalogue.accelerators import ACCELERATORS
from ..schema.problems import Problem
from ..workers.keys import ClusterKeys


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
