"""Rules between configured values. Every rule yields its own problems; none stops the others."""

import unicodedata
from collections.abc import Iterator

from ..alerts.checks import alert_problems
from ..catalogue.regions import Region
from ..common.names import CLUSTER_LIMIT, longest_cluster_name
from ..health.checks import recovery_problems
from ..identity.checks import role_problems
from ..kubernetes.checks import kubernetes_problems
from ..network.checks import network_problems
from ..observability.checks import observability_problems
from ..people.checks import people_problems, ssh_key_problems
from ..schema.problems import Problem
from ..security.checks import security_problems
from ..slurm.checks import slurm_problems
from ..storage.checks import file_system_problems
from ..workers.checks import head_node_problems, worker_problems
from ..workers.demand_checks import demand_problems
from ..workers.fallback_checks import fallback_problems
from ..workers.image_checks import image_problems
from ..workers.type_checks import type_problems
from .model import Settings

# Tag Editor User Guide: 50 tags per resource; this project uses at most ten.
MAX_TAGS = 40


def check(settings: Settings, region: Region | None) -> list[Problem]:
    """Yield every problem of the settings. Rules that need the region are skipped if it is unknown."""
    existing_vpc, continuous = bool(settings.network.vpc_id), settings.node_provisioning == "Continuous"
    fsx, gib, orchestrator = settings.fsx, settings.fsx_gib, settings.orchestrator
    role, boundary, key = settings.existing_role_arn, settings.permissions_boundary_arn, settings.security.kms_key
    rules = (
        _cluster_name(settings, region),
        _zone(settings, region),
        worker_problems(settings, region, existing_vpc=existing_vpc, continuous=continuous),
        demand_problems(
            settings,
            continuous=continuous,
            recovery=settings.node_recovery,
            monitored=settings.charts.health_monitoring,
        ),
        fallback_problems(settings, continuous=continuous, governed=settings.charts.queues == "task-governance"),
        image_problems(settings, continuous=continuous),
        type_problems(settings, packages=bool(settings.slurm.container_packages)),
        head_node_problems(settings, settings.lost_node_seconds),
        slurm_problems(
            settings, settings.slurm, settings.users, fsx, region, existing_vpc=existing_vpc, continuous=continuous
        ),
        kubernetes_problems(
            settings, region, closed=settings.network.closed, metrics=settings.observability.with_prometheus
        ),
        file_system_problems(fsx, gib, settings, existing_vpc=existing_vpc),
        network_problems(settings.network, settings, settings.addresses),
        role_problems(role, boundary, region),
        ssh_key_problems(settings.ssh_public_key, orchestrator),
        people_problems(settings.users, orchestrator),
        security_problems(
            settings.security, region, orchestrator=orchestrator, own_roles=role is None, continuous=continuous
        ),
        recovery_problems(settings.health_policy, settings.node_recovery),
        observability_problems(
            settings.observability,
            region,
            orchestrator=orchestrator,
            own_key=bool(key),
            closed=settings.network.closed,
        ),
        alert_problems(settings.alerts, region),
        _tags(settings),
    )
    return [problem for rule in rules for problem in rule]


def _cluster_name(settings: Settings, region: Region | None) -> Iterator[Problem]:
    name, key = settings.cluster_name, "hyperpod:clusterName"
    limit = longest_cluster_name(region.name) if region else CLUSTER_LIMIT
    if len(name) > limit:
        where = f"in {region.name}, where bucket and role names carry it" if region else "anywhere"
        yield Problem(key=key, what=f'"{name}" has {len(name)} characters', fix=f"at most {limit} {where}")


def _zone(settings: Settings, region: Region | None) -> Iterator[Problem]:
    zone = settings.availability_zone_id
    if zone and region and zone not in region.zone_ids:
        yield Problem(
            key="hyperpod:availabilityZoneId",
            what=f'"{zone}" is not a zone of {region.name}',
            fix=f"one of {', '.join(region.zone_ids)}",
        )
    elif zone and region and settings.orchestrator == "eks" and zone not in region.eks_zone_ids():
        yield Problem(
            key="hyperpod:availabilityZoneId",
            what=f"EKS has no control plane in {zone}",
            fix=f"one of {', '.join(region.eks_zone_ids())}",
        )


def _tags(settings: Settings) -> Iterator[Problem]:
    if len(settings.tags) > MAX_TAGS:
        yield Problem(key="hyperpod:tags", what=f"{len(settings.tags)} tags", fix=f"at most {MAX_TAGS}")
    for key, value in settings.tags.items():
        if not 1 <= len(key) <= 128 or len(value) > 256:
            yield Problem(
                key=f"hyperpod:tags.{key}",
                what=f"a key of {len(key)} characters and a value of {len(value)}",
                fix="keys of 1 to 128 characters, values of at most 256",
            )
        if odd := sorted({character for character in key + value if not _taggable(character)}):
            yield Problem(
                key=f"hyperpod:tags.{key}",
                what=f"{' '.join(map(repr, odd))} in a tag",
                fix="letters, digits, spaces and _.:/=+-@",
            )
        if key.lower().startswith(("aws:", "hyperpod:")):
            yield Problem(key=f"hyperpod:tags.{key}", what="a reserved prefix", fix="neither aws: nor hyperpod:")


def _taggable(character: str) -> bool:
    """SageMaker API Reference, Tag: letters, separators and numbers of any script, and a few signs."""
    return unicodedata.category(character)[0] in "LZN" or character in "_.:/=+-@"
