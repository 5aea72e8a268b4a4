"""Where a living stack is: what it cannot leave without being made anew."""

from __future__ import annotations

import pulumi_aws as aws

from .config import Config, ConfigError, Problem
from .names import CLUSTER_ID_TAG, Names


def stay_in_place(config: Config, names: Names) -> None:
    """Refuse another zone than the nodes' subnet is in. Raises ConfigError before anything is registered.

    The subnet is found by the stack's own id, which its tags carry. A new one would have the same addresses, and AWS
    refuses it while the old one is there; and the file system, which is in one zone for life, would be made anew,
    empty. Deliberately absent: the subnet of an existing VPC, which is its owner's.
    """
    if config.settings.network.vpc_id:
        return
    found = aws.ec2.get_subnets(
        filters=[
            {"name": f"tag:{CLUSTER_ID_TAG}", "values": [names.cluster_id]},
            {"name": "tag:Name", "values": [f"{names.cluster}-private"]},
        ]
    )
    for subnet in found.ids:
        zone = aws.ec2.get_subnet(id=subnet).availability_zone_id
        if zone != config.zone_id:
            raise ConfigError([_problem(zone, config.zone_id)])


def _problem(zone: str, wanted: str) -> Problem:
    return Problem(
        key="hyperpod:availabilityZoneId",
        what=f"this stack is in {zone}, and its network and file system cannot move to {wanted}",
        fix=f"keep {zone}; or save what is in /fsx, destroy the stack (python -m operations destroy) and deploy it "
        "again; or deploy a new stack beside it (pulumi stack init) with another hyperpod:clusterName",
    )
