"""One HyperPod cluster: configuration, providers, shared modules, orchestrator, cluster, outputs."""

from pathlib import Path

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
from pulumi import ResourceOptions

from components import live, names, provisioning, slurm
from components.config import load
from components.estimates import cost
from components.estimates.endpoints import interface_services
from components.hyperpod import HyperPod, HyperPodArgs, hyperpod_tags
from components.identity import Identity, IdentityArgs
from components.image_repository import ImageRepository, ImageRepositoryArgs
from components.kubernetes import charts, eks
from components.kubernetes.training import Training, TrainingArgs
from components.kubernetes.training_namespace import FileSystem
from components.lifecycle_bucket import LifecycleBucket, LifecycleBucketArgs
from components.network import Network, NetworkArgs
from components.observability import Observability, ObservabilityArgs
from components.security import SecurityGroups, SecurityGroupsArgs
from components.storage import Storage, StorageArgs
from components.validation import Validation, ValidationArgs

config = load()
charts.require(config)
settings, region = config.settings, config.region
on_eks = settings.orchestrator == "eks"
account = aws.get_caller_identity().account_id
name = names.for_stack(
    cluster=settings.cluster_name,
    region=region.name,
    account=account,
    project=pulumi.get_project(),
    stack=pulumi.get_stack(),
)
live.require_possible(config, name)
tags = {**settings.tags, "hyperpod:cluster": name.cluster, names.CLUSTER_ID_TAG: name.cluster_id}
shared = ResourceOptions(
    providers=[
        aws.Provider("aws", region=region.name, default_tags={"tags": tags}),
        aws_native.Provider("aws-native", region=region.name),
    ]
)

network = Network(
    "network",
    NetworkArgs(
        config=settings.network,
        region=region,
        zone_id=config.zone_id,
        cluster=name.cluster,
        flow_log_role=name.role("flow-logs"),
        account=account,
        eks_zone_ids=config.eks_zone_ids,
        interface_services=interface_services(config),
    ),
    shared,
)
security = SecurityGroups(
    "security",
    SecurityGroupsArgs(
        vpc_id=network.vpc_id,
        cluster=name.cluster,
        existing=settings.network.security_group_ids,
        closed=settings.network.closed,
        cidr_blocks=network.cidr_blocks,
        s3_prefix_list_id=network.s3_prefix_list_id,
        retain_storage=settings.fsx.retain_on_delete,
        storage_efa=settings.fsx.efa,
    ),
    shared,
)
identity = Identity(
    "identity",
    IdentityArgs(
        names=name,
        partition=region.partition,
        account=account,
        kinds=config.node_kinds,
        kubernetes=on_eks,
        existing_role_arn=settings.existing_role_arn,
    ),
    shared,
)
storage = Storage(
    "storage",
    StorageArgs(
        names=name,
        config=settings.fsx,
        capacity_gib=config.fsx_gib,
        subnet_id=network.private_subnet_id,
        security_group_ids=security.storage,
        ready=security.ready,
        protect=settings.protect,
    ),
    shared,
)
lifecycle = LifecycleBucket(
    "lifecycle",
    LifecycleBucketArgs(
        bucket=name.bucket,
        partition=region.partition,
        account=account,
        node_roles=settings.existing_role_arn or f"arn:{region.partition}:iam::{account}:role/{name.role('*')}",
        folder=Path("lifecycle"),
        rendered={provisioning.FILE_NAME: provisioning.render(config, name)},
    ),
    shared,
)

orchestrator: slurm.Slurm | eks.Eks
if on_eks:
    orchestrator = eks.Eks(
        "eks",
        eks.EksArgs(
            names=name,
            region=region,
            account=account,
            version=settings.kubernetes_version,
            authentication_mode=settings.authentication_mode,
            accelerator=config.accelerator,
            vpc_id=network.vpc_id,
            subnet_ids=network.eks_subnet_ids,
            node_groups=security.nodes,
            node_roles=identity.role_arns,
            api_cidrs=settings.kubernetes_api_cidrs,
            charts=settings.charts,
            worker_groups=config.worker_groups,
            administrators=settings.administrator_role_arns,
            teams=settings.namespaces,
            bucket=settings.fsx.linked_bucket,
            image_registry=settings.network.image_registry,
            tags=tags,
            blocks=network.blocks,
        ),
        shared,
    )
    images = ImageRepository("images", ImageRepositoryArgs(cluster=name.cluster), shared)
    pulumi.export("trainingRepository", images.url)
    pulumi.export("eksClusterName", orchestrator.cluster_name)
    pulumi.export("kubeconfig", orchestrator.kubeconfig)
    pulumi.export("connect", eks.connect_command(name))
else:
    orchestrator = slurm.Slurm(
        "slurm",
        slurm.SlurmArgs(
            cluster=name.cluster,
            partition=config.accelerator.slurm_partition,
            continuous=settings.node_provisioning == "Continuous",
            ssh_public_key=settings.ssh_public_key,
        ),
        shared,
    )
    pulumi.export("connect", slurm.connect_command(name))

cluster = HyperPod(
    "hyperpod",
    HyperPodArgs(
        cluster=name.cluster,
        groups=config.instance_groups,
        orchestrator=orchestrator,
        role_arns=identity.role_arns,
        lifecycle_uri=lifecycle.source_uri,
        subnet_id=network.private_subnet_id,
        security_group_ids=security.nodes,
        node_recovery=settings.node_recovery,
        node_provisioning=settings.node_provisioning,
        tags=hyperpod_tags(settings, tags),
        ready=[*network.ready, *security.ready, *identity.ready, *lifecycle.ready, *orchestrator.ready],
        protect=settings.protect,
    ),
    shared,
)
if isinstance(orchestrator, eks.Eks):
    Training(
        "training",
        TrainingArgs(
            config=config,
            file_system=FileSystem(
                file_system_id=storage.file_system_id,
                dns_name=storage.dns_name,
                mount_name=storage.mount_name,
                capacity_gib=config.fsx_gib,
            ),
            subnet_id=network.private_subnet_id,
            storage_groups=security.storage,
            network_cidrs=network.cidr_blocks,
            cluster=cluster.cluster,
        ),
        ResourceOptions(providers=[orchestrator.kubernetes]),
    )
if settings.observability:
    metrics = Observability(
        "observability",
        ObservabilityArgs(names=name, partition=region.partition, account=account, accelerator=settings.accelerator),
        shared,
    )
    pulumi.export("prometheusEndpoint", metrics.prometheus_endpoint)
    pulumi.export("grafanaUrl", metrics.grafana_url)
if settings.validation:
    Validation(
        "validation",
        ValidationArgs(names=name, account=account, partition=region.partition, benchmarks=settings.benchmarks),
        shared,
    )

pulumi.export("clusterName", name.cluster)
pulumi.export("clusterArn", cluster.arn)
pulumi.export("vpcId", network.vpc_id)
pulumi.export("privateSubnetId", network.private_subnet_id)
pulumi.export("lifecycleBucket", lifecycle.bucket)
pulumi.export("fsxId", storage.file_system_id)
pulumi.export("fsxDnsName", storage.dns_name)
pulumi.export("fsxMountName", storage.mount_name)
pulumi.export(live.OUTPUT, live.deployed_with(config))
pulumi.export("estimatedHourlyUsd", round(cost.estimate(config).hourly_usd, 2))
