"""One HyperPod cluster: configuration, providers, shared modules, orchestrator, cluster, outputs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native

from components.accounting.database import AccountingDatabase, AccountingDatabaseArgs
from components.alerts.notifications import Alerts
from components.cluster.hyperpod import HyperPod, HyperPodArgs
from components.cluster.orchestrator import Orchestrator, OrchestratorArgs
from components.common import names, timeouts
from components.common.context import Context
from components.config import change_checks, load
from components.estimates import cost
from components.health.validation import Validation
from components.identity.roles import Identity, IdentityArgs
from components.kubernetes import charts
from components.kubernetes.eks import Eks
from components.network.security_groups import SecurityGroups, SecurityGroupsArgs
from components.network.vpc import Network
from components.nodes.lifecycle_bucket import LifecycleBucket, LifecycleBucketArgs
from components.observability.workspaces import Observability
from components.security import bucket_writers
from components.security.encryption import customer_key
from components.security.sessions import SessionLogs
from components.slurm.slurm import Slurm
from components.storage.file_systems import Storage, StorageArgs

pulumi.runtime.register_stack_transformation(timeouts.lengthen)
config = load()
charts.require(config)
settings = config.settings
caller = aws.get_caller_identity()
context = Context.of(config, caller.account_id)
name = context.names
deployer = bucket_writers.deployer(caller.arn)
before = change_checks.require_possible(config, name, caller.account_id, deployer)
lifecycle_writers = bucket_writers.writers(settings, before, deployer)
shared = pulumi.ResourceOptions(
    providers=[
        aws.Provider("aws", region=config.region.name, default_tags={"tags": context.tags}),
        aws_native.Provider("aws-native", region=config.region.name),
    ]
)
context = replace(context, key=customer_key(context, shared))
network = Network("network", context, shared)
security = SecurityGroups("security", SecurityGroupsArgs(context=context, network=network), shared)
storage = Storage(
    "storage",
    StorageArgs(
        context=context,
        subnet_id=network.private_subnet_id,
        security_group_ids=security.storage,
        ready=security.ready,
    ),
    shared,
)
metrics = Observability("observability", context, storage, shared) if settings.observability.with_prometheus else None
context = replace(context, prometheus=metrics.prometheus if metrics else None)
identity = Identity(
    "identity",
    IdentityArgs(
        context=context,
        subnet_id=network.private_subnet_id,
        security_group_ids=security.nodes,
    ),
    shared,
)
accounting = None
if settings.slurm.on_rds:
    accounting = AccountingDatabase(
        "accounting",
        AccountingDatabaseArgs(
            context=context,
            subnet_ids=network.database_subnet_ids,
            security_group_ids=security.database,
            controllers=identity.controller,
        ),
        shared,
    )
lifecycle = LifecycleBucket(
    "lifecycle", LifecycleBucketArgs(context=context, folder=Path("lifecycle"), writers=lifecycle_writers), shared
)
make_orchestrator: type[Slurm] | type[Eks] = Eks if context.on_eks else Slurm
orchestrator: Orchestrator = make_orchestrator(
    settings.orchestrator,
    OrchestratorArgs(
        context=context,
        network=network,
        node_groups=security.nodes,
        node_roles=identity.role_arns,
        accounting=accounting.of_hyperpod if accounting else None,
    ),
    shared,
)
cluster = HyperPod(
    "hyperpod",
    HyperPodArgs(
        context=context,
        orchestrator=orchestrator,
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
    outputs |= Alerts("alerts", context, storage, shared).outputs
if settings.validation:
    Validation("validation", context, shared)
if settings.security.session_logs:
    SessionLogs("sessions", context, shared)
for key, value in outputs.items():
    pulumi.export(key, value)
