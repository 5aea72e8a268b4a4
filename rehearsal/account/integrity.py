"""References between resources: every id and ARN that a resource names must exist, for as long as it is named."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .books import Live, Refused

# AWS's error code for an id that does not exist, by the id's prefix (EC2 API error codes; FSx and EKS API references).
_NOT_FOUND = {
    "vpc": "InvalidVpcID.NotFound",
    "subnet": "InvalidSubnetID.NotFound",
    "sg": "InvalidGroup.NotFound",
    "rtb": "InvalidRouteTableID.NotFound",
    "igw": "InvalidInternetGatewayID.NotFound",
    "nat": "InvalidNatGatewayID.NotFound",
    "eipalloc": "InvalidAllocationID.NotFound",
    "vpce": "InvalidVpcEndpointId.NotFound",
    "pl": "InvalidPrefixListID.NotFound",
    "fs": "FileSystemNotFound",
}
_ID = re.compile(rf"({'|'.join(_NOT_FOUND)})-[0-9a-f]{{8,17}}")
_ARN = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:\d{12}:.+")
_S3_URI = re.compile(r"s3://([a-z0-9.-]+)(/.*)?")


def references(value: Any) -> Iterator[str]:
    """Every id, ARN of an account, and ``s3://bucket`` in a value, at any depth. JSON documents are not parsed."""
    if isinstance(value, str):
        if _ID.fullmatch(value) or (_ARN.fullmatch(value) and "\n" not in value):
            yield value
        elif match := _S3_URI.fullmatch(value):
            yield f"s3://{match[1]}"
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from references(item)


def check_exist(wanted: Iterable[str], known: set[str]) -> None:
    """Raise Refused for the first reference that does not exist."""
    for reference in wanted:
        if _normal(reference) in known:
            continue
        if match := _ID.fullmatch(reference):
            raise Refused(_NOT_FOUND[match[1]], f"the {match[1]} '{reference}' does not exist")
        if reference.startswith("s3://"):
            raise Refused("NoSuchBucket", f"the bucket '{reference[5:]}' does not exist")
        raise Refused("ResourceNotFound", f"'{reference}' does not exist")


def check_unused(live: Live, everything: Iterable[Live]) -> None:
    """Raise Refused if another resource still refers to this one."""
    own = {_normal(identifier) for identifier in live.identifiers}
    for other in everything:
        if other is not live and any(_normal(reference) in own for reference in other.references):
            raise Refused("DependencyViolation", f"{live.id} is still used by {other.name} ({other.id})")


def _normal(reference: str) -> str:
    """Log group ARNs are written with and without the trailing ``:*``."""
    return reference.removesuffix(":*")


def known_identifiers(everything: Iterable[Live]) -> set[str]:
    """What references can resolve to."""
    return {_normal(identifier) for live in everything for identifier in live.identifiers}
