"""Prepares the cluster for training on Kubernetes: storage classes, namespaces and queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ComponentResource, Input, ResourceOptions

from ...cluster.orchestrator import Cluster
from ...common.context import Context
from ...network.keys import NetworkConfig
from ...security.keys import PodSecurity
from ...storage.keys import Fsx
from ...workers.instance_groups import InstanceGroup
from ..keys import KubernetesKeys
from ..metrics_scraper import sources
from ..storage import KubernetesStorage, KubernetesStorageArgs
from .admission import Admission
from .buckets import TeamBuckets, TeamBucketsArgs
from .compute_quotas import ComputeQuotas, ComputeQuotasArgs
from .directories import Directories, DirectoriesArgs, FileSystem
from .queues import Queues, QueuesArgs, shares
from .training_namespace import TrainingNamespace, TrainingNamespaceArgs


@dataclass(frozen=True, kw_only=True)
class TrainingArgs:
    """Inputs of the training set-up. ``scraped``: a collector of Prometheus reads the pods. ``cluster`` is the HyperPod
    cluster, whose nodes run the pods; ``cluster_name`` the EKS cluster's; ``empties``: as in ``EksAddons``.
    """

    settings: KubernetesKeys
    groups: Sequence[InstanceGroup]
    network: NetworkConfig
    fsx: Fsx
    pod_security: PodSecurity
    scraped: bool
    context: Context
    cluster_name: Input[str]
    file_system: FileSystem
    subnet_id: Input[str]
    storage_groups: Sequence[Input[str]]
    cluster: Cluster
    empties: Sequence[pulumi.Resource]


class Training(ComponentResource):
    """Owns the storage classes, the admission rules, a namespace for each team, and their queues or quotas.

    Needs the cluster's Kubernetes provider. The HyperPod cluster does not wait for any of it.
    """

    def __init__(self, name: str, args: TrainingArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Training", name, None, opts)
        queued = args.settings.charts.queues != "none"
        governed = args.settings.charts.queues == "task-governance"
        child, settings = ResourceOptions(parent=self), args.settings
        groups = [group for group in args.groups if group.type.accelerator]
        KubernetesStorage(
            f"{name}-storage",
            KubernetesStorageArgs(
                cluster_id=args.context.names.cluster_id,
                subnet_id=args.subnet_id,
                security_group_ids=args.storage_groups,
                throughput=args.fsx.throughput,
                key=args.context.key,
            ),
            child,
        )
        Admission(f"{name}-admission", queued=queued, opts=child)
        Directories(
            f"{name}-directories",
            DirectoriesArgs(
                settings=settings,
                image_registry=args.network.image_registry,
                file_system=args.file_system,
                cluster=args.cluster,
                empties=args.empties,
            ),
            child,
        )
        total = sum(group.count * group.type.accelerators for group in groups)
        teams = {settings.namespace_of(team.name): team for team in settings.namespaces}
        part = shares({namespace: team.accelerators for namespace, team in teams.items()}, total)
        queues = self._queues(name, args, part) if settings.charts.queues == "kueue" else None
        homes = {
            namespace: TrainingNamespace(
                f"{name}-{namespace}",
                TrainingNamespaceArgs(
                    namespace=namespace,
                    team=team,
                    groups=groups,
                    # Queues divide the cluster, and lend idle devices; without them only quotas separate teams.
                    share=1.0 if queued else part[namespace],
                    governed=governed,
                    file_system=args.file_system,
                    separate=bool(settings.teams),
                    linked_data=bool(args.fsx.linked_bucket),
                    network_policy=settings.charts.network_policies,
                    scraped_from=sources(args.network) if args.scraped else None,
                    operated=settings.charts.hyperpod_training_operator,
                    memory_checkpoints=bool(settings.charts.checkpoint_memory_percent),
                    pod_security=args.pod_security,
                    tracking=args.context.tracking,
                    after=[args.cluster, *args.empties, *([queues.cluster_queues[namespace]] if queues else ())],
                ),
                child,
            ).namespace
            for namespace, team in teams.items()
        }
        for namespace, team in teams.items():
            if team.buckets or args.context.tracking:
                TeamBuckets(
                    f"{name}-{namespace}-buckets",
                    TeamBucketsArgs(
                        context=args.context,
                        cluster_name=args.cluster_name,
                        namespace=homes[namespace],
                        namespace_name=namespace,
                        team=team,
                    ),
                    child,
                )
        if queues:
            queues.admit_jobs(homes)
        if governed:
            ComputeQuotas(
                f"{name}-quotas",
                ComputeQuotasArgs(
                    settings=settings,
                    region=args.context.region.name,
                    groups=groups,
                    shares=part,
                    cluster_arn=args.cluster.arn,
                    namespaces=homes,
                    tags=args.context.tags,
                ),
                child,
            )
        self.register_outputs({})

    def _queues(self, name: str, args: TrainingArgs, part: Mapping[str, float]) -> Queues:
        settings = args.settings
        return Queues(
            f"{name}-queues",
            QueuesArgs(
                groups=args.groups,
                shares=part,
                ready=[args.cluster],
                image_registry=args.network.image_registry,
                strict_network_policies=settings.charts.strict_network_policies,
                hyperpod_jobs=settings.charts.hyperpod_training_operator,
                topology=settings.charts.topology,
            ),
            ResourceOptions(parent=self),
        )
