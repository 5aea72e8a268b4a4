"""What is wrong with the roles and policies that a configuration names."""

from __future__ import annotations

from collections.abc import Iterator

from ..catalogue.regions import Region
from ..config.model import Settings
from ..schema.problems import Problem


def role_problems(settings: Settings, region: Region | None) -> Iterator[Problem]:
    for key, arn in (
        ("existingRoleArn", settings.existing_role_arn),
        ("permissionsBoundaryArn", settings.permissions_boundary_arn),
    ):
        if arn is not None:
            yield from partition_problems(f"hyperpod:{key}", arn, region)


def partition_problems(key: str, arn: str, region: Region | None) -> Iterator[Problem]:
    """A role or policy of another partition than the region's."""
    partition = arn.split(":")[1]
    if region and partition != region.partition:
        yield Problem(
            key=key,
            what=f"the {arn.split(':')[5].split('/')[0]} is in partition {partition}",
            fix=f"{region.name} is in {region.partition}",
        )
