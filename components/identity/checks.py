"""Checks of the roles and policies that a configuration names."""

from collections.abc import Iterator

from ..catalogue.regions import Region
from ..schema.arns import partition_problems
from ..schema.problems import Problem


def role_problems(role: str | None, boundary: str | None, region: Region | None) -> Iterator[Problem]:
    """Report a role or a permissions boundary of another partition."""
    for key, arn in (
        ("existingRoleArn", role),
        ("permissionsBoundaryArn", boundary),
    ):
        if arn is not None:
            yield from partition_problems(f"hyperpod:{key}", arn, region)
