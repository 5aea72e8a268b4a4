"""Creates the existing resources that a configuration names in the embedded account, before the program runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from unittest.mock import patch

from components.common.policies import allow, assume_role, document
from components.config import Config, Settings

from .account import Account

_IDS = {
    "vpc": "moto.ec2.models.vpcs.random_vpc_id",
    "subnet": "moto.ec2.models.subnets.random_subnet_id",
    "sg": "moto.ec2.models.security_groups.random_security_group_id",
}
_CIDR = "10.0.0.0/16"
_AMP, _AMG = "aws:amp/workspace:Workspace", "aws:grafana/workspace:Workspace"


def prepare(account: Account, *configs: Config) -> None:
    """Create what the configurations name (VPC, roles, key, file system, bucket, workspaces and more), each once."""
    # What somebody else has created neither fails nor counts.
    faults, account.faults = account.faults, []
    for config in configs:
        _prepare(account, config)
    account.faults = faults
    account.accept_as_existing()


def _prepare(account: Account, config: Config) -> None:
    net = config.settings.network
    if net.vpc_id and ("aws:ec2/vpc:Vpc", net.vpc_id) not in account.live:
        _network(account, config)
    if (boundary := config.settings.permissions_boundary_arn) and ":iam::aws:" not in boundary:
        account.adopt("aws:iam/policy:Policy", "existing boundary", boundary, {}, {"arn": boundary})
    if config.settings.existing_role_arn:
        _role(account, config.settings.existing_role_arn, encrypts=bool(config.settings.security.kms_key))
    settings = config.settings
    for arn in (*settings.administrator_role_arns, *(arn for team in settings.teams for arn in team.role_arns)):
        account.adopt("aws:iam/role:Role", "existing role", arn, {}, {"arn": arn})
    for bucket in sorted(_data_buckets(settings)):
        if ("aws:s3/bucket:Bucket", bucket) not in account.live:
            account.create("aws:s3/bucket:Bucket", "existing bucket", {"bucket": bucket})
    if (name := settings.security.access_log_bucket) and ("aws:s3/bucket:Bucket", name) not in account.live:
        account.create("aws:s3/bucket:Bucket", "existing bucket for access logs", {"bucket": name})
        account.client("s3").put_bucket_policy(Bucket=name, Policy=_log_delivery(config, name))
    for system in filter(None, (settings.fsx.file_system_id, settings.fsx.home_file_system_id)):
        _file_system(account, config, system)
    if (key := settings.security.kms_key) and key != "create":
        account.adopt("aws:kms/key:Key", "existing key", key.rsplit("/", 1)[1], {}, {"arn": key})
    _workspaces(account, config)
    for group in config.worker_groups:
        if group.worker and (plan := group.worker.training_plan_arn):
            account.adopt("aws:sagemaker/trainingPlan:TrainingPlan", "existing training plan", plan, {})


def _data_buckets(settings: Settings) -> set[str]:
    """Return the buckets that /fsx or the teams' pods show."""
    linked = settings.fsx.linked_bucket
    return {bucket.name for team in settings.teams for bucket in team.buckets} | ({linked} if linked else set())


def _file_system(account: Account, config: Config, system: str) -> None:
    """Create a Lustre file system, unless the account has one of this id."""
    token, net = "aws:fsx/lustreFileSystem:LustreFileSystem", config.settings.network
    if (token, system) in account.live:
        return
    inputs = {"storageCapacity": 2400, "perUnitStorageThroughput": 250, "subnetIds": net.private_subnet_id}
    server = f"{system}.fsx.{config.region.name}.amazonaws.com"
    outputs = {"dnsName": server, "mountName": system[-8:], "arn": "", "vpcId": net.vpc_id or ""}
    account.adopt(token, "existing file system", system, inputs, outputs)


def _log_delivery(config: Config, bucket: str) -> str:
    """Amazon S3 User Guide, "Enabling Amazon S3 server access logging": the policy of a bucket for logs."""
    # moto looks for a text in Resource, not for a list.
    resource = {"Resource": f"arn:{config.region.partition}:s3:::{bucket}/*"}
    service = {"Principal": {"Service": "logging.s3.amazonaws.com"}}
    return document([{**allow(["s3:PutObject"], []), **resource, **service}])


def _workspaces(account: Account, config: Config) -> None:
    chosen = config.settings.observability
    if (arn := chosen.existing_prometheus) and not any(live.outputs.get("arn") == arn for live in account.find(_AMP)):
        # moto makes a workspace's id of a UUID.
        with patch("moto.amp.models.mock_random.uuid4", return_value=arn.rsplit("/ws-", 1)[1]):
            account.create(_AMP, "existing Prometheus workspace", {"alias": "shared"})
    if topic := config.settings.alerts.topic_arn:
        account.adopt("aws:sns/topic:Topic", "existing topic", topic, {}, {"arn": topic})
    if workspace := chosen.existing_grafana:
        address = f"{workspace}.grafana-workspace.{config.region.name}.{config.region.dns_suffix}"
        account.adopt(_AMG, "existing Grafana workspace", workspace, {}, {"endpoint": address})


def _network(account: Account, config: Config) -> None:
    net = config.settings.network
    assert net.vpc_id, "only called for an existing VPC"
    assert net.private_subnet_id, "checked with the configuration"
    with _next_id(account, "vpc", net.vpc_id):
        names = {"enableDnsSupport": True, "enableDnsHostnames": True}
        account.create("aws:ec2/vpc:Vpc", "existing VPC", {"cidrBlock": _CIDR, **names})
    accounting = config.settings.slurm.accounting
    pair = net.eks_subnet_ids or (accounting.subnet_ids if accounting else ())
    zones = [config.zone_id, *islice(cycle(config.eks_zone_ids or config.database_zone_ids), len(pair))]
    # Nodes on EKS take hundreds of addresses for their pods.
    blocks = ["10.0.128.0/17", *(f"10.0.{number + 1}.0/24" for number in range(len(pair)))]
    for subnet, zone, block in zip([net.private_subnet_id, *pair], zones, blocks, strict=True):
        place = {"vpcId": net.vpc_id, "cidrBlock": block, "availabilityZoneId": zone}
        with _next_id(account, "subnet", subnet):
            account.create("aws:ec2/subnet:Subnet", "existing subnet", place)
    _way_out(account, net.vpc_id, net.private_subnet_id, config.zone_id)
    for group in net.security_group_ids:
        with _next_id(account, "sg", group):
            inputs = {"vpcId": net.vpc_id, "name": f"existing-{group}"}
            account.create("aws:ec2/securityGroup:SecurityGroup", "existing group", inputs)
        for title in ("Ingress", "Egress"):
            token = f"aws:vpc/securityGroup{title}Rule:SecurityGroup{title}Rule"
            rule = {"securityGroupId": group, "referencedSecurityGroupId": group, "ipProtocol": "-1"}
            account.create(token, "existing rule", rule)


def _way_out(account: Account, vpc: str, private: str, zone: str) -> None:
    """Create the existing network's route to the internet."""

    def make(token: str, **inputs: str) -> str:
        return account.create(f"aws:ec2/{token}", f"existing {token.split(':')[1]}", inputs)[0]

    public = make("subnet:Subnet", vpcId=vpc, cidrBlock="10.0.0.0/24", availabilityZoneId=zone)
    make("internetGateway:InternetGateway", vpcId=vpc)
    nat = make("natGateway:NatGateway", subnetId=public, allocationId=make("eip:Eip", domain="vpc"))
    table = make("routeTable:RouteTable", vpcId=vpc)
    make("routeTableAssociation:RouteTableAssociation", subnetId=private, routeTableId=table)
    make("route:Route", routeTableId=table, destinationCidrBlock="0.0.0.0/0", natGatewayId=nat)


def _role(account: Account, arn: str, *, encrypts: bool) -> None:
    """Create the existing role, with what the guides say that it needs."""
    name = arn.rsplit("/", 1)[1]
    trust = {"assumeRolePolicy": assume_role("sagemaker.amazonaws.com")}
    account.adopt("aws:iam/role:Role", "existing role", name, trust, {"arn": arn})
    policy = f"arn:{account.partition}:iam::aws:policy/AmazonSageMakerClusterInstanceRolePolicy"
    attached = {"role": name, "policyArn": policy}
    account.adopt(
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment", "existing attachment", f"{name}/{policy}", attached
    )
    if encrypts:
        use = document([allow(["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey"], ["*"])])
        account.adopt("aws:iam/rolePolicy:RolePolicy", "existing policy", f"{name}:kms", {"role": name, "policy": use})


@contextmanager
def _next_id(account: Account, kind: str, value: str) -> Iterator[None]:
    """Make moto use the id from the configuration instead of one of its own."""
    # Default resources of every account get their ids first.
    account.client("ec2")
    with patch(_IDS[kind], return_value=value):
        yield
