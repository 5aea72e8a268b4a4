"""Checks of the ARNs that a configuration names."""

from collections.abc import Iterator

from ..catalogue.regions import Region
from .problems import Problem


def partition_problems(key: str, arn: str, region: Region | None) -> Iterator[Problem]:
    """Report a role or policy of another partition than the region's."""
    partition = arn.split(":")[1]
    if region and partition != region.partition:
        yield Problem(
            key=key,
            what=f"the {arn.split(':')[5].split('/')[0]} is in partition {partition}",
            fix=f"{region.name} is in {region.partition}",
        )
