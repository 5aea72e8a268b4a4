import pytest
from boto3 import Session
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from components.catalogue.regions import REGIONS, Region
from tests.golden.stacks import deployed
from tests.rows import each


@each(REGIONS)
def test_zones_are_those_that_ec2_lists(row: Region) -> None:
    assert set(row.zone_ids) == {zone.zone_id for zone in RegionsAndZonesBackend.zones[row.name]}


def test_grafana_is_where_botocore_has_its_endpoint() -> None:
    there = {name for part in ("aws", "aws-us-gov") for name in Session().get_available_regions("grafana", part)}
    assert {row.name for row in REGIONS.values() if row.grafana} == there & set(REGIONS)


# SageMaker Developer Guide, "Amazon SageMaker HyperPod", AWS Regions supported by SageMaker HyperPod.
_WITH_HYPERPOD = (
    "us-east-1 us-east-2 us-west-1 us-west-2 eu-central-1 eu-north-1 eu-west-1 eu-west-2 eu-south-2 ap-south-1 "
    "ap-south-2 ap-southeast-1 ap-southeast-2 ap-southeast-3 ap-southeast-4 ap-northeast-1 ap-northeast-2 sa-east-1"
)


def test_the_regions_with_hyperpod_are_those_that_the_guide_lists() -> None:
    assert {row.name for row in REGIONS.values() if row.hyperpod} == set(_WITH_HYPERPOD.split())


@each(REGIONS)
def test_the_zones_that_eks_refuses_are_of_the_same_region(row: Region) -> None:
    prefix = row.zone_ids[0].partition("-")[0]
    assert all(zone.startswith(f"{prefix}-az") for zone in row.eks_unsupported_zone_ids)


@each(REGIONS)
def test_an_eks_control_plane_finds_two_different_supported_zones(row: Region) -> None:
    for zone in row.zone_ids:
        other = row.other_eks_zone(zone)
        assert other != zone
        assert other in row.eks_zone_ids()
        assert other not in row.eks_unsupported_zone_ids


@pytest.mark.parametrize(
    ("zone", "other"),
    [
        ("use1-az1", "use1-az2"),
        ("use1-az2", "use1-az4"),
        ("use1-az3", "use1-az4"),
        ("use1-az6", "use1-az1"),
    ],
)
def test_the_second_zone_is_the_next_one_without_the_refused(zone: str, other: str) -> None:
    assert REGIONS["us-east-1"].other_eks_zone(zone) == other


def test_the_zones_that_eks_refuses_are_left_out() -> None:
    assert "use1-az3" not in REGIONS["us-east-1"].eks_zone_ids()
    assert REGIONS["us-west-1"].eks_zone_ids() == ("usw1-az1", "usw1-az3")
    assert len(REGIONS["us-west-2"].eks_zone_ids()) == 4


@pytest.mark.parametrize("name", ["us-gov-west-1", "us-gov-east-1"])
def test_govcloud_is_known_in_its_own_partition(name: str) -> None:
    assert (REGIONS[name].partition, REGIONS[name].dns_suffix) == ("aws-us-gov", "amazonaws.com")


@each(REGIONS)
def test_partition_follows_the_name_and_the_source_is_named(row: Region) -> None:
    assert row.partition == ("aws-us-gov" if row.name.startswith("us-gov-") else "aws")
    assert row.source


def test_a_region_that_no_page_of_aws_lists_is_allowed_with_a_warning() -> None:
    assert {row.name for row in REGIONS.values() if not row.hyperpod} == {"us-gov-west-1", "us-gov-east-1"}
    warned = deployed("slurm-govcloud").warnings
    assert any("us-gov-west-1 among the regions with HyperPod" in warning for warning in warned)
    assert not any("regions with HyperPod" in warning for warning in deployed("dev").warnings)


def test_another_regions_prices_are_a_warning_of_the_program() -> None:
    said = "the prices are those of us-east-1 and us-west-2, not of us-gov-west-1"
    assert any(said in warning for warning in deployed("slurm-govcloud").warnings)
    assert not any("the prices are" in warning for warning in deployed("dev").warnings)
