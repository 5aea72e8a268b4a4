"""``scale --what-if``: which limits a worker group of another size meets, what that size needs, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from components.config import Config
from components.estimates import cost, quotas
from components.estimates.amounts import Cost
from components.estimates.limits import Reach, grown, reaches
from components.estimates.quotas import Quota

from ..cluster.scale import worker_group
from ..target import Target
from ..terminal import console

# The container image for which the time of a pull is said; those of training jobs are of this order.
IMAGE_GIB = 10


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """A worker group with ``count`` nodes: the limits, the quotas that need more, and the costs.

    ``fsx_mbps`` is the throughput of the file system in MB/s; None where the stack uses an existing one.
    ``pull_seconds`` is the least time in which an image of 10 GiB reaches all nodes through the stack's NAT gateway;
    None without one.
    """

    stack: str
    group: str
    type: str
    count: int
    reaches: Sequence[Reach]
    quotas: Sequence[Quota]
    cost: Cost
    accelerators: int
    fsx_mbps: float | None
    pull_seconds: float | None

    @property
    def exceeded(self) -> list[Reach]:
        """The limits that this size is over."""
        return [reach for reach in self.reaches if reach.exceeded]

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        limits = [
            {
                "name": reach.limit.name,
                "what": reach.limit.what,
                "nodes_at_most": reach.nodes,
                "needed": reach.used,
                "limit": reach.limit.limit,
                "unit": reach.limit.unit,
                "exceeded": reach.exceeded,
                "change": reach.limit.change,
                "source": reach.limit.source,
            }
            for reach in self.reaches
        ]
        return {
            "stack": self.stack,
            "group": self.group,
            "instance_type": self.type,
            "nodes": self.count,
            "limits": limits,
            "quotas": [quota.as_json() for quota in self.quotas],
            "fsx_mbps": self.fsx_mbps,
            "image_pull_seconds": self.pull_seconds,
            "accelerators": self.accelerators,
            "cost": self.cost.as_json(),
        }


def what_if(target: Target, group: str, count: int) -> WhatIf:
    """What another size means, without checks: it may be one that the stack cannot have. Raises Failure."""
    found = worker_group(target, group)
    config = target.config
    larger = grown(config, group, count)
    before = {quota.name: quota.needed for quota in quotas.needed(config)}
    fsx = config.settings.fsx
    return WhatIf(
        stack=target.stack,
        group=group,
        type=found.type_names,
        count=count,
        reaches=reaches(config, group, count),
        quotas=[quota for quota in quotas.needed(larger) if quota.needed > before.get(quota.name, 0)],
        cost=cost.estimate(larger),
        accelerators=sum(one.count * one.type.accelerators for one in larger.training_groups),
        # Amazon FSx for Lustre User Guide, "Deployment and storage class options": 1,200 GiB are 1.2 TiB there.
        pull_seconds=_image_pull_seconds(larger),
        fsx_mbps=None if fsx.file_system_id else fsx.throughput * config.fsx_gib / 1000,
    )


def _image_pull_seconds(config: Config) -> float | None:
    """Amazon VPC User Guide, "NAT gateway basics": up to 100 Gbps."""
    network = config.settings.network
    if network.closed or network.vpc_id:
        return None
    return sum(group.count for group in config.worker_groups) * IMAGE_GIB * 2**30 * 8 / 100e9


def show(found: WhatIf) -> None:
    """Print the limits in the order in which a growing group meets them, then what to do."""
    console.prose(f"{found.group} of {found.stack} with {found.count:,} x {found.type}: {found.cost.headline}", "bold")
    console.table(
        "Published limits, the first that a growing group meets first",
        ["", "limit", ("enough for", "right"), ("needed", "right"), ("allowed", "right")],
        [
            (
                "FAIL" if reach.exceeded else "PASS",
                reach.limit.what,
                f"{reach.nodes:,} nodes",
                f"{reach.used:,.0f}",
                f"{reach.limit.limit:,.0f}",
            )
            for reach in found.reaches
        ],
    )
    for reach in found.exceeded:
        console.prose(f"{reach.limit.what}: {reach.limit.change}", "yellow")
        console.remark(f"  {reach.limit.source}")
    if found.quotas:
        console.table(
            "Quotas that must be larger than today",
            ["quota", "code", ("needed", "right")],
            [(f"{one.service}: {one.name}", one.code or "?", f"{one.needed:,.0f}") for one in found.quotas],
        )
        console.remark(f"hyperpod quotas {found.stack} compares what the stack needs today with the account.")
    if found.fsx_mbps and found.accelerators:
        each = found.fsx_mbps / found.accelerators
        console.prose(
            f"/fsx: {found.fsx_mbps:,.0f} MB/s together, {each:,.2f} MB/s for each of {found.accelerators:,} "
            "accelerators; fsx.throughput and fsx.storageGiB raise it"
        )
    if found.pull_seconds:
        console.prose(
            f"an image of {IMAGE_GIB} GiB from the internet reaches all nodes in {found.pull_seconds / 60:,.1f} min at "
            "best, by the NAT gateway's 100 Gbps; from ECR, its layers come through the S3 endpoint instead"
        )
