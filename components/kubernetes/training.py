"""What training on Kubernetes needs in the cluster: storage classes, namespaces and queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi import ComponentResource, Input, ResourceOptions

from ..cluster.orchestrator import Cluster
from ..config import Config
from .admission import Admission
from .compute_quotas import ComputeQuotas, ComputeQuotasArgs
from .directories import Directories, DirectoriesArgs, FileSystem
from .metrics_scraper import sources
from .queues import Queues, QueuesArgs, shares
from .storage import KubernetesStorage, KubernetesStorageArgs
from .training_namespace import TrainingNamespace, TrainingNamespaceArgs


@dataclass(frozen=True, kw_only=True)
class TrainingArgs:
    """What it is made from. ``cluster`` is the HyperPod cluster, whose nodes run what needs pods; ``empties``:
    as in ``EksAddons``; ``cluster_id`` and ``tags`` the stack's; ``key`` the customer key's ARN."""

    config: Config
    cluster_id: str
    file_system: FileSystem
    subnet_id: Input[str]
    storage_groups: Sequence[Input[str]]
    cluster: Cluster
    empties: Sequence[pulumi.Resource]
    tags: Mapping[str, str]
    key: Input[str] | None = None


class Training(ComponentResource):
    """Owns the storage classes, the rules for everybody, a namespace for each team, and their queues or quotas.

    Needs the cluster's Kubernetes provider. The HyperPod cluster does not wait for any of it.
    """

    def __init__(self, name: str, args: TrainingArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Training", name, None, opts)
        queued = args.config.settings.charts.queues != "none"
        governed = args.config.settings.charts.queues == "task-governance"
        child, settings, groups = ResourceOptions(parent=self), args.config.settings, args.config.training_groups
        KubernetesStorage(
            f"{name}-storage",
            KubernetesStorageArgs(
                cluster_id=args.cluster_id,
                subnet_id=args.subnet_id,
                security_group_ids=args.storage_groups,
                throughput=settings.fsx.throughput,
                key=args.key,
            ),
            child,
        )
        Admission(f"{name}-admission", queued=queued, opts=child)
        Directories(
            f"{name}-directories",
            DirectoriesArgs(
                settings=settings, file_system=args.file_system, cluster=args.cluster, empties=args.empties
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
                    # Queues divide, and lend what is idle; without them only quotas separate teams.
                    share=1.0 if queued else part[namespace],
                    governed=governed,
                    file_system=args.file_system,
                    separate=bool(settings.teams),
                    linked_data=bool(settings.fsx.linked_bucket),
                    network_policy=settings.charts.network_policies,
                    scraped_from=sources(args.config),
                    operated=settings.charts.hyperpod_training_operator,
                    pod_security=settings.security.pod_security,
                    after=[args.cluster, *args.empties, *([queues.cluster_queues[namespace]] if queues else ())],
                ),
                child,
            ).namespace
            for namespace, team in teams.items()
        }
        if queues:
            queues.let_in(homes)
        if governed:
            ComputeQuotas(
                f"{name}-quotas",
                ComputeQuotasArgs(
                    config=args.config,
                    shares=part,
                    cluster_arn=args.cluster.arn,
                    namespaces=homes,
                    tags=args.tags,
                ),
                child,
            )
        self.register_outputs({})

    def _queues(self, name: str, args: TrainingArgs, part: Mapping[str, float]) -> Queues:
        settings = args.config.settings
        return Queues(
            f"{name}-queues",
            QueuesArgs(
                groups=args.config.worker_groups,
                shares=part,
                ready=[args.cluster],
                image_registry=settings.network.image_registry,
                strict_network_policies=settings.charts.strict_network_policies,
                hyperpod_jobs=settings.charts.hyperpod_training_operator,
            ),
            ResourceOptions(parent=self),
        )
