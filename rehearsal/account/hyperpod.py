"""HyperPod clusters: a record checked by schema, and everything that nodes need to come up."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from components.catalogue.regions import REGIONS
from operations.engine.state import HYPERPOD_CLUSTER

from . import eks
from .books import Books, Inputs, Live, Refused
from .ec2 import lacks_rule_to_itself
from .endpoints import blocks
from .faults import NO_NETWORK, NOT_STABLE, SCRIPTS_FAILED
from .grants import granted, role_statements
from .keys import check_bucket, check_volumes
from .kinds import register
from .provisioning import types_of
from .quotas import check_instances
from .records import record
from .updates import check_groups

# How Slurm was configured before SlurmConfig.
_LEGACY = "provisioning_parameters.json"
_LUSTRE, _OPENZFS = "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:fsx/openZfsFileSystem:OpenZfsFileSystem"
# Without a way out of the VPC, a node's first boot calls these (all of CLOSED_ENDPOINTS in estimates/endpoints.py).
_BOOT_SERVICES = ("ec2", "fsx", "logs", "sagemaker.api", "ssm", "ssmmessages", "sts")


def _create(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    if any(account.find(HYPERPOD_CLUSTER, clusterName=i["clusterName"])):
        raise Refused("ResourceInUse", f"cluster {i['clusterName']} already exists")
    _check(account, i)
    cluster = account.new_id("c")[2:14]
    arn = account.arn("sagemaker", f"cluster/{cluster}")
    return arn, {"clusterArn": arn, "clusterStatus": "InService"}


def _update(account: Books, live: Live, i: Inputs) -> None:
    """Later nodes need what the first ones needed. A cluster whose creation failed can only be deleted
    (awslabs/awsome-distributed-ai, issue 186)."""
    if live.outputs["clusterStatus"] == "Failed":
        raise Refused("ConflictException", f"cluster {i['clusterName']} is in status Failed")
    check_groups(live, i)
    _check(account, i)


def _check(account: Books, i: Inputs) -> None:
    """Refuse a cluster whose nodes could not come up."""
    for group in i["instanceGroups"]:
        _check_mode(group, "slurm" in (i.get("orchestrator") or {}))
        _check_bucket(group)
        _check_mounts(account, group)
        _check_role(account, i["clusterName"], group)
        _check_lifecycle(account, group)
        _check_kubernetes_config(group)
        _check_types(group, i)
    if "slurm" in (i.get("orchestrator") or {}):
        _check_slurm(account, i)
    _check_tiers(i)
    _check_autoscaling(account, i)
    _check_network(account, i)
    _check_fabric(account, i)
    if (i.get("orchestrator") or {}).get("eks"):
        _check_kubernetes(account, i["orchestrator"]["eks"]["clusterArn"])
        _check_images(account)
    check_instances(account, i["instanceGroups"])


def _check_autoscaling(account: Books, i: Inputs) -> None:
    """SageMaker Developer Guide, "Autoscaling on SageMaker HyperPod EKS", Prerequisites, and the role's page."""
    if (i.get("autoScaling") or {}).get("mode") != "Enable":
        return
    needs = {
        "Amazon EKS orchestration": "eks" in (i.get("orchestrator") or {}),
        "NodeProvisioningMode Continuous": i.get("nodeProvisioningMode") == "Continuous",
        "NodeRecovery Automatic": i.get("nodeRecovery") == "Automatic",
        "a ClusterRole": bool(i.get("clusterRole")),
    }
    if missing := [what for what, there in needs.items() if not there]:
        raise Refused("ValidationException", f"AutoScaling needs {', '.join(missing)}")
    found = account.find("aws:iam/role:Role", by=account.now)
    role = next((one for one in found if one.outputs["arn"] == i["clusterRole"]), None)
    if role is None or "hyperpod.sagemaker.amazonaws.com" not in role.inputs["assumeRolePolicy"]:
        raise Refused("ValidationException", f"hyperpod.sagemaker.amazonaws.com cannot assume {i['clusterRole']}")
    context = {"aws:PrincipalAccount": account.account_id, "aws:ResourceAccount": account.account_id}
    statements = list(role_statements(account, role.id, account.now))
    for action in ("sagemaker:BatchAddClusterNodes", "sagemaker:BatchDeleteClusterNodes"):
        if not granted(statements, (), action, account.arn("sagemaker", "cluster/0123456789ab"), context):
            raise Refused("ValidationException", f"{role.id} may not {action}")


# Of them a group has one (ClusterLifeCycleConfig).
_MODES = ("onCreate", "onInitComplete")


def _check_mode(group: Mapping[str, Any], slurm: bool) -> None:
    """SageMaker Developer Guide, "Getting started with SageMaker HyperPod using the AWS CLI", "Common validation
    errors", and its note on EKS. A group of Slurm's may have no LifeCycleConfig at all, which no stack here has."""
    name, config = group["instanceGroupName"], group["lifeCycleConfig"]
    modes = [mode for mode in _MODES if config.get(mode)]
    if len(modes) > 1:
        raise Refused("ValidationException", "OnCreate and OnInitComplete in LifeCycleConfig are mutually exclusive")
    if modes == ["onInitComplete"] and not slurm:
        raise Refused("ValidationException", f"LifeCycleConfig is required for instance group {name}: OnCreate, on EKS")
    if not modes or not config.get("sourceS3Uri"):
        raise Refused("ValidationException", f"LifeCycleConfig for instance group {name} is incomplete")


def _script(group: Mapping[str, Any]) -> str:
    """The group's script, of either mode."""
    return next(str(group["lifeCycleConfig"][mode]) for mode in _MODES if group["lifeCycleConfig"].get(mode))


def _check_mounts(account: Books, group: Mapping[str, Any]) -> None:
    """The same page: at most one file system of each type, which nodes mount when they start."""
    configs = group.get("instanceStorageConfigs") or []
    for kind, of in (("fsxLustreConfig", _LUSTRE), ("fsxOpenZfsConfig", _OPENZFS)):
        names = [config[kind]["dnsName"] for config in configs if config.get(kind)]
        if len(names) > 1:
            raise Refused("ValidationException", f"{group['instanceGroupName']} has more than one {kind}")
        there = {system.outputs["dnsName"] for system in account.find(of, by=account.now)}
        if missing := [name for name in names if name not in there]:
            raise Refused("ValidationException", f"file system {missing[0]} is not there when instances mount it")


def _check_accounting(account: Books, i: Inputs) -> None:
    """CreateCluster, AccountingDatabase: Continuous alone. The controller's role may read the secret."""
    database = (i["orchestrator"]["slurm"] or {}).get("accountingDatabase")
    if not database:
        return
    if not i.get("nodeProvisioningMode"):
        raise Refused("ValidationException", "AccountingDatabase is only supported for clusters using Continuous")
    for group in i["instanceGroups"]:
        if group["slurmConfig"]["nodeType"] != "Controller":
            continue
        role = next(
            r for r in account.find("aws:iam/role:Role", by=account.now) if r.outputs["arn"] == group["executionRole"]
        )
        own = {"aws:PrincipalAccount": account.account_id, "aws:ResourceAccount": account.account_id}
        statements = list(role_statements(account, role.id, account.now))
        if not granted(statements, (), "secretsmanager:GetSecretValue", database["secretArn"], own):
            raise Refused("ValidationException", f"{role.id} may not read the secret {database['secretArn']}")


def _check_bucket(group: Mapping[str, Any]) -> None:
    if not group["lifeCycleConfig"]["sourceS3Uri"].startswith("s3://sagemaker-"):
        raise Refused("ValidationException", "SourceS3Uri must start with s3://sagemaker-")


def _check_role(account: Books, cluster: str, group: Mapping[str, Any]) -> None:
    """The role trusts SageMaker, and has the permissions for a node's first calls when instances start."""
    arn = group["executionRole"]
    role = next((r for r in account.find("aws:iam/role:Role", by=account.now) if r.outputs["arn"] == arn), None)
    if role is None:
        raise Refused("ValidationException", f"could not assume role {arn}: it does not exist yet")
    principals = [
        statement["Principal"].get("Service") for statement in json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    ]
    if "sagemaker.amazonaws.com" not in principals:
        raise Refused("ValidationException", f"could not assume role {arn}: it does not trust sagemaker.amazonaws.com")
    statements = list(role_statements(account, role.id, account.now))
    context = {"aws:PrincipalAccount": account.account_id, "aws:ResourceAccount": account.account_id}
    check_volumes(account, group, statements)
    check_bucket(account, group["lifeCycleConfig"]["sourceS3Uri"].removeprefix("s3://").split("/")[0], statements)
    for action, resource in _first_calls(account, cluster, group):
        if not granted(statements, (), action, resource, context):
            raise Refused(
                "ValidationException",
                f"instances of {group['instanceGroupName']} start before {role.id} may {action} {resource}",
            )
        if blocks(account, action, resource, context):
            raise Refused(
                NOT_STABLE,
                f"{SCRIPTS_FAILED} Instances of {group['instanceGroupName']} cannot {action} {resource}: no VPC "
                f"endpoint policy allows the {action} action",
            )


def _first_calls(account: Books, cluster: str, group: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What every instance does before anything else (SageMaker Developer Guide, "AWS managed policy:
    AmazonSageMakerClusterInstanceRolePolicy"): it reads the scripts, writes their log, and opens Session Manager."""
    config = group["lifeCycleConfig"]
    place = config["sourceS3Uri"].removeprefix("s3://").rstrip("/")
    yield "s3:GetObject", f"arn:{account.partition}:s3:::{place}/{_script(group)}"
    yield "logs:CreateLogStream", account.arn("logs", f"log-group:/aws/sagemaker/Clusters/{cluster}/id:log-stream:one")
    yield "ssmmessages:CreateControlChannel", "*"


def _check_lifecycle(account: Books, group: Mapping[str, Any]) -> None:
    config = group["lifeCycleConfig"]
    bucket, _, prefix = config["sourceS3Uri"].removeprefix("s3://").partition("/")
    key = f"{prefix.rstrip('/')}/{_script(group)}" if prefix else _script(group)
    if next(account.find("aws:s3/bucketObjectv2:BucketObjectv2", by=account.now, bucket=bucket, key=key), None) is None:
        raise Refused("ValidationException", f"lifecycle script s3://{bucket}/{key} is not there when instances start")


def _check_kubernetes_config(group: Mapping[str, Any]) -> None:
    """SageMaker Developer Guide, "Getting started with Amazon EKS support in SageMaker HyperPod": no custom taints on
    nodes of instance groups with deep health checks, which GPU and Trainium instances alone have.
    """
    if group.get("onStartDeepHealthChecks") and (group.get("kubernetesConfig") or {}).get("taints"):
        raise Refused(
            "ValidationException",
            f"instance group {group['instanceGroupName']}: Taints cannot be used with OnStartDeepHealthChecks",
        )


def _check_types(group: Mapping[str, Any], i: Inputs) -> None:
    """SageMaker Developer Guide, "Creating a SageMaker HyperPod cluster", Flexible instance groups; the announcement of
    April 2026 has them for clusters orchestrated by Amazon EKS.
    """
    name, flexible = group["instanceGroupName"], bool(group.get("instanceRequirements"))
    if flexible == bool(group.get("instanceType")):
        raise Refused("ValidationException", f"{name}: specify one of InstanceType and InstanceRequirements")
    types = types_of(group)
    if len(set(types)) < len(types):
        raise Refused("ValidationException", f"{name}: InstanceTypes contains duplicates")
    if flexible and i.get("nodeProvisioningMode") != "Continuous":
        raise Refused("ValidationException", f"{name}: InstanceRequirements needs NodeProvisioningMode Continuous")
    if flexible and "eks" not in (i.get("orchestrator") or {}):
        raise Refused("ValidationException", f"{name}: InstanceRequirements is only supported on Amazon EKS")


def _check_slurm(account: Books, i: Inputs) -> None:
    """The API's rules (SageMaker Developer Guide, "Migrating to API-driven Slurm configuration", Troubleshooting)."""
    groups = i["instanceGroups"]
    types = [(group.get("slurmConfig") or {}).get("nodeType") for group in groups]
    if "Controller" not in types:
        raise Refused(
            "ValidationException", f"Cluster {i['clusterName']} has no InstanceGroup with Controller node type."
        )
    if types.count("Controller") > 1:
        raise Refused(
            "ValidationException",
            f"{types.count('Controller')} Controller Groups found: SlurmConfig for InstanceGroups may only have one "
            "Controller Group.",
        )
    if any(
        kind != "Compute" and group["slurmConfig"].get("partitionNames")
        for kind, group in zip(types, groups, strict=True)
    ):
        raise Refused("ValidationException", "Partitions can only be assigned to Compute node types")
    # It is the only mode, and the default of new clusters ("Continuous provisioning for enhanced cluster operations
    # with Slurm"). Before autumn 2026 the same page had it disabled by default.
    heads = sum(int(group["instanceCount"]) for group, kind in zip(groups, types, strict=True) if kind == "Controller")
    if heads > 1 and i.get("nodeProvisioningMode"):
        raise Refused("ValidationException", "multi-head node configuration is not supported with Continuous")
    if (i["orchestrator"]["slurm"] or {}).get("slurmConfigStrategy"):
        raise Refused("ValidationException", "SlurmConfigStrategy is not supported with Continuous node provisioning")
    _check_accounting(account, i)
    for group in groups:
        bucket, _, prefix = group["lifeCycleConfig"]["sourceS3Uri"].removeprefix("s3://").partition("/")
        key = f"{prefix.rstrip('/')}/{_LEGACY}".lstrip("/")
        if any(account.find("aws:s3/bucketObjectv2:BucketObjectv2", by=account.now, bucket=bucket, key=key)):
            raise Refused(
                "ValidationException",
                f"The LifeCycleConfig cannot include both a SLURM Orchestrator Config and a {_LEGACY} file "
                "simultaneously.",
            )


def _check_tiers(i: Inputs) -> None:
    """SageMaker Developer Guide, "Set up managed tiered checkpointing": on Amazon EKS, and 20 to 100, of which
    CloudFormation's schema has 0 to 100."""
    tiers = i.get("tieredStorageConfig") or {}
    if tiers and not (i.get("orchestrator") or {}).get("eks"):
        raise Refused("ValidationException", "TieredStorageConfig is only supported for clusters orchestrated by EKS")
    percent = tiers.get("instanceMemoryAllocationPercentage")
    if percent is not None and not 20 <= percent <= 100:
        raise Refused("ValidationException", f"InstanceMemoryAllocationPercentage {percent} is not in 20 to 100")


def _check_network(account: Books, i: Inputs) -> None:
    """Refuse nodes without a NAT gateway that lack an endpoint they need."""
    for subnet in i["vpcConfig"]["subnets"]:
        associations = account.find(
            "aws:ec2/routeTableAssociation:RouteTableAssociation", by=account.now, subnetId=subnet
        )
        tables = [association.inputs["routeTableId"] for association in associations]
        routes = [
            r for table in tables for r in account.find("aws:ec2/route:Route", by=account.now, routeTableId=table)
        ]
        if any(route.inputs["destinationCidrBlock"] == "0.0.0.0/0" for route in routes):
            continue
        endpoints = list(account.find("aws:ec2/vpcEndpoint:VpcEndpoint", by=account.now))
        services = {endpoint.inputs["serviceName"].split(f".{account.region}.")[-1] for endpoint in endpoints}
        s3 = any(set(tables) & set(e.inputs.get("routeTableIds") or []) for e in endpoints)
        missing = [service for service in _BOOT_SERVICES if service not in services] + ([] if s3 else ["s3"])
        if missing:
            raise Refused(
                NOT_STABLE, f"{NO_NETWORK}: nodes in {subnet} reach neither a NAT gateway nor {', '.join(missing)}"
            )


def _check_fabric(account: Books, i: Inputs) -> None:
    """EFA's health checks need a rule from the group to itself in both directions.

    Source: SageMaker Developer Guide, "Prerequisites for using SageMaker HyperPod".
    """
    if direction := lacks_rule_to_itself(account, i["vpcConfig"]["securityGroupIds"]):
        raise Refused(
            "ValidationException", f"EFA health checks did not run successfully: no {direction} rule to itself"
        )


def _check_kubernetes(account: Books, arn: str) -> None:
    cluster = next((c for c in account.find(eks.CLUSTER, by=account.now) if c.outputs["arn"] == arn), None)
    if cluster is None:
        raise Refused("ValidationException", f"EKS cluster {arn} is not active when HyperPod looks at it")
    mode = (cluster.inputs.get("accessConfig") or {}).get("authenticationMode")
    if mode not in ("API", "API_AND_CONFIG_MAP"):
        raise Refused(
            "ValidationException", f"EKS cluster authentication mode {mode} is not supported: API or API_AND_CONFIG_MAP"
        )
    _check_blocks(account, cluster)
    if not account.charts_installed():
        raise Refused("ValidationException", "the HyperPod dependencies are not installed on the EKS cluster")


def _check_images(account: Books) -> None:
    """Amazon ECR User Guide, "Amazon ECR interface VPC endpoints": layers are in a bucket of ECR's, at addresses that
    it signs itself. Amazon EKS User Guide, "View Amazon container image registries for Amazon EKS add-ons"."""
    own = {"aws:PrincipalAccount": account.account_id}
    registry = REGIONS[account.region].eks_images_account
    pulls: list[tuple[str, str, Mapping[str, str]]] = [
        ("ecr:GetAuthorizationToken", "*", own),
        ("ecr:BatchGetImage", f"arn:{account.partition}:ecr:{account.region}:{registry}:repository/eks/pause", own),
        ("s3:GetObject", f"arn:{account.partition}:s3:::prod-{account.region}-starport-layer-bucket/layer", {}),
    ]
    for action, resource, context in pulls:
        if blocks(account, action, resource, context):
            raise Refused(
                "ImagePullBackOff", f"no VPC endpoint policy allows the {action} action on {resource}, which pods need"
            )


def _check_blocks(account: Books, cluster: Live) -> None:
    """Amazon EKS User Guide, "VPC and subnet requirements": a block that came after the cluster may take five hours."""
    vpc = cluster.outputs["vpcConfig"]["vpcId"]
    for block in account.find("aws:ec2/vpcIpv4CidrBlockAssociation:VpcIpv4CidrBlockAssociation", vpcId=vpc):
        if block.ready_at > cluster.began:
            raise Refused(
                "ValidationException",
                f"EKS cluster {cluster.id} does not reach {block.inputs['cidrBlock']} yet, which its VPC got later",
            )


register(record(HYPERPOD_CLUSTER, "AWS::SageMaker::Cluster", _create, on_update=_update))
