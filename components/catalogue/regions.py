"""The regions that offer SageMaker HyperPod, their zones, and the zones that refuse an EKS control plane.

The facts are rows of ``regions.csv``, each with its source. Zones are named by id, because zone names differ between
accounts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from .rows import Words, table

Partition: TypeAlias = Literal["aws", "aws-us-gov", "aws-cn"]


@dataclass(frozen=True, kw_only=True)
class Region:
    """One region. ``hyperpod``: whether AWS lists it among the regions with HyperPod.

    ``zone_ids`` are what EC2 DescribeAvailabilityZones lists, in order. ``eks_unsupported_zone_ids`` may name zones
    that only old accounts still see, which ``zone_ids`` therefore lacks. The accounts are AWS's own. Their private
    registries in this region hold the images of EKS's charts, of the Deep Learning Containers, and of HyperPod's health
    monitoring agent (None where AWS publishes none). ``grafana``: whether the region has Amazon Managed Grafana;
    ``mlflow``: whether it has SageMaker's MLflow Apps.
    """

    name: str
    hyperpod: bool
    partition: Partition
    dns_suffix: str
    zone_ids: Words
    eks_unsupported_zone_ids: Words = ()
    eks_images_account: str
    deep_learning_account: str
    health_agent_account: str | None = None
    grafana: bool
    mlflow: bool
    source: str

    @property
    def deep_learning_registry(self) -> str:
        """The private registry of AWS Deep Learning Containers in this region."""
        return self.registry(self.deep_learning_account)

    def registry(self, account: str) -> str:
        """An account's private registry in this region."""
        return f"{account}.dkr.ecr.{self.name}.{self.dns_suffix}"

    def eks_zone_ids(self) -> tuple[str, ...]:
        """The zones that can hold a subnet of an EKS control plane, in order; always two or more."""
        return tuple(zone for zone in self.zone_ids if zone not in self.eks_unsupported_zone_ids)

    def other_eks_zone(self, zone_id: str) -> str:
        """Return a second zone for the EKS control plane: the next one after ``zone_id``, wrapping around at the end.

        EKS may refuse ``zone_id`` itself, for example a worker zone with Slurm.
        """
        others = [zone for zone in self.eks_zone_ids() if zone != zone_id]
        return next((zone for zone in others if zone > zone_id), others[0])


REGIONS: Mapping[str, Region] = table(Path(__file__).with_name("regions.csv"), Region, "name")
