"""Security groups: one for each purpose, and every rule is a resource."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ..common.context import Context
from ..storage.keys import Fsx
from .keys import NetworkConfig
from .vpc import Network

# Amazon FSx for Lustre User Guide, "File system access control with Amazon VPC": 988 and 1018-1023.
LUSTRE_PORTS = ((988, 988), (1018, 1023))
# Amazon FSx for OpenZFS User Guide, "File system access control with Amazon VPC". Its other ports, 111 and 20001-20003,
# are those of NFS 3; the nodes speak 4.1, which needs no others (nfs(5)).
NFS_PORTS = (2049, 2049)
# MariaDB's own port, RDS's default for it.
DATABASE_PORT = 3306
HTTP, HTTPS = 80, 443


@dataclass(frozen=True, kw_only=True)
class SecurityGroupsArgs:
    """Inputs of the groups. ``network``: its VPC, and the destinations of nodes in a closed one; ``keys`` are the
    network's, ``fsx`` those of the file systems; ``database``: whether there is one.
    """

    context: Context
    network: Network
    keys: NetworkConfig
    fsx: Fsx
    database: bool = False


class SecurityGroups(ComponentResource):
    """Owns the groups of the nodes, the file system and the database; with existing groups it owns nothing.

    All traffic between nodes is allowed, in both directions: EFA's health checks fail without an egress rule to the
    group itself, even with 0.0.0.0/0 (SageMaker Developer Guide, "Prerequisites for using SageMaker HyperPod"). Nodes
    reach the file system over Lustre's ports, or with EFA over all of them (Amazon FSx for Lustre User Guide,
    "EFA-enabled security groups"). They reach the outside over HTTP and HTTPS, or on every port where configured
    (assumption ``efa-egress``); in a closed network only the VPC's endpoints and S3, over HTTPS. Deliberately absent:
    ssh from outside; people connect through Session Manager. EKS owns the control plane's group, whose rules are in
    ``Eks``; the network owns the endpoints' group.
    """

    nodes: list[Output[str]]
    storage: list[Output[str]]
    database: list[Output[str]]
    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: SecurityGroupsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:SecurityGroups", name, None, opts)
        self._name, self._args, self.ready = name, args, []
        if existing := args.keys.security_group_ids:
            self.nodes = self.storage = self.database = [Output.from_input(group) for group in existing]
        else:
            self._make_groups()
        self.register_outputs({"nodes": self.nodes, "storage": self.storage})

    def _make_groups(self) -> None:
        keys, fsx, network = self._args.keys, self._args.fsx, self._args.network
        nodes = self._group("nodes", "HyperPod nodes", ResourceOptions(parent=self))
        storage = self._group(
            "storage", "FSx for Lustre", ResourceOptions(parent=self, retain_on_delete=fsx.retain_on_delete)
        )
        self.nodes, self.storage, self.database = [nodes.id], [storage.id], []
        if self._args.database:
            database = self._group("database", "Slurm's accounting", ResourceOptions(parent=self))
            self.database, own = [database.id], (DATABASE_PORT, DATABASE_PORT)
            self._rule("database-ingress-nodes", database, "ingress", "MariaDB", peer=nodes, ports=own)
            self._rule("nodes-egress-database", nodes, "egress", "MariaDB", peer=database, ports=own)
        for direction in ("ingress", "egress"):
            self._rule(f"nodes-{direction}-self", nodes, direction, "EFA and MPI between nodes", peer=nodes)
            for ports in (None,) if fsx.efa else LUSTRE_PORTS:
                which, title = (str(ports[0]), f"Lustre {ports[0]}") if ports else ("efa", "Lustre over EFA")
                self._rule(f"storage-{direction}-nodes-{which}", storage, direction, title, peer=nodes, ports=ports)
                self._rule(f"storage-{direction}-self-{which}", storage, direction, title, peer=storage, ports=ports)
                self._rule(f"nodes-{direction}-storage-{which}", nodes, direction, title, peer=storage, ports=ports)
            if fsx.home_storage_gib:
                self._rule(f"storage-{direction}-nodes-nfs", storage, direction, "NFS", peer=nodes, ports=NFS_PORTS)
                self._rule(f"nodes-{direction}-storage-nfs", nodes, direction, "NFS", peer=storage, ports=NFS_PORTS)
        if keys.closed:
            for which, cidr in zip(("primary", "secondary"), network.cidr_blocks, strict=False):
                self._rule(
                    f"nodes-egress-https-{which}", nodes, "egress", "AWS endpoints", cidr=cidr, ports=(HTTPS, HTTPS)
                )
            self._rule(
                "nodes-egress-https-s3",
                nodes,
                "egress",
                "S3",
                prefix_list=network.s3_prefix_list_id,
                ports=(HTTPS, HTTPS),
            )
        elif keys.egress == "open-all":
            self._rule("nodes-egress-all", nodes, "egress", "Everything through the NAT gateway", cidr="0.0.0.0/0")
        else:
            for title, port in (("https", HTTPS), ("http", HTTP)):
                what = f"{title.upper()} through the NAT gateway"
                self._rule(f"nodes-egress-{title}", nodes, "egress", what, cidr="0.0.0.0/0", ports=(port, port))

    def _group(self, which: str, description: str, opts: ResourceOptions) -> aws.ec2.SecurityGroup:
        return aws.ec2.SecurityGroup(
            f"{self._name}-{which}",
            vpc_id=self._args.network.vpc_id,
            description=description,
            tags={"Name": f"{self._args.context.names.cluster}-{which}"},
            opts=opts,
        )

    def _rule(
        self,
        which: str,
        group: aws.ec2.SecurityGroup,
        direction: str,
        description: str,
        *,
        peer: aws.ec2.SecurityGroup | None = None,
        cidr: str | None = None,
        prefix_list: Input[str] | None = None,
        ports: tuple[int, int] | None = None,
    ) -> None:
        """Create one rule; without ``ports`` it covers every protocol."""
        kind = aws.vpc.SecurityGroupIngressRule if direction == "ingress" else aws.vpc.SecurityGroupEgressRule
        self.ready.append(
            kind(
                f"{self._name}-{which}",
                security_group_id=group.id,
                referenced_security_group_id=peer.id if peer else None,
                cidr_ipv4=cidr,
                prefix_list_id=prefix_list,
                ip_protocol="tcp" if ports else "-1",
                from_port=ports[0] if ports else None,
                to_port=ports[1] if ports else None,
                description=description,
                opts=ResourceOptions(parent=self),
            )
        )
