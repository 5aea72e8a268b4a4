"""The keys of ``hyperpod:network``."""

from typing import Annotated, Literal

from ..schema.fields import (
    IN_PLACE,
    NONE_IF_EMPTY,
    REFUSED,
    ImageRegistry,
    Model,
    SecurityGroupId,
    SubnetId,
    TrustedOwner,
    VpcId,
)


class NetworkConfig(Model):
    """Address blocks of a new VPC, or the ids of an existing one."""

    cidr: Annotated[str, REFUSED] = "10.0.0.0/16"
    """Address block of the new VPC."""
    secondary_cidr: Annotated[str | None, NONE_IF_EMPTY, REFUSED] = "10.1.0.0/16"
    """Second address block of the new VPC, for the nodes. If empty, they get half of `cidr`."""
    vpc_id: Annotated[VpcId | None, REFUSED] = None
    """Existing VPC. Needs `privateSubnetId` and `securityGroupIds`, and excludes the address blocks."""
    private_subnet_id: Annotated[SubnetId | None, REFUSED] = None
    """Subnet of the existing VPC for the nodes and the file system."""
    security_group_ids: Annotated[tuple[SecurityGroupId, ...], REFUSED] = ()
    """Security groups of the nodes in the existing VPC."""
    eks_subnet_ids: Annotated[tuple[SubnetId, ...], IN_PLACE] = ()
    """Two subnets of the existing VPC, in different zones, for the EKS control plane. EKS only."""
    egress: Annotated[Literal["open", "open-all", "vpc-only"], IN_PLACE] = "open"
    """Destinations that nodes can reach. open: the internet over HTTP and HTTPS, through a NAT gateway. open-all: the
    same on every port and protocol. vpc-only: the VPC, and AWS services through VPC endpoints that admit only this
    account's requests and resources. vpc-only on EKS needs `imageRegistry`."""
    trusted: Annotated[tuple[TrustedOwner, ...], IN_PLACE] = ()
    """Other accounts (12 digits) and organizations (o-...) whose identities and resources these endpoints also
    admit. Needs `egress` vpc-only."""
    image_registry: Annotated[ImageRegistry | None, IN_PLACE] = None
    """Private registry with k8s-device-plugin, mpi-operator, training-operator and kueue in the charts' versions, and
    with busybox:1.37.0 and node-problem-detector:v0.8.20. EKS only."""

    @property
    def closed(self) -> bool:
        """Whether traffic leaves the VPC only through its endpoints."""
        return self.egress == "vpc-only"
