"""How long pulumi-aws waits for AWS: ``timeouts.csv``, with longer limits where the provider's own are too short.

The limits of the HyperPod cluster, of add-ons whose pods need nodes and of Helm's releases are with their resources.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pulumi import CustomTimeouts, ResourceOptions, ResourceTransformationArgs, ResourceTransformationResult

from ..catalogue import rows


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """A type's limits in minutes: the provider's, by its source (hashicorp/terraform-provider-aws), and the stack's
    replacement; 0 keeps the provider's.
    """

    type: str
    default_create: int
    default_update: int
    default_delete: int
    create: int = 0
    update: int = 0
    delete: int = 0
    source: str


@cache
def table() -> Mapping[str, Timeouts]:
    """Return the limits of every type for which AWS needs more than a minute, by type. Raises TableError."""
    return rows.table(Path(__file__).with_suffix(".csv"), Timeouts, "type")


def for_type(type_token: str) -> ResourceOptions | None:
    """Return the option that lengthens a type's limits, None if the provider's suffice."""
    row = table().get(type_token)
    if row is None or not (row.create or row.update or row.delete):
        return None
    create, update, delete = (f"{minutes}m" if minutes else None for minutes in (row.create, row.update, row.delete))
    return ResourceOptions(custom_timeouts=CustomTimeouts(create=create, update=update, delete=delete))


def lengthen(args: ResourceTransformationArgs) -> ResourceTransformationResult | None:
    """Give every resource that the program creates the limits of its type; a stack transformation."""
    longer = for_type(args.type_)
    if longer is None or args.opts.custom_timeouts is not None:
        return None
    return ResourceTransformationResult(args.props, ResourceOptions.merge(args.opts, longer))
