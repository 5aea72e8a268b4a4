"""The VPC: the network of nodes, file system and control plane, and its routes to AWS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ..catalogue.regions import Region
from ..common.context import Context
from ..common.names import log_group
from ..common.policies import allow, assume_role, document
from ..security.encryption import log_statements
from .endpoint_policies import endpoint_policy
from .keys import NetworkConfig
from .subnets import SubnetPlan, plan_subnets

FLOW_LOG_DAYS = 14


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """Inputs of the network: its keys, the services with an interface endpoint, and two zones for each of the control
    plane of EKS and the database, if any. ``database_subnet_ids`` are those of an existing VPC.
    """

    context: Context
    network: NetworkConfig
    services: Sequence[str] = ()
    eks_zones: Sequence[str] = ()
    database_zones: Sequence[str] = ()
    database_subnet_ids: Sequence[str] = ()


class Network(ComponentResource):
    """Owns VPC, subnets, routes, NAT gateway, endpoints and flow logs; with an existing VPC it owns nothing.

    Nodes are in one private subnet of one zone, because EFA does not cross zones. Deliberately absent: a NAT gateway
    per zone (only one zone computes), a backup subnet, and network ACLs beyond the default.

    ``ready`` is what a node needs before it can boot: routes, NAT gateway and endpoints. For an existing VPC, whose
    owner decides on routes and endpoints, ``cidr_blocks`` is empty and ``s3_prefix_list_id`` None. ``blocks`` are the
    associations of further address blocks.
    """

    vpc_id: Output[str]
    private_subnet_id: Output[str]
    outputs: dict[str, Output[str]]
    eks_subnet_ids: list[Output[str]]
    database_subnet_ids: list[Output[str]]
    cidr_blocks: list[str]
    s3_prefix_list_id: Output[str] | None
    ready: list[pulumi.Resource]
    blocks: list[pulumi.Resource]

    def __init__(self, name: str, args: NetworkArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Network", name, None, opts)
        self._name, self._args, self._child = name, args, ResourceOptions(parent=self)
        self._context, net = args.context, args.network
        self.cidr_blocks, self.s3_prefix_list_id, self.ready, self.blocks = [], None, [], []
        if net.vpc_id and net.private_subnet_id:
            self.vpc_id = Output.from_input(net.vpc_id)
            self.private_subnet_id = Output.from_input(net.private_subnet_id)
            self.eks_subnet_ids = [Output.from_input(subnet) for subnet in net.eks_subnet_ids]
            self.database_subnet_ids = [Output.from_input(subnet) for subnet in args.database_subnet_ids]
        else:
            self._make_vpc()
        self.outputs = {"vpcId": self.vpc_id, "privateSubnetId": self.private_subnet_id}
        self.register_outputs({**self.outputs, "eksSubnetIds": self.eks_subnet_ids})

    def _make_vpc(self) -> None:
        net, child = self._args.network, self._child
        plan = plan_subnets(net.cidr, net.secondary_cidr)
        vpc = aws.ec2.Vpc(
            f"{self._name}-vpc",
            cidr_block=net.cidr,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=self._tags("vpc"),
            opts=child,
        )
        self.vpc_id, self.cidr_blocks = vpc.id, [net.cidr]
        if net.secondary_cidr:
            self.cidr_blocks.append(net.secondary_cidr)
            self.blocks.append(
                aws.ec2.VpcIpv4CidrBlockAssociation(
                    f"{self._name}-secondary", vpc_id=vpc.id, cidr_block=net.secondary_cidr, opts=child
                )
            )
        # Adopted only to remove its rules: an instance started without a security group gets no access.
        aws.ec2.DefaultSecurityGroup(f"{self._name}-default", vpc_id=vpc.id, ingress=[], egress=[], opts=child)
        self._flow_logs(vpc)
        self._subnets(vpc, plan)
        # In none of our route tables: only the VPC reaches the database, and it reaches nothing else.
        self.database_subnet_ids = self._in_two_zones(vpc, "database", plan, self._args.database_zones)
        table = aws.ec2.RouteTable(f"{self._name}-private", vpc_id=vpc.id, tags=self._tags("private"), opts=child)
        self._associate("private", self.private_subnet_id, table)
        for index, subnet in enumerate(self.eks_subnet_ids):
            self._associate(f"eks-{'ab'[index]}", subnet, table)
        if not net.closed:
            self._nat_gateway(vpc, plan, table)
        self._endpoints(vpc, table)

    def _subnets(self, vpc: aws.ec2.Vpc, plan: SubnetPlan) -> None:
        inside = {"kubernetes.io/role/internal-elb": "1"}
        private = aws.ec2.Subnet(
            f"{self._name}-private",
            vpc_id=vpc.id,
            cidr_block=plan.private,
            availability_zone_id=self._context.zone_id,
            tags=self._tags("private", inside),
            opts=ResourceOptions(parent=self, depends_on=self.blocks),
        )
        self.private_subnet_id = private.id
        self.eks_subnet_ids = self._in_two_zones(vpc, "eks", plan, self._args.eks_zones, inside)

    def _in_two_zones(
        self, vpc: aws.ec2.Vpc, what: str, plan: SubnetPlan, zones: Sequence[str], tags: dict[str, str] | None = None
    ) -> list[Output[str]]:
        """Create a subnet in each of the two zones; none without zones."""
        return [
            aws.ec2.Subnet(
                f"{self._name}-{what}-{letter}",
                vpc_id=vpc.id,
                cidr_block=cidr,
                availability_zone_id=zone,
                tags=self._tags(f"{what}-{letter}", tags),
                opts=self._child,
            ).id
            for letter, cidr, zone in zip("ab", plan.two_zones, zones, strict=False)
        ]

    def _nat_gateway(self, vpc: aws.ec2.Vpc, plan: SubnetPlan, private: aws.ec2.RouteTable) -> None:
        name, child = self._name, self._child
        public = aws.ec2.Subnet(
            f"{name}-public",
            vpc_id=vpc.id,
            cidr_block=plan.public,
            availability_zone_id=self._context.zone_id,
            tags=self._tags("public", {"kubernetes.io/role/elb": "1"}),
            opts=child,
        )
        gateway = aws.ec2.InternetGateway(f"{name}-internet", vpc_id=vpc.id, tags=self._tags("internet"), opts=child)
        table = aws.ec2.RouteTable(f"{name}-public", vpc_id=vpc.id, tags=self._tags("public"), opts=child)
        self._associate("public", public.id, table)
        aws.ec2.Route(
            f"{name}-public-internet",
            route_table_id=table.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.id,
            opts=child,
        )
        address = aws.ec2.Eip(f"{name}-nat", domain="vpc", tags=self._tags("nat"), opts=child)
        nat = aws.ec2.NatGateway(
            f"{name}-nat",
            allocation_id=address.id,
            subnet_id=public.id,
            tags=self._tags("nat"),
            # AWS refuses a public NAT gateway in a VPC without an attached internet gateway.
            opts=ResourceOptions(parent=self, depends_on=[gateway]),
        )
        self.ready.append(
            aws.ec2.Route(
                f"{name}-private-nat",
                route_table_id=private.id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=nat.id,
                opts=child,
            )
        )

    def _endpoints(self, vpc: aws.ec2.Vpc, table: aws.ec2.RouteTable) -> None:
        name, child = self._name, self._child
        s3 = aws.ec2.VpcEndpoint(
            f"{name}-s3",
            vpc_id=vpc.id,
            service_name=self._service("s3"),
            vpc_endpoint_type="Gateway",
            policy=self._endpoint_policy("s3", "Gateway"),
            route_table_ids=[table.id],
            tags=self._tags("s3"),
            opts=child,
        )
        self.s3_prefix_list_id = s3.prefix_list_id
        self.ready.append(s3)
        group = aws.ec2.SecurityGroup(
            f"{name}-endpoints",
            vpc_id=vpc.id,
            description="HTTPS from the VPC to interface endpoints",
            tags=self._tags("endpoints"),
            opts=child,
        )
        rules = [
            aws.vpc.SecurityGroupIngressRule(
                f"{name}-endpoints-https-{which}",
                security_group_id=group.id,
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                cidr_ipv4=cidr,
                description="HTTPS from the VPC",
                opts=child,
            )
            for which, cidr in zip(("primary", "secondary"), self.cidr_blocks, strict=False)
        ]
        self.ready += rules
        for service in self._args.services:
            self.ready.append(
                aws.ec2.VpcEndpoint(
                    f"{name}-{service.replace('.', '-')}",
                    vpc_id=vpc.id,
                    service_name=self._service(service),
                    vpc_endpoint_type="Interface",
                    policy=self._endpoint_policy(service, "Interface"),
                    subnet_ids=[self.private_subnet_id],
                    security_group_ids=[group.id],
                    private_dns_enabled=True,
                    tags=self._tags(service),
                    opts=child,
                )
            )

    def _endpoint_policy(self, service: str, kind: str) -> str | None:
        """Return the policy of a closed network's endpoint. AWS refuses a policy if a service accepts none, so this
        asks first (DescribeVpcEndpointServices); an open network has other ways out.
        """
        if not self._args.network.closed:
            return None
        answer = aws.ec2.get_vpc_endpoint_service(service_name=self._service(service), service_type=kind)
        return (
            endpoint_policy(self._context, self._args.network, service)
            if answer.vpc_endpoint_policy_supported
            else None
        )

    def _flow_logs(self, vpc: aws.ec2.Vpc) -> None:
        name, child = self._name, self._child
        logs = aws.cloudwatch.LogGroup(
            f"{name}-flow-logs",
            name=log_group(self._context.names.cluster, "flow-logs"),
            retention_in_days=FLOW_LOG_DAYS,
            kms_key_id=self._context.key,
            opts=child,
        )
        # Only for this account's flow logs: the page below, on the confused deputy problem.
        role = aws.iam.Role(
            f"{name}-flow-logs",
            name=self._context.names.role("flow-logs"),
            assume_role_policy=assume_role("vpc-flow-logs.amazonaws.com", self._context.account),
            permissions_boundary=self._context.boundary,
            opts=child,
        )
        # Amazon VPC User Guide, "IAM role for publishing flow logs to CloudWatch Logs". Deliberately absent:
        # CreateLogGroup, with which the last flow records would create the group again after a destroy.
        write = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
        find = allow(["logs:DescribeLogGroups"], ["*"])
        policy = aws.iam.RolePolicy(
            f"{name}-flow-logs",
            role=role.name,
            policy=Output.all(logs.arn, self._context.key).apply(
                lambda both: document(
                    [
                        allow(write, [f"{both[0]}:*"]),
                        find,
                        *(log_statements(self._context, both[1]) if both[1] else ()),
                    ]
                )
            ),
            opts=child,
        )
        aws.ec2.FlowLog(
            f"{name}-flow-logs",
            vpc_id=vpc.id,
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_destination=logs.arn,
            iam_role_arn=role.arn,
            tags=self._tags("flow-logs"),
            opts=ResourceOptions(parent=self, depends_on=[policy]),
        )

    def _associate(self, which: str, subnet_id: Input[str], table: aws.ec2.RouteTable) -> None:
        self.ready.append(
            aws.ec2.RouteTableAssociation(
                f"{self._name}-{which}", subnet_id=subnet_id, route_table_id=table.id, opts=self._child
            )
        )

    def _service(self, service: str) -> str:
        return service_name(self._context.region, service)

    def _tags(self, what: str, more: dict[str, str] | None = None) -> dict[str, str]:
        return {"Name": f"{self._context.names.cluster}-{what}", **(more or {})}


def service_name(region: Region, service: str) -> str:
    """Return the endpoint service's name: AWS's DNS suffix reversed, region, service (AWS PrivateLink guide)."""
    prefix = ".".join(reversed(region.dns_suffix.split(".")))
    # China names the S3 gateway and a few others without its prefix; the catalogue has no region there.
    return f"{prefix}.{region.name}.{service}"
