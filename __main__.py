"""One HyperPod cluster: configuration, providers, shared modules, orchestrator, cluster, outputs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native

from components.accounting.database import AccountingDatabase, AccountingDatabaseArgs
from components.alerts.notifications import Alerts, AlertsArgs
from components.cluster.autoscaling import node_counts
from components.cluster.hyperpod import HyperPod, HyperPodArgs
from components.cluster.orchestrator import Orchestrator
from components.common import names, timeouts
from components.config import change_checks, load
from components.estimates import cost
from components.health.validation import Validation, ValidationArgs
from components.identity.roles import Identity, IdentityArgs
from components.kubernetes import charts
from components.kubernetes.eks import Eks, EksArgs
from components.network.security_groups import SecurityGroups, SecurityGroupsArgs
from components.network.vpc import Network, NetworkArgs
from components.nodes.lifecycle_bucket import LifecycleBucket, LifecycleBucketArgs
from components.observability.mlflow import Mlflow, MlflowArgs
from components.observability.workspaces import Observability, ObservabilityArgs
from components.security import bucket_writers
from components.security.encryption import EncryptionArgs, customer_key
from components.security.sessions import SessionLogs, SessionLogsArgs
from components.slurm.slurm import Slurm, SlurmArgs
from components.storage.file_systems import Storage, StorageArgs

pulumi.runtime.register_stack_transformation(timeouts.lengthen)
config = load()
settings = config.settings
charts.require(settings)
caller = aws.get_caller_identity()
context = config.context(caller.account_id)
name = context.names
deployer = bucket_writers.deployer(caller.arn)
before = change_checks.require_possible(config, name, caller.account_id, deployer)
lifecycle_writers = bucket_writers.writers(settings.security.lifecycle_writers, before, deployer)
native = aws_native.Provider("aws-native", region=config.region.name)
shared = pulumi.ResourceOptions(
    providers=[aws.Provider("aws", region=config.region.name, default_tags={"tags": context.tags}), native]
)
encrypted = EncryptionArgs(
    context=context, retained=settings.fsx.retain_on_delete, notified=settings.alerts.email is not None
)
context = replace(context, key=customer_key(settings.security.kms_key, encrypted, shared))
accounts = settings.slurm.accounting
network = Network(
    "network",
    NetworkArgs(
        context=context,
        network=settings.network,
        services=settings.interface_services,
        eks_zones=config.eks_zone_ids,
        database_zones=config.database_zone_ids,
        database_subnet_ids=accounts.subnet_ids if accounts else (),
    ),
    shared,
)
security = SecurityGroups(
    "security",
    SecurityGroupsArgs(
        context=context, network=network, keys=settings.network, fsx=settings.fsx, database=settings.slurm.on_rds
    ),
    shared,
)
storage = Storage(
    "storage",
    StorageArgs(
        context=context,
        fsx=settings.fsx,
        capacity_gib=settings.fsx_gib,
        subnet_id=network.private_subnet_id,
        security_group_ids=security.storage,
        ready=security.ready,
    ),
    shared,
)
metrics = None
if settings.observability.with_prometheus:
    metrics = Observability(
        "observability",
        ObservabilityArgs(
            context=context,
            observability=settings.observability,
            storage=storage,
            orchestrator=settings.orchestrator,
            accelerator=settings.accelerator,
            workers=config.worker_groups,
        ),
        shared,
    )
    context = replace(context, prometheus=metrics.prometheus)
identity = Identity(
    "identity",
    IdentityArgs(
        context=context,
        kinds=config.node_kinds,
        security=settings.security,
        subnet_id=network.private_subnet_id,
        security_group_ids=security.nodes,
        existing_role_arn=settings.existing_role_arn,
        containers=settings.slurm.containers,
    ),
    shared,
)
tracker = None
if settings.observability.mlflow:
    tracker = Mlflow("mlflow", MlflowArgs(context=context, worker_role=identity.role_arns["worker"]), shared)
    context = replace(context, tracking=tracker.tracking)
accounting = None
if accounts and settings.slurm.on_rds:
    accounting = AccountingDatabase(
        "accounting",
        AccountingDatabaseArgs(
            context=context,
            accounting=accounts,
            by_image=settings.slurm.by_image,
            subnet_ids=network.database_subnet_ids,
            security_group_ids=security.database,
            controllers=identity.controller,
        ),
        shared,
    )
lifecycle = LifecycleBucket(
    "lifecycle",
    LifecycleBucketArgs(context=context, config=config, folder=Path("lifecycle"), writers=lifecycle_writers),
    shared,
)
orchestrator: Orchestrator
if context.on_eks:
    orchestrator = Eks(
        "eks",
        EksArgs(
            context=context,
            network=network,
            node_groups=security.nodes,
            node_roles=identity.role_arns,
            settings=settings,
            groups=config.worker_groups,
            network_keys=settings.network,
            fsx=settings.fsx,
            observability=settings.observability,
            pod_security=settings.security.pod_security,
            health_policy=settings.health_policy,
        ),
        shared,
    )
else:
    of_hyperpod = accounting.of_hyperpod if accounting else None
    orchestrator = Slurm(
        "slurm",
        SlurmArgs(context=context, ssh_public_key=settings.ssh_public_key, accounting=of_hyperpod),
        shared,
    )
# SageMaker's training operator may only touch clusters with a tag of its own (managed policy
# AmazonSageMakerHyperPodTrainingOperatorAccess).
operated = {"SageMaker": "true"} if settings.charts.hyperpod_training_operator else {}
cluster = HyperPod(
    "hyperpod",
    HyperPodArgs(
        context=context,
        orchestrator=orchestrator,
        groups=config.instance_groups,
        role_arns=identity.role_arns,
        lifecycle_uri=lifecycle.source_uri,
        subnet_id=network.private_subnet_id,
        security_group_ids=security.nodes,
        ready=[
            *network.ready,
            *security.ready,
            *identity.ready,
            *lifecycle.ready,
            *orchestrator.ready,
            *(accounting.ready if accounting and accounting.of_hyperpod else ()),
        ],
        mounts=storage.mounts,
        node_recovery=settings.node_recovery,
        node_provisioning=settings.node_provisioning,
        by_image=settings.slurm.by_image,
        checkpoint_memory_percent=settings.charts.checkpoint_memory_percent,
        autoscaling=settings.autoscaling,
        there=node_counts(change_checks.last_arn(), native) if settings.autoscaling else {},
        tags=operated,
    ),
    shared,
)
orchestrator.prepare_training(cluster, storage, security.storage)
estimate = cost.estimate(config)
for warning in estimate.warnings:
    pulumi.log.warn(warning)
outputs: dict[str, Any] = {
    **orchestrator.outputs,
    **network.outputs,
    **storage.outputs,
    **(metrics.outputs if metrics else {}),
    **(tracker.outputs if tracker else {}),
    **(accounting.outputs if accounting else {}),
    "clusterName": name.cluster,
    "clusterArn": cluster.arn,
    names.BUCKET: lifecycle.bucket,
    **({} if context.key is None else {"kmsKeyArn": context.key}),
    names.DEPLOYED_WITH: {**change_checks.deployed_with(config), bucket_writers.OUTPUT: lifecycle_writers},
}
if estimate.hourly_usd is not None:
    outputs["estimatedHourlyUsd"] = round(estimate.hourly_usd, 2)
if not estimate.whole.known:
    outputs["estimatedCost"] = estimate.words
if settings.alerts.wanted:
    outputs |= Alerts(
        "alerts",
        AlertsArgs(
            context=context,
            alerts=settings.alerts,
            storage=storage,
            grown=settings.fsx.file_system_id is None,
            recorded=settings.validation,
        ),
        shared,
    ).outputs
if settings.validation:
    Validation("validation", ValidationArgs(context=context, benchmarks=settings.benchmarks), shared)
if settings.security.session_logs:
    SessionLogs("sessions", SessionLogsArgs(context=context, run_as=settings.security.session_run_as), shared)
for key, value in outputs.items():
    pulumi.export(key, value)
