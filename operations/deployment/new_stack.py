"""A new stack's file: what it says, what that costs, and how many nodes a budget allows."""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from components.catalogue.accelerators import ACCELERATORS, AcceleratorName
from components.catalogue.regions import REGIONS
from components.estimates import cost

from .. import target
from ..failures import bad_input, cannot_know

Orchestrator = Literal["slurm", "eks"]
_TITLES: Mapping[Orchestrator, str] = {"slurm": "Slurm", "eks": "EKS"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What somebody wants of a new stack. ``zone`` is a zone id; empty is the region's first."""

    name: str
    orchestrator: Orchestrator
    accelerator: AcceleratorName
    region: str
    zone: str
    instance_type: str
    nodes: int


def type_name(text: str) -> str:
    """SageMaker's name of an instance type, which EC2 knows without ``ml.``."""
    name = text.strip().lower()
    return name if name.startswith("ml.") else f"ml.{name}"


def wrong_region(region: str) -> str:
    """Why HyperPod cannot be there; empty where it can."""
    known = REGIONS.get(region)
    return "" if known and known.hyperpod else f'AWS offers no HyperPod in "{region}"'


def zones(region: str, orchestrator: Orchestrator) -> tuple[str, ...]:
    """The zones of a region that can hold the workers. Raises Failure for a region without HyperPod."""
    if wrong := wrong_region(region):
        offered = ", ".join(sorted(name for name, one in REGIONS.items() if one.hyperpod))
        raise bad_input(f"--region: {wrong}", f"one of {offered}")
    known = REGIONS[region]
    return known.eks_zone_ids() if orchestrator == "eks" else known.zone_ids


def text(wanted: Wanted) -> str:
    """The stack's file, with comments."""
    eks = wanted.orchestrator == "eks"
    title = f"{_TITLES[wanted.orchestrator]} + {ACCELERATORS[wanted.accelerator].title}"
    lines = [
        f"# {title}. All keys: hyperpod explain. What a change does to a deployed stack: docs/keys/.",
        "config:",
        f"  aws:region: {wanted.region}",
        "  # Part of the names of buckets and roles. It stays.",
        f"  hyperpod:clusterName: {wanted.name}",
        f"  hyperpod:orchestrator: {wanted.orchestrator}",
        f"  hyperpod:accelerator: {wanted.accelerator}",
        "  # EFA does not cross zones: workers and file system are in this one until the stack is destroyed.",
        f"  hyperpod:availabilityZoneId: {wanted.zone or zones(wanted.region, wanted.orchestrator)[0]}",
    ]
    if eks:
        lines += [
            "  # The Kubernetes API is private: run Pulumi inside the VPC, or say from where it may be reached.",
            "  # `curl https://checkip.amazonaws.com` says your address.",
            "  # hyperpod:kubernetesApiCidrs: [ADDRESS/32]",
        ]
    lines += [
        "  hyperpod:workers:",
        "    - name: workers",
        f"      instanceType: {wanted.instance_type}",
        f"      count: {wanted.nodes}",
    ]
    if eks:
        lines += [
            "    # For what the cluster itself runs: DNS, storage drivers, operators, queues.",
            "    - name: system",
            "      instanceType: ml.m5.xlarge",
            "      count: 3",
            "      threadsPerCore: 2",
        ]
    lines += [
        "  # FSx for Lustre. It grows in place and never shrinks.",
        "  # hyperpod:fsx: {storageGiB: 4800, throughput: 250, linkedBucket: my-training-data}",
        "  # Who is notified of unhealthy nodes and a full file system.",
        "  # hyperpod:alerts: {email: you@example.com}",
        "  # Refuse to delete the cluster and the file system.",
        "  # hyperpod:protect: true",
    ]
    return "\n".join(lines) + "\n"


def planned(wanted: Wanted, root: Path = target.ROOT) -> target.Target:
    """The stack as its file would describe it. Raises ConfigError with all that is wrong in it."""
    with tempfile.TemporaryDirectory() as folder:
        beside = Path(folder)
        (beside / "Pulumi.yaml").write_text((root / "Pulumi.yaml").read_text())
        (beside / f"Pulumi.{wanted.name}.yaml").write_text(text(wanted))
        return target.load(wanted.name, root=beside)


def most_nodes(wanted: Wanted, budget: float) -> int:
    """How many workers cost at most ``budget`` USD an hour, with everything around them. Raises Failure if none, or if
    a price is unknown: an estimate keeps no budget."""
    first, second = (cost.estimate(planned(replace(wanted, nodes=nodes)).config) for nodes in (1, 2))
    one, two = first.hourly_usd, second.hourly_usd
    if one is None or two is None:
        raise cannot_know(
            f"--budget: it is unknown how many nodes cost ${budget:,.2f} an hour. One costs {first.words}",
            "--nodes instead of --budget, or a type and a region with a price",
        )
    if one > budget:
        raise bad_input(
            f"--budget: one {wanted.instance_type} and what belongs to it cost ${one:,.2f} an hour, more than "
            f"${budget:,.2f}",
            f"--budget {math.ceil(one)}, or another --instance-type",
        )
    return 1 + math.floor((budget - one) / (two - one))
