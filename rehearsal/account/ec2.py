"""EC2 networking in moto, with the refusals that moto lacks."""

from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import Any

from . import guardduty
from .books import Books, Inputs, Live, Refused
from .kinds import Kind, delete_by, register
from .watching import as_aws

_PROTOCOL_ALL = "-1"


def _tags(inputs: Inputs) -> dict[str, str]:
    return {**inputs.get("tagsAll", {}), **inputs.get("tags", {})}


def _specs(resource_type: str, inputs: Inputs) -> list[dict[str, Any]]:
    tags = _tags(inputs)
    return [{"ResourceType": resource_type, "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}] if tags else []


def _retag(account: Books, live: Live, inputs: Inputs) -> dict[str, Any]:
    ec2 = account.client("ec2")
    if old := [{"Key": key} for key in _tags(live.inputs)]:
        ec2.delete_tags(Resources=[live.id], Tags=old)
    if new := [{"Key": key, "Value": value} for key, value in _tags(inputs).items()]:
        ec2.create_tags(Resources=[live.id], Tags=new)
    return {}


def _update_vpc(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    for name in ("EnableDnsHostnames", "EnableDnsSupport"):
        value = {"Value": bool(i.get(name[0].lower() + name[1:], False))}
        account.client("ec2").modify_vpc_attribute(VpcId=live.id, **{name: value})
    return _retag(account, live, i)


def _vpc(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    ec2 = account.client("ec2")
    vpc = ec2.create_vpc(CidrBlock=i["cidrBlock"], TagSpecifications=_specs("vpc", i))["Vpc"]
    for name in ("EnableDnsHostnames", "EnableDnsSupport"):
        wanted = i.get(name[0].lower() + name[1:], False)
        ec2.modify_vpc_attribute(VpcId=vpc["VpcId"], **{name: {"Value": bool(wanted)}})
    return vpc["VpcId"], {"arn": account.arn("ec2", f"vpc/{vpc['VpcId']}"), "ownerId": account.account_id}


def _secondary(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    vpc = account.client("ec2").describe_vpcs(VpcIds=[i["vpcId"]])["Vpcs"][0]
    blocks = [IPv4Network(one["CidrBlock"]) for one in vpc["CidrBlockAssociationSet"]]
    if _restricted(blocks, IPv4Network(i["cidrBlock"])):
        raise Refused(
            "InvalidVpc.Range",
            f"The CIDR '{i['cidrBlock']}' is restricted. Use a CIDR from the same private address range as the current "
            "VPC CIDR, or use a publicly-routable CIDR. For additional restrictions, see "
            "https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html",
        )
    answer = account.client("ec2").associate_vpc_cidr_block(VpcId=i["vpcId"], CidrBlock=i["cidrBlock"])
    return answer["CidrBlockAssociation"]["AssociationId"], {}


def _restricted(blocks: Sequence[IPv4Network], wanted: IPv4Network) -> bool:
    """The table of "IPv4 CIDR block association restrictions" (Amazon VPC User Guide), row by row: what a VPC with such
    a block may not be associated with. The last row is that of every other block."""
    private = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
    rows = {
        "10.0.0.0/15": ("10.0.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "198.19.0.0/16"),
        "10.0.0.0/8": ("172.16.0.0/12", "192.168.0.0/16", "198.19.0.0/16"),
        "172.16.0.0/12": ("10.0.0.0/8", "192.168.0.0/16", "172.31.0.0/16", "198.19.0.0/16"),
        "192.168.0.0/16": ("10.0.0.0/8", "172.16.0.0/12", "198.19.0.0/16"),
        "0.0.0.0/0": (*private, "198.19.0.0/16"),
    }
    # A VPC that began in a private range and got other blocks keeps the rules of that range.
    first = next(row for row in rows if blocks[0].subnet_of(IPv4Network(row)))
    return any(wanted.subnet_of(IPv4Network(one)) for one in rows[first])


def _default_group(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    filters = [{"Name": "vpc-id", "Values": [i["vpcId"]]}, {"Name": "group-name", "Values": ["default"]}]
    ec2 = account.client("ec2")
    group = ec2.describe_security_groups(Filters=filters)["SecurityGroups"][0]
    if group["IpPermissions"]:
        ec2.revoke_security_group_ingress(GroupId=group["GroupId"], IpPermissions=group["IpPermissions"])
    if group["IpPermissionsEgress"]:
        ec2.revoke_security_group_egress(GroupId=group["GroupId"], IpPermissions=group["IpPermissionsEgress"])
    return group["GroupId"], {"arn": account.arn("ec2", f"security-group/{group['GroupId']}")}


def _subnet(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    subnet = account.client("ec2").create_subnet(
        VpcId=i["vpcId"],
        CidrBlock=i["cidrBlock"],
        AvailabilityZoneId=i["availabilityZoneId"],
        TagSpecifications=_specs("subnet", i),
    )["Subnet"]
    # moto has one partition.
    arn = account.arn("ec2", f"subnet/{subnet['SubnetId']}")
    outputs = {"arn": arn, "availabilityZone": subnet["AvailabilityZone"]}
    return subnet["SubnetId"], outputs


def lacks_rule_to_itself(account: Books, groups: Sequence[str]) -> str | None:
    """ "ingress" or "egress" if no group allows all traffic between its members in that direction."""
    for direction in ("Ingress", "Egress"):
        token = f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule"
        rules = (
            account.find(token, by=account.now, securityGroupId=group, referencedSecurityGroupId=group, ipProtocol="-1")
            for group in groups
        )
        if all(next(found, None) is None for found in rules):
            return direction.lower()
    return None


def _internet_gateway(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    ec2 = account.client("ec2")
    gateway = ec2.create_internet_gateway(TagSpecifications=_specs("internet-gateway", i))["InternetGateway"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"], VpcId=i["vpcId"])
    return gateway["InternetGatewayId"], {"arn": account.arn("ec2", f"internet-gateway/{gateway['InternetGatewayId']}")}


def _delete_internet_gateway(account: Books, live: Live) -> None:
    # moto detaches while a NAT gateway of the VPC still maps a public address; AWS does not.
    subnets = {s.id for s in account.find("aws:ec2/subnet:Subnet", vpcId=live.inputs["vpcId"])}
    if any(nat.inputs["subnetId"] in subnets for nat in account.find("aws:ec2/natGateway:NatGateway")):
        raise Refused("DependencyViolation", f"{live.inputs['vpcId']} has mapped public addresses; unmap them first")
    ec2 = account.client("ec2")
    ec2.detach_internet_gateway(InternetGatewayId=live.id, VpcId=live.inputs["vpcId"])
    ec2.delete_internet_gateway(InternetGatewayId=live.id)


def _eip(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    address = account.client("ec2").allocate_address(Domain="vpc", TagSpecifications=_specs("elastic-ip", i))
    return address["AllocationId"], {"allocationId": address["AllocationId"], "publicIp": address["PublicIp"]}


def _nat_gateway(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    vpc = account.live["aws:ec2/subnet:Subnet", i["subnetId"]].inputs["vpcId"]
    attached = account.find("aws:ec2/internetGateway:InternetGateway", by=account.now, vpcId=vpc)
    if next(attached, None) is None:
        raise Refused("Gateway.NotAttached", f"network {vpc} has no internet gateway attached")
    nat = account.client("ec2").create_nat_gateway(
        SubnetId=i["subnetId"], AllocationId=i["allocationId"], TagSpecifications=_specs("natgateway", i)
    )["NatGateway"]
    return nat["NatGatewayId"], {}


def _delete_nat_gateway(account: Books, live: Live) -> None:
    ec2 = account.client("ec2")
    ec2.delete_nat_gateway(NatGatewayId=live.id)
    # moto does not release a NAT gateway's address and interface when it is deleted.
    with as_aws():
        for address in ec2.describe_addresses(AllocationIds=[live.inputs["allocationId"]])["Addresses"]:
            ec2.disassociate_address(AssociationId=address["AssociationId"])
        leaked = [{"Name": "subnet-id", "Values": [live.inputs["subnetId"]]}]
        for interface in ec2.describe_network_interfaces(Filters=leaked)["NetworkInterfaces"]:
            ec2.delete_network_interface(NetworkInterfaceId=interface["NetworkInterfaceId"])


def _route_table(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    answer = account.client("ec2").create_route_table(VpcId=i["vpcId"], TagSpecifications=_specs("route-table", i))
    table = answer["RouteTable"]["RouteTableId"]
    return table, {"arn": account.arn("ec2", f"route-table/{table}")}


def _route(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    target = {"NatGatewayId": i["natGatewayId"]} if i.get("natGatewayId") else {"GatewayId": i["gatewayId"]}
    cidr = i["destinationCidrBlock"]
    account.client("ec2").create_route(RouteTableId=i["routeTableId"], DestinationCidrBlock=cidr, **target)
    return f"r-{i['routeTableId']}-{cidr}", {}


def _delete_route(account: Books, live: Live) -> None:
    account.client("ec2").delete_route(
        RouteTableId=live.inputs["routeTableId"], DestinationCidrBlock=live.inputs["destinationCidrBlock"]
    )


def _update_route(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    target = {"NatGatewayId": i["natGatewayId"]} if i.get("natGatewayId") else {"GatewayId": i["gatewayId"]}
    cidr = i["destinationCidrBlock"]
    account.client("ec2").replace_route(RouteTableId=i["routeTableId"], DestinationCidrBlock=cidr, **target)
    return {}


def _association(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    answer = account.client("ec2").associate_route_table(RouteTableId=i["routeTableId"], SubnetId=i["subnetId"])
    return answer["AssociationId"], {}


def _update_association(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    """EC2 gives the new association another id, which the provider keeps."""
    now = live.outputs.get("associationId", live.id)
    answer = account.client("ec2").replace_route_table_association(AssociationId=now, RouteTableId=i["routeTableId"])
    return {"associationId": answer["NewAssociationId"]}


def _delete_association(account: Books, live: Live) -> None:
    account.client("ec2").disassociate_route_table(AssociationId=live.outputs.get("associationId", live.id))


def _endpoint(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    # moto accepts any service name; AWS's begin with its reversed DNS suffix and the region.
    if f".amazonaws.{account.region}." not in i["serviceName"]:
        raise Refused("InvalidServiceName", f"the Vpc Endpoint Service '{i['serviceName']}' does not exist")
    request = {
        "VpcId": i["vpcId"],
        "ServiceName": i["serviceName"],
        "VpcEndpointType": i.get("vpcEndpointType", "Gateway"),
        "RouteTableIds": i.get("routeTableIds"),
        "SubnetIds": i.get("subnetIds"),
        "SecurityGroupIds": i.get("securityGroupIds"),
        "PrivateDnsEnabled": i.get("privateDnsEnabled"),
        "PolicyDocument": i.get("policy"),
        "TagSpecifications": _specs("vpc-endpoint", i),
    }
    given = {key: value for key, value in request.items() if value is not None}
    endpoint = account.client("ec2").create_vpc_endpoint(**given)["VpcEndpoint"]
    outputs: dict[str, Any] = {
        "arn": account.arn("ec2", f"vpc-endpoint/{endpoint['VpcEndpointId']}"),
        "state": "available",
    }
    if i.get("vpcEndpointType") == "Gateway":
        outputs["prefixListId"] = account.prefix_list(i["serviceName"])
    return endpoint["VpcEndpointId"], outputs


def _update_endpoint(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    request: dict[str, Any] = {}
    for key, name in (("routeTableIds", "RouteTableIds"), ("subnetIds", "SubnetIds")):
        before, after = set(live.inputs.get(key) or []), set(i.get(key) or [])
        request |= {f"Add{name}": sorted(after - before), f"Remove{name}": sorted(before - after)}
    if given := {key: value for key, value in request.items() if value}:
        account.client("ec2").modify_vpc_endpoint(VpcEndpointId=live.id, **given)
    return _retag(account, live, i)


def _security_group(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    ec2 = account.client("ec2")
    group = ec2.create_security_group(
        GroupName=i["name"],
        Description=i.get("description") or "Managed by Pulumi",
        VpcId=i["vpcId"],
        TagSpecifications=_specs("security-group", i),
    )["GroupId"]
    # Pulumi, like Terraform, removes the rule that AWS adds to a new group.
    everything = [{"IpProtocol": _PROTOCOL_ALL, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    ec2.revoke_security_group_egress(GroupId=group, IpPermissions=everything)
    return group, {"arn": account.arn("ec2", f"security-group/{group}"), "ownerId": account.account_id}


def _permission(i: Inputs) -> dict[str, Any]:
    permission: dict[str, Any] = {"IpProtocol": i["ipProtocol"]}
    if i["ipProtocol"] != _PROTOCOL_ALL:
        permission |= {"FromPort": int(i["fromPort"]), "ToPort": int(i["toPort"])}
    note = {"Description": i["description"]} if i.get("description") else {}
    if i.get("cidrIpv4"):
        permission["IpRanges"] = [{"CidrIp": i["cidrIpv4"], **note}]
    elif i.get("referencedSecurityGroupId"):
        permission["UserIdGroupPairs"] = [{"GroupId": i["referencedSecurityGroupId"], **note}]
    elif i.get("prefixListId"):
        permission["PrefixListIds"] = [{"PrefixListId": i["prefixListId"], **note}]
    else:
        raise Refused("MissingParameter", "a rule needs a CIDR block, a security group or a prefix list")
    return permission


def _rule(direction: str) -> Kind:
    def create(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
        authorize = getattr(account.client("ec2"), f"authorize_security_group_{direction}")
        rules = authorize(GroupId=i["securityGroupId"], IpPermissions=[_permission(i)])["SecurityGroupRules"]
        rule = rules[0]["SecurityGroupRuleId"] if rules else account.new_id("sgr")
        return rule, {"securityGroupRuleId": rule, "arn": account.arn("ec2", f"security-group-rule/{rule}")}

    def delete(account: Books, live: Live) -> None:
        revoke = getattr(account.client("ec2"), f"revoke_security_group_{direction}")
        revoke(GroupId=live.inputs["securityGroupId"], IpPermissions=[_permission(live.inputs)])

    def update(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
        """ModifySecurityGroupRules, which moto lacks: the same rule with other contents."""
        delete(account, live)
        create(account, i)
        return {}

    title = direction.capitalize()
    token = f"aws:vpc/securityGroup{title}Rule:SecurityGroup{title}Rule"
    return Kind(token, create, delete, update)


def _flow_log(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    answer = account.client("ec2").create_flow_logs(
        ResourceIds=[i["vpcId"]],
        ResourceType="VPC",
        TrafficType=i["trafficType"],
        LogDestinationType=i["logDestinationType"],
        LogDestination=i["logDestination"],
        DeliverLogsPermissionArn=i["iamRoleArn"],
        TagSpecifications=_specs("vpc-flow-log", i),
    )
    return answer["FlowLogIds"][0], {"arn": account.arn("ec2", f"vpc-flow-log/{answer['FlowLogIds'][0]}")}


def _update_gateway(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    ec2 = account.client("ec2")
    if live.inputs["vpcId"] != i["vpcId"]:
        ec2.detach_internet_gateway(InternetGatewayId=live.id, VpcId=live.inputs["vpcId"])
        ec2.attach_internet_gateway(InternetGatewayId=live.id, VpcId=i["vpcId"])
    return _retag(account, live, i)


# Types of which more than tags changes in place.
_UPDATES = {
    "ec2/vpc:Vpc": _update_vpc,
    "ec2/internetGateway:InternetGateway": _update_gateway,
    "ec2/vpcEndpoint:VpcEndpoint": _update_endpoint,
}


def _register_kinds() -> None:
    """Make the EC2 types known."""

    def simple(operation: str, parameter: str) -> Any:
        return lambda account, live: getattr(account.client("ec2"), operation)(**{parameter: live.id})

    tagged: dict[str, tuple[Any, Any]] = {
        "ec2/vpc:Vpc": (_vpc, guardduty.delete_vpc),
        "ec2/subnet:Subnet": (_subnet, guardduty.delete_subnet),
        "ec2/internetGateway:InternetGateway": (_internet_gateway, _delete_internet_gateway),
        "ec2/eip:Eip": (_eip, delete_by("ec2", "release_address", "AllocationId")),
        "ec2/natGateway:NatGateway": (_nat_gateway, _delete_nat_gateway),
        "ec2/routeTable:RouteTable": (_route_table, simple("delete_route_table", "RouteTableId")),
        "ec2/vpcEndpoint:VpcEndpoint": (_endpoint, delete_by("ec2", "delete_vpc_endpoints", "VpcEndpointIds")),
        "ec2/securityGroup:SecurityGroup": (_security_group, delete_by("ec2", "delete_security_group", "GroupId")),
        "ec2/flowLog:FlowLog": (_flow_log, delete_by("ec2", "delete_flow_logs", "FlowLogIds")),
    }
    for token, (create, delete) in tagged.items():
        register(Kind(f"aws:{token}", create, delete, _UPDATES.get(token, _retag)))
    plain: dict[str, tuple[Any, Any, Any]] = {
        "ec2/vpcIpv4CidrBlockAssociation:VpcIpv4CidrBlockAssociation": (
            _secondary,
            delete_by("ec2", "disassociate_vpc_cidr_block", "AssociationId"),
            None,
        ),
        # pulumi-aws does not delete the adopted group, which is deleted with its VPC.
        "ec2/defaultSecurityGroup:DefaultSecurityGroup": (
            _default_group,
            lambda account, live: None,
            lambda account, live, i: {},
        ),
        "ec2/route:Route": (_route, _delete_route, _update_route),
        "ec2/routeTableAssociation:RouteTableAssociation": (_association, _delete_association, _update_association),
    }
    for token, (create, delete, update) in plain.items():
        register(Kind(f"aws:{token}", create, delete, update))
    for direction in ("ingress", "egress"):
        register(_rule(direction))


_register_kinds()
