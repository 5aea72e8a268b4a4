"""A checked configuration, with all derived values filled in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pulumi
from hyperpod_node.facts.model import NodeRole

from ..catalogue.accelerators import ACCELERATORS, Accelerator, lookup
from ..catalogue.regions import Region
from ..common.context import Context
from ..common.names import CLUSTER_ID_TAG, for_stack
from ..workers.instance_groups import InstanceGroup
from ..workers.keys import HEAD_VOLUME_GIB, WorkerGroup
from ..workers.taints import taints_of
from ..workers.type_checks import type_notes
from .model import Settings


@dataclass(frozen=True)
class Config:
    """A checked configuration: the settings, the region, and the values derived from both."""

    settings: Settings
    region: Region

    @property
    def variant(self) -> str:
        """``<orchestrator>-<accelerator>``."""
        return f"{self.settings.orchestrator}-{self.settings.accelerator}"

    @property
    def title(self) -> str:
        """The variant in words, which no stack is called."""
        orchestrator = {"slurm": "Slurm", "eks": "EKS"}[self.settings.orchestrator]
        return f"{orchestrator} with {'GPUs' if self.settings.accelerator == 'gpu' else 'Trainium'}"

    @property
    def accelerator(self) -> Accelerator:
        """The row of data that the accelerator picks."""
        return ACCELERATORS[self.settings.accelerator]

    def context(self, account: str) -> Context:
        """Return the context of the running program's stack, in the account with this ID."""
        settings = self.settings
        names = for_stack(
            cluster=settings.cluster_name,
            region=self.region.name,
            account=account,
            project=pulumi.get_project(),
            stack=pulumi.get_stack(),
        )
        own = {"hyperpod:cluster": names.cluster, CLUSTER_ID_TAG: names.cluster_id}
        return Context(
            names=names,
            region=self.region,
            account=account,
            zone_id=self.zone_id,
            on_eks=settings.orchestrator == "eks",
            tags={**settings.tags, **own},
            boundary=settings.permissions_boundary_arn,
            protect=settings.protect,
        )

    @property
    def zone_id(self) -> str:
        """Zone of workers and file system."""
        return self.settings.availability_zone_id or self.region.eks_zone_ids()[0]

    @property
    def eks_zone_ids(self) -> tuple[str, ...]:
        """Two zones for the EKS control plane, the workers' own and another; none with Slurm."""
        return self._two_zones if self.settings.orchestrator == "eks" else ()

    @property
    def database_zone_ids(self) -> tuple[str, ...]:
        """Two zones for the database of Slurm's accounting; none if the stack creates none."""
        return self._two_zones if self.settings.slurm.on_rds else ()

    @property
    def _two_zones(self) -> tuple[str, str]:
        return self.zone_id, self.region.other_eks_zone(self.zone_id)

    @property
    def node_kinds(self) -> tuple[NodeRole, ...]:
        """The roles of this cluster's nodes, each once."""
        return tuple(dict.fromkeys(group.role for group in self.instance_groups))

    @property
    def fsx_gib(self) -> int:
        """Capacity of the file system, GiB."""
        return self.settings.fsx_gib

    @cached_property
    def worker_groups(self) -> tuple[InstanceGroup, ...]:
        """The worker groups, with sizes and taints filled in."""
        settings = self.settings
        return tuple(
            InstanceGroup(
                name=group.name,
                role="worker",
                types=tuple(map(lookup, group.types)),
                count=settings.count_of(group),
                volume_gib=settings.volume_of(group),
                partition=self._partition(group),
                worker=group,
                taints=taints_of(settings, group),
            )
            for group in settings.groups
        )

    def _partition(self, group: WorkerGroup) -> str:
        """Return a group's partition: groups with accelerators share one; any other has its own, and gets no training
        job.
        """
        alone = self.settings.orchestrator == "slurm" and not lookup(group.instance_type).accelerator
        return group.name if alone else self.accelerator.slurm_partition

    @cached_property
    def training_groups(self) -> tuple[InstanceGroup, ...]:
        """The worker groups that jobs train on: those with accelerators."""
        return tuple(group for group in self.worker_groups if group.type.accelerator)

    @cached_property
    def instance_groups(self) -> tuple[InstanceGroup, ...]:
        """Every instance group of the cluster: with Slurm the controller and login nodes first."""
        return (*self._head_groups(), *self.worker_groups)

    @property
    def follows_demand(self) -> bool:
        """Whether Karpenter adds and removes nodes of any group."""
        return any(group.follows_demand for group in self.worker_groups)

    @property
    def idle(self) -> Config:
        """The configuration while nothing wants nodes: without those that follow demand."""
        settings = self.settings
        groups = tuple(one.model_copy(update={"count": settings.least_of(one)}) for one in settings.groups)
        fixed = tuple(one.model_copy(update={"scaling": "fixed"}) for one in groups)
        return Config(settings.model_copy(update={"workers": fixed}), self.region)

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the stack's instance types."""
        return tuple(type_notes(self.instance_groups, slurm=self.settings.orchestrator == "slurm"))

    def _head_groups(self) -> tuple[InstanceGroup, ...]:
        if self.settings.orchestrator != "slurm":
            return ()
        heads: list[tuple[NodeRole, str, int]] = [("controller", self.settings.controller_instance_type, 1)]
        if login := self.settings.login:
            heads.append(("login", login.instance_type, login.count))
        return tuple(
            InstanceGroup(name=role, role=role, types=(lookup(kind),), count=count, volume_gib=HEAD_VOLUME_GIB)
            for role, kind, count in heads
        )
