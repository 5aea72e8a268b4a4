"""What is in the account, according to moto's services and the account's own records."""

import jmespath
from moto.core.base_backend import BackendDict

from .books import Books

Inventory = dict[str, set[str]]

# Service, operation, and the path of the names in its response, without what a new account has: the default VPC.
_QUERIES = (
    ("ec2", "describe_vpcs", "Vpcs[?!IsDefault].VpcId"),
    ("ec2", "describe_subnets", "Subnets[?!DefaultForAz].SubnetId"),
    ("ec2", "describe_internet_gateways", "InternetGateways[].InternetGatewayId"),
    ("ec2", "describe_nat_gateways", "NatGateways[?State!='deleted'].NatGatewayId"),
    ("ec2", "describe_addresses", "Addresses[].AllocationId"),
    ("ec2", "describe_route_tables", "RouteTables[?VpcId!='{default}'].RouteTableId"),
    ("ec2", "describe_security_groups", "SecurityGroups[?VpcId!='{default}'].GroupId"),
    ("ec2", "describe_vpc_endpoints", "VpcEndpoints[?State!='deleted'].VpcEndpointId"),
    ("ec2", "describe_network_interfaces", "NetworkInterfaces[].NetworkInterfaceId"),
    ("ec2", "describe_flow_logs", "FlowLogs[].FlowLogId"),
    ("s3", "list_buckets", "Buckets[].Name"),
    ("iam", "list_roles", "Roles[].RoleName"),
    ("iam", "list_instance_profiles", "InstanceProfiles[].InstanceProfileName"),
    ("logs", "describe_log_groups", "logGroups[].logGroupName"),
    ("logs", "describe_resource_policies", "resourcePolicies[].policyName"),
    ("events", "list_rules", "Rules[].Name"),
    ("ssm", "describe_parameters", "Parameters[].Name"),
    ("ssm", "list_documents", "DocumentIdentifiers[?Owner!='Amazon'].Name"),
    ("ecr", "describe_repositories", "repositories[].repositoryName"),
    ("sns", "list_topics", "Topics[].TopicArn"),
    ("sns", "list_subscriptions", "Subscriptions[].SubscriptionArn"),
    ("cloudwatch", "describe_alarms", "MetricAlarms[].AlarmName"),
    ("cloudwatch", "list_dashboards", "DashboardEntries[].DashboardName"),
    ("amp", "list_workspaces", "workspaces[].workspaceId"),
    ("rds", "describe_db_instances", "DBInstances[].DBInstanceIdentifier"),
    ("rds", "describe_db_subnet_groups", "DBSubnetGroups[].DBSubnetGroupName"),
    ("rds", "describe_db_parameter_groups", "DBParameterGroups[].DBParameterGroupName"),
    ("rds", "describe_db_snapshots", "DBSnapshots[].DBSnapshotIdentifier"),
    ("secretsmanager", "list_secrets", "SecretList[].Name"),
)
_KEYS_OF_AWS = "Aliases[?starts_with(AliasName, 'alias/aws/')].TargetKeyId"


def take_inventory(account: Books) -> Inventory:
    """Names of everything in the account, by kind, including the account's own records."""
    found: Inventory = {}
    # A service that was never asked has nothing.
    asked = {backend.service_name for backend in BackendDict._instances}
    default = "".join(_names(account, "ec2", "describe_vpcs", "Vpcs[?IsDefault].VpcId")) if "ec2" in asked else ""
    for service, operation, path in _QUERIES:
        what = f"{service} {operation.split('_', 1)[1].replace('_', '-')}"
        path = path.replace("{default}", default)
        found[what] = set(_names(account, service, operation, path)) if service in asked else set()
    keys = _names(account, "kms", "list_keys", "Keys[].KeyId") if "kms" in asked else []
    # moto calls those of AWS's own customers' too.
    own = set(_names(account, "kms", "list_aliases", _KEYS_OF_AWS)) if keys else set()
    found["kms keys"] = {key for key in keys if key not in own and _usable(account, key)}
    found["record"] = {live.id for live in account.live.values() if live.ours}
    return found


def _usable(account: Books, key: str) -> bool:
    """Whether a key counts: one that is pending deletion cannot be used, and AWS managed keys are AWS's own."""
    state = account.client("kms").describe_key(KeyId=key)["KeyMetadata"]
    return bool(state["KeyState"] != "PendingDeletion" and state["KeyManager"] == "CUSTOMER")


def _names(account: Books, service: str, operation: str, path: str) -> list[str]:
    client = account.client(service)
    if client.can_paginate(operation):
        pages = client.get_paginator(operation).paginate()
        return [name for page in pages for name in jmespath.search(path, page) or []]
    return jmespath.search(path, getattr(client, operation)()) or []
