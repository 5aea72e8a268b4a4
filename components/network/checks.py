"""Checks of the keys of the network."""

from collections.abc import Iterator
from ipaddress import IPv4Network

from ..schema.problems import Problem
from ..workers.keys import ClusterKeys
from .keys import NetworkConfig

# Amazon VPC User Guide, "VPC CIDR blocks": a block is /16 to /28.
_LARGEST_PREFIX, _SMALLEST_PREFIX = 16, 28
# It holds the /24s of plan_subnets.
_PRIMARY_PREFIX = 20

_PRIVATE_RANGES = tuple(IPv4Network(r) for r in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
# Amazon VPC User Guide, "IPv4 CIDR block association restrictions": no VPC has link-local addresses, no second block is
# in 198.19.0.0/16, and with a block of a range some parts of the same range are refused.
_LINK_LOCAL, _NEVER_SECOND = IPv4Network("169.254.0.0/16"), IPv4Network("198.19.0.0/16")
_REFUSED_BESIDE = (
    (IPv4Network("10.0.0.0/15"), IPv4Network("10.0.0.0/16")),
    (IPv4Network("172.16.0.0/12"), IPv4Network("172.31.0.0/16")),
)


def network_problems(net: NetworkConfig, settings: ClusterKeys, addresses: int) -> Iterator[Problem]:
    """Yield every problem of ``hyperpod:network``. ``addresses``: the number that the private subnet needs."""
    yield from _existing(net, settings) if net.vpc_id or net.private_subnet_id else _blocks(net, addresses)
    if settings.orchestrator == "slurm":
        for field, given in (("eksSubnetIds", net.eks_subnet_ids), ("imageRegistry", net.image_registry)):
            if given:
                yield Problem(
                    key=f"hyperpod:network.{field}", what="is for EKS", fix="leave it out with orchestrator slurm"
                )
    if net.closed and settings.orchestrator == "eks" and not net.image_registry:
        yield Problem(
            key="hyperpod:network.imageRegistry",
            what="a closed network cannot pull the charts' images, which are in public registries",
            fix="mirror them to a private registry and name it, as 123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror",
        )
    if net.closed and settings.orchestrator == "eks" and settings.accelerator == "trainium":
        yield Problem(
            key="hyperpod:network.egress",
            what="the pinned HyperPod chart pulls the Neuron device plugin only from public.ecr.aws",
            fix="open for EKS with Trainium, or use Slurm",
        )

    if net.trusted and not net.closed:
        yield Problem(
            key="hyperpod:network.trusted",
            what="is about the endpoints of a vpc-only network",
            fix="leave it out, or set network.egress to vpc-only",
        )


def _existing(net: NetworkConfig, settings: ClusterKeys) -> Iterator[Problem]:
    key = "hyperpod:network"
    needed = ["vpcId", "privateSubnetId", "securityGroupIds"] + (
        ["eksSubnetIds"] if settings.orchestrator == "eks" else []
    )
    values = {
        "vpcId": net.vpc_id,
        "privateSubnetId": net.private_subnet_id,
        "securityGroupIds": net.security_group_ids,
        "eksSubnetIds": net.eks_subnet_ids,
    }
    for field in needed:
        if not values[field]:
            yield Problem(
                key=f"{key}.{field}",
                what="is missing",
                fix=f"an existing network needs {', '.join(needed)} together",
            )
    if settings.orchestrator == "eks" and len(set(net.eks_subnet_ids)) == 1:
        yield Problem(key=f"{key}.eksSubnetIds", what="one subnet", fix="EKS needs two, in different zones")
    if net.egress != "open":
        yield Problem(
            key=f"{key}.egress",
            what="has no meaning for an existing VPC",
            fix="you own its routes and endpoints: leave it out",
        )
    for field, alias in (("cidr", "cidr"), ("secondary_cidr", "secondaryCidr")):
        if field in net.model_fields_set:
            yield Problem(
                key=f"{key}.{alias}", what="set together with vpcId", fix="either create a VPC or use an existing one"
            )


def _blocks(net: NetworkConfig, addresses: int) -> Iterator[Problem]:
    key = "hyperpod:network"
    blocks: dict[str, IPv4Network] = {}
    for field, text in (("cidr", net.cidr), ("secondaryCidr", net.secondary_cidr)):
        if text is None:
            continue
        try:
            blocks[field] = IPv4Network(text)
        except ValueError as error:
            yield Problem(key=f"{key}.{field}", what=str(error), fix="a block like 10.0.0.0/16")
            continue
        if blocks[field].overlaps(_LINK_LOCAL):
            yield Problem(
                key=f"{key}.{field}", what=f"{text} has link-local addresses", fix="a private block like 10.0.0.0/16"
            )
        if not _LARGEST_PREFIX <= blocks[field].prefixlen <= _SMALLEST_PREFIX:
            yield Problem(
                key=f"{key}.{field}",
                what=f"{text} is not a size AWS allows",
                fix=f"/{_LARGEST_PREFIX} to /{_SMALLEST_PREFIX}",
            )
    for field in ("securityGroupIds", "eksSubnetIds"):
        if getattr(net, {"securityGroupIds": "security_group_ids", "eksSubnetIds": "eks_subnet_ids"}[field]):
            yield Problem(key=f"{key}.{field}", what="set without vpcId", fix="name the existing VPC too")
    primary, secondary = blocks.get("cidr"), blocks.get("secondaryCidr")
    if primary and primary.prefixlen > _PRIMARY_PREFIX:
        yield Problem(
            key=f"{key}.cidr",
            what=f"{primary} is too small for the public and control-plane subnets",
            fix=f"/{_PRIMARY_PREFIX} or larger",
        )
    if primary and secondary:
        yield from _pair(primary, secondary)
    if "cidr" in blocks and (secondary or net.secondary_cidr is None):
        yield from _room(addresses, blocks)


def _pair(primary: IPv4Network, secondary: IPv4Network) -> Iterator[Problem]:
    key = "hyperpod:network.secondaryCidr"
    if primary.overlaps(secondary):
        yield Problem(key=key, what=f"{secondary} overlaps {primary}", fix="two ranges that share no address")
    elif refused := _refused_range(primary, secondary):
        yield Problem(
            key=key,
            what=f"AWS associates no block of {refused} with a VPC of {primary}",
            fix=f"a block of {' or '.join(_associable_blocks(primary))}",
        )


def _refused_range(primary: IPv4Network, secondary: IPv4Network) -> IPv4Network | None:
    """Return the range of which AWS associates no block, if ``secondary`` is in one."""
    home = _range_of(primary)
    others = [one for one in _PRIVATE_RANGES if one != home]
    return next((one for one in (*others, *_refused_parts(primary), _NEVER_SECOND) if secondary.subnet_of(one)), None)


def _refused_parts(primary: IPv4Network) -> list[IPv4Network]:
    """Return the parts of the VPC block's range that AWS does not associate with it."""
    return [part for place, part in _REFUSED_BESIDE if primary.subnet_of(place)]


def _range_of(block: IPv4Network) -> IPv4Network | None:
    """Return the private range that contains a block; None for others, which AWS counts as publicly routable."""
    return next((one for one in _PRIVATE_RANGES if block.subnet_of(one)), None)


def _associable_blocks(primary: IPv4Network) -> list[str]:
    """Describe the blocks that AWS does associate with a VPC of this block."""
    home = _range_of(primary)
    if home is None:
        return ["100.64.0.0/10", "publicly routable addresses"]
    parts = _refused_parts(primary)
    return [f"{home} outside {parts[0]}" if parts else str(home), "100.64.0.0/10"]


def _room(needed: int, blocks: dict[str, IPv4Network]) -> Iterator[Problem]:
    field = "secondaryCidr" if "secondaryCidr" in blocks else "cidr"
    room = blocks[field].num_addresses if field == "secondaryCidr" else blocks[field].num_addresses // 2
    if room < needed:
        yield Problem(
            key=f"hyperpod:network.{field}",
            what=f"{blocks[field]} leaves {room} addresses, and nodes, file servers and endpoints take {needed}",
            fix="a larger block",
        )
