"""The instance types, and the two kinds of accelerated clusters.

The facts are rows of ``instance_types.csv``, each with its sources. Nothing here creates a resource or calls AWS.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from .rows import table

AcceleratorName: TypeAlias = Literal["gpu", "trainium"]
Architecture: TypeAlias = Literal["x86_64", "arm64"]
Transport: TypeAlias = Literal["efa-rdma", "efa-sendrecv", "tcp"]
PriceBasis: TypeAlias = Literal["hyperpod", "ec2", "capacity-block"]

# The resource that the AWS EFA Kubernetes device plugin advertises, one per interface.
EFA_RESOURCE = "vpc.amazonaws.com/efa"

# Amazon FSx for Lustre User Guide, "Configuring EFA clients": Nitro v4 or later, and not trn2. Of the families with
# EFA these are trn2 and those of Nitro v3 (EC2 User Guide, Elastic Fabric Adapter, supported instance types).
_NO_LUSTRE_EFA = ("c5n", "g4dn", "g5", "i3en", "p4d", "p4de", "trn2")
# The default number of interfaces by the same page; other types with several network cards get 2, the rest 1.
_LUSTRE_EFA_INTERFACES = {
    "ml.p6-b300.48xlarge": 16,
    "ml.p6e-gb200.36xlarge": 8,
    "ml.p6-b200.48xlarge": 8,
    "ml.p5en.48xlarge": 8,
    "ml.p5e.48xlarge": 8,
    "ml.p5.48xlarge": 8,
}


# Amazon EC2 Instance Types Guide, "Instance type naming conventions": series and generation, then letters, of which g
# is AWS Graviton; the series of GPUs and of Trainium.
_NAME = re.compile(
    r"ml\.(?P<series>[a-z]+)\d+(?P<options>[a-z]*)(?:-[a-z0-9]+)*\."
    r"(?:nano|micro|small|medium|large|(?:[2-9]|[1-9]\d+)?xlarge|metal(?:-\d+xl)?)"
)
# The columns in which types of one group may differ; rdma_read and network_labels are true where all types have them.
_QUANTITIES = (
    *("accelerator_memory_gib", "vcpus", "memory_gib", "pods", "network_gbps", "efa_interfaces"),
    *("rdma_read", "network_labels", "nvme_disks", "nvme_gb_each"),
)
_SERIES: Mapping[str, AcceleratorName] = {"g": "gpu", "gr": "gpu", "p": "gpu", "trn": "trainium"}


class UnknownInstanceType(ValueError):
    """A name that no instance type can have; the message suggests the nearest ones of the catalogue."""

    def __init__(self, name: str) -> None:
        self.name = name
        near = nearest(name)
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else "types are written as ml.p5.48xlarge, and hyperpod types lists them"
        )
        super().__init__(f'unknown instance type "{name}"; {hint}')


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """One instance type. Sources of the specifications and of the price are in the row itself.

    ``name``: with the ``ml.`` prefix. ``hyperpod``: whether SageMaker's ClusterInstanceType lists it.
    ``accelerator``: empty for the CPU types of controllers and login nodes.
    ``accelerators``: devices per node, GPUs or Trainium chips. ``accelerator_memory_gib``: per device, GiB.
    ``threads_per_core``: the maximum; a vCPU is a thread.
    ``neuron_cores``: logical NeuronCores per node at the default LNC, 0 without Trainium.
    ``pods``: how many a HyperPod node takes on EKS: the addresses of one network interface without its own (EC2's
    DescribeInstanceTypes), as in the table of the SageMaker Developer Guide, "Getting started with Amazon EKS support
    in SageMaker HyperPod": 49 on a p5, 14 on an m5.xlarge. EKS's own eni-max-pods.txt counts several interfaces.
    ``network_gbps``: bandwidth of training traffic, Gbit/s, all network cards together; CPU types burst up to it.
    ``efa_interfaces``: the maximum that EC2 allows. ``efa``: "maybe" where EC2 lists an interface but HyperPod was
    measured without one, also for unmeasured sizes of the same build. ``rdma_read``: whether the EFA device supports
    RDMA read.
    ``network_labels``: whether HyperPod labels its nodes on EKS with their layers of the network (SageMaker Developer
    Guide, "Using topology-aware scheduling in Amazon SageMaker HyperPod task governance"). EC2 knows the layers of more
    types (EC2 User Guide, "Prerequisites for Amazon EC2 topology").
    ``nvme_gb_each``: instance store per disk, GB.
    ``hourly_usd``: on-demand rate in us-east-1, USD per instance and hour, None where no source names one.
    ``price_basis``: whose rate that is; "capacity-block" is a prepaid reservation, the only way some types are sold.
    Only "hyperpod" is what HyperPod bills: the others are estimates.
    ``quota_code``: of its on-demand quota, where somebody has published it. AWS has not; customers did
    (github.com/klaffka/aws-quota-monitor, docs/quota-audit-s-z.md, 2026; p5e, p5en and p6 from a second list, which has
    the same codes for types that both name).
    """

    name: str
    hyperpod: bool
    accelerator: AcceleratorName | Literal[""] = ""
    accelerator_model: str = ""
    accelerators: int
    accelerator_memory_gib: int
    neuron_cores: int
    vcpus: int
    architecture: Architecture
    threads_per_core: int
    memory_gib: int
    pods: int = 49
    network_gbps: float
    efa_interfaces: int
    efa: Literal["yes", "no", "maybe"]
    rdma_read: bool
    network_labels: bool = False
    nvme_disks: int
    nvme_gb_each: int
    hourly_usd: float | None = None
    price_basis: PriceBasis | None = None
    quota_code: str = ""
    specs_source: str
    price_source: str = ""

    @property
    def catalogued(self) -> bool:
        """Whether the catalogue has the type. Otherwise only the name is known."""
        return self.name in CATALOGUE

    @property
    def interfaces(self) -> int:
        """The maximum number of a node's network interfaces; for an unknown type, the maximum of its kind."""
        kind = (
            (self,) if self.catalogued else (one for one in CATALOGUE.values() if one.accelerator == self.accelerator)
        )
        return max(1, *(one.efa_interfaces for one in kind))

    @property
    def transport(self) -> Transport:
        """The network transport of this type by the catalogue; "maybe" is tcp until a worker has probed it."""
        if self.efa != "yes":
            return "tcp"
        return "efa-rdma" if self.rdma_read else "efa-sendrecv"

    @property
    def lustre_efa_interfaces(self) -> int:
        """The maximum number of EFA interfaces for a node's Lustre client, 0 where the client cannot use EFA."""
        if self.efa != "yes" or self.name.split(".")[1] in _NO_LUSTRE_EFA:
            return 0
        return _LUSTRE_EFA_INTERFACES.get(self.name, 2 if self.efa_interfaces > 1 else 1)


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """The differences between a GPU cluster and a Trainium cluster.

    ``slurm_gres``: the generic resource's name. ``kubernetes_resource``: one per device.
    """

    name: AcceleratorName
    title: str
    default_worker_type: str
    slurm_gres: str
    slurm_partition: str
    kubernetes_resource: str


ACCELERATORS: Mapping[str, Accelerator] = MappingProxyType(
    {
        "gpu": Accelerator(
            name="gpu",
            title="NVIDIA GPU",
            default_worker_type="ml.p5.48xlarge",
            slurm_gres="gpu",
            slurm_partition="gpu",
            kubernetes_resource="nvidia.com/gpu",
        ),
        "trainium": Accelerator(
            name="trainium",
            title="AWS Trainium",
            default_worker_type="ml.trn1.32xlarge",
            slurm_gres="neuron",
            slurm_partition="trainium",
            kubernetes_resource="aws.amazon.com/neuron",
        ),
    }
)


CATALOGUE: Mapping[str, InstanceType] = table(Path(__file__).with_name("instance_types.csv"), InstanceType, "name")


def nearest(name: str) -> list[str]:
    """Return the catalogue's names that are most like this one, at most three."""
    # Without this, a missing "ml." would outweigh the part of the name that distinguishes types.
    wanted = name if name.startswith("ml.") else f"ml.{name}"
    return difflib.get_close_matches(wanted, CATALOGUE, n=3, cutoff=0.6)


def lookup(name: str) -> InstanceType:
    """Return the catalogue's row of an instance type, or facts derived from the name of a newer one.

    Raises UnknownInstanceType if the name cannot be an instance type's.
    """
    return CATALOGUE.get(name) or from_name(name)


def find(name: str) -> InstanceType | None:
    """Like ``lookup``, but return None if the name cannot be an instance type's."""
    try:
        return lookup(name)
    except UnknownInstanceType:
        return None


def in_common(types: Sequence[InstanceType]) -> InstanceType:
    """Return what a node has whichever of these types it is: the first one's row, with the least of each quantity."""
    if len(types) == 1:
        return types[0]
    return replace(types[0], **{name: min(getattr(one, name) for one in types) for name in _QUANTITIES})


def from_name(name: str) -> InstanceType:
    """Derive a type's facts from EC2's naming; all others are zero or "maybe". Raises UnknownInstanceType."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise UnknownInstanceType(name)
    return InstanceType(
        name=name,
        hyperpod=True,
        accelerator=_SERIES.get(found["series"], ""),
        accelerators=0,
        accelerator_memory_gib=0,
        neuron_cores=0,
        vcpus=0,
        architecture="arm64" if "g" in found["options"] else "x86_64",
        threads_per_core=2,
        memory_gib=0,
        network_gbps=0,
        efa_interfaces=0,
        efa="maybe",
        rdma_read=False,
        nvme_disks=0,
        nvme_gb_each=0,
        specs_source="its name",
    )
