"""Whether AWS has the endpoints of a stack's network in its zone: looked at before anything is created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pulumi_aws as aws

from ..catalogue.regions import Region
from ..schema.problems import Problem
from .vpc import service_name

_ZONE = "hyperpod:availabilityZoneId"
_NO_SERVICE = ("couldn't find resource", "no matching EC2 VPC Endpoint Service")
_OWN_NETWORK = "an existing network (network.vpcId)"


def zone_problems(region: Region, zone_id: str, services: Sequence[str]) -> Iterator[Problem]:
    """Services that have no interface endpoint in the region, or none in the zone of the nodes' subnet.

    A service is available in the zones that it names (EC2 API Reference, ServiceDetail, AvailabilityZones). Where it
    names none, as in GovCloud, or nobody may ask, this says nothing.
    """
    asked = {service: _zones_of(region, service) for service in services}
    if unknown := [service for service, zones in asked.items() if zones is None]:
        yield Problem(
            key="aws:region",
            what=f"{region.name} has no endpoint of {', '.join(unknown)}, which the stack's network needs",
            fix=_OWN_NETWORK,
        )
    try:
        listed = aws.get_availability_zones()
    except Exception:  # As above.
        return
    names = dict(zip(listed.zone_ids, listed.names, strict=True))
    places = {service: zones for service, zones in asked.items() if zones}
    lacking = [service for service, zones in places.items() if names.get(zone_id, "") not in zones]
    if zone_id in names and lacking:
        good = [zone for zone, name in names.items() if all(name in zones for zones in places.values())]
        yield Problem(
            key=_ZONE,
            what=f"{zone_id} has no endpoint of {', '.join(lacking)}, which the stack's network needs",
            fix=f"one of {', '.join(sorted(good))}" if good else _OWN_NETWORK,
        )


def _zones_of(region: Region, service: str) -> set[str] | None:
    """The names of the zones with the service's endpoints, empty where they are unknown, None where there are none."""
    try:
        name = service_name(region, service)
        return set(aws.ec2.get_vpc_endpoint_service(service_name=name, service_type="Interface").availability_zones)
    except Exception as refused:  # Any error: callers who may create endpoints get AWS's own refusal.
        return None if any(word in str(refused) for word in _NO_SERVICE) else set()
