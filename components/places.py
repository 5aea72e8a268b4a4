"""Where AWS and the user have what the stack builds on: looked at before anything is created."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi_aws as aws

from .config import Config, Problem
from .estimates.endpoints import interface_services
from .network import service_name

_BUCKET, _ZONE = "hyperpod:fsx.linkedBucket", "hyperpod:availabilityZoneId"
# How S3 answers HeadBucket where there is no such bucket, and where it is in another region than the one asked.
_MISSING, _MOVED = ("couldn't find resource", "StatusCode: 404", "NoSuchBucket"), ("StatusCode: 301",)

_NO_SERVICE = ("couldn't find resource", "no matching EC2 VPC Endpoint Service")
_OWN_NETWORK = "an existing network (network.vpcId)"


def bucket_problems(config: Config) -> Iterator[Problem]:
    """A linked bucket that does not exist, or is in another region than the file system.

    What changes in it is imported, and that is possible only within a region (FSx for Lustre User Guide, "Region and
    account support for linked S3 buckets"). A bucket that the caller may not look at can be another account's.
    """
    bucket, here = config.settings.fsx.linked_bucket, config.region.name
    if not bucket:
        return
    fix = f"a bucket in {here}"
    try:
        there = aws.s3.get_bucket(bucket=bucket).bucket_region
    except Exception as refused:  # Whatever the provider says.
        text = str(refused)
        if any(word in text for word in _MISSING):
            yield Problem(key=_BUCKET, what=f"there is no bucket {bucket}", fix=fix)
        elif any(word in text for word in _MOVED):
            yield Problem(key=_BUCKET, what=f"{bucket} is not in {here}, and FSx imports only from there", fix=fix)
        return
    if there != here:
        yield Problem(key=_BUCKET, what=f"{bucket} is in {there}, and FSx imports only from {here}", fix=fix)


def zone_problems(config: Config) -> Iterator[Problem]:
    """Services that have no interface endpoint in the region, or none in the zone of the nodes' subnet.

    A service is available in the zones that it names (EC2 API Reference, ServiceDetail, AvailabilityZones). Where it
    names none, as in GovCloud, or nobody may ask, this says nothing.
    """
    asked = {service: _zones_of(config, service) for service in interface_services(config)}
    if unknown := [service for service, zones in asked.items() if zones is None]:
        yield Problem(
            key="aws:region",
            what=f"{config.region.name} has no endpoint of {', '.join(unknown)}, which the stack's network needs",
            fix=_OWN_NETWORK,
        )
    try:
        listed = aws.get_availability_zones()
    except Exception:  # As above.
        return
    names = dict(zip(listed.zone_ids, listed.names, strict=True))
    places = {service: zones for service, zones in asked.items() if zones}
    lacking = [service for service, zones in places.items() if names.get(config.zone_id, "") not in zones]
    if config.zone_id in names and lacking:
        good = [zone for zone, name in names.items() if all(name in zones for zones in places.values())]
        yield Problem(
            key=_ZONE,
            what=f"{config.zone_id} has no endpoint of {', '.join(lacking)}, which the stack's network needs",
            fix=f"one of {', '.join(sorted(good))}" if good else _OWN_NETWORK,
        )


def _zones_of(config: Config, service: str) -> set[str] | None:
    """The names of the zones with the service's endpoints, empty where they are unknown, None where there are none."""
    try:
        name = service_name(config.region, service)
        return set(aws.ec2.get_vpc_endpoint_service(service_name=name, service_type="Interface").availability_zones)
    except Exception as refused:  # Whatever the provider says: who may create endpoints gets AWS's own refusal.
        return None if any(word in str(refused) for word in _NO_SERVICE) else set()
