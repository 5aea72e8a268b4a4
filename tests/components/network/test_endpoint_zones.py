"""Existing buckets and the endpoints' zones are looked at before anything is made."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from components.config.change_checks import existing_bucket_problems
from components.network.endpoint_zones import zone_problems
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from tests.support import config, project

BUCKET = {"fsx": {"linkedBucket": "training-data"}}
# The words of terraform-provider-aws (internal/service/s3/bucket_data_source.go) and of the SDK that it calls.
_HEAD = "reading S3 Bucket (training-data): operation error S3: HeadBucket, https response error StatusCode: "
MOVED = LookupError(f"{_HEAD}301, RequestID: 1, HostID: 2, api error MovedPermanently: Moved Permanently")
FORBIDDEN = LookupError(f"{_HEAD}403, RequestID: 1, HostID: 2, api error Forbidden: Forbidden")
MISSING = LookupError("reading S3 Bucket (training-data): couldn't find resource")
# The words of terraform-provider-aws (internal/service/ec2/vpc_endpoint_service_data_source.go): where EC2 does not
# know the name (InvalidServiceName), and where it knows it with other types of endpoints only.
GONE = LookupError("reading EC2 VPC Endpoint Services: couldn't find resource")
UNMATCHED = LookupError("no matching EC2 VPC Endpoint Service found")
NAMES = {"usw2-az1": "us-west-2b", "usw2-az2": "us-west-2a", "usw2-az3": "us-west-2c"}
A, B, C = "us-west-2a", "us-west-2b", "us-west-2c"
# What AWS answers: the bucket's region, or why not; and each service's zones, where it is not in all of them.
Zones = dict[str, list[str] | Exception]
BAD: dict[str, tuple[str | Exception, Zones]] = {
    "a bucket elsewhere": ("us-east-1", {}),
    "a bucket elsewhere, as S3 has it": (MOVED, {}),
    "no bucket": (MISSING, {}),
    "a zone without two services": ("us-west-2", {"sts": [A, C], "logs": [C]}),
    "a service that the region lacks": ("us-west-2", {"sts": GONE}),
    "a service that the region lacks, as Terraform has it": ("us-west-2", {"logs": UNMATCHED}),
    "no zone with all": ("us-west-2", {"sts": [A], "logs": [C]}),
}


def told(answers: tuple[str | Exception, Zones], stack: str = "dev", **settings: Any) -> list[str]:
    """What is said where AWS answers that."""
    region, zones = answers

    def bucket(*, bucket: str) -> SimpleNamespace:
        if isinstance(region, Exception):
            raise region
        return SimpleNamespace(bucket_region=region)

    def service(*, service_name: str, service_type: str) -> SimpleNamespace:
        assert service_type == "Interface"
        name = service_name.removeprefix("com.amazonaws.us-west-2.")
        there = zones.get(name, [A, B, C])
        if isinstance(there, Exception):
            raise there
        return SimpleNamespace(availability_zones=there)

    with (
        patch("pulumi_aws.s3.get_bucket", bucket),
        patch("pulumi_aws.ec2.get_vpc_endpoint_service", service),
        patch(
            "pulumi_aws.get_availability_zones",
            lambda: SimpleNamespace(names=list(NAMES.values()), zone_ids=list(NAMES)),
        ),
    ):
        made = config(stack, **{**BUCKET, "availabilityZoneId": "usw2-az1", **settings})
        linked = existing_bucket_problems(made)
        lacking = zone_problems(made.region, made.zone_id, made.settings.interface_services)
        return [str(problem) for problem in (*linked, *lacking)]


@pytest.mark.parametrize("region", ["us-west-2", FORBIDDEN])
def test_what_is_in_its_place_or_nobody_may_look_at_is_taken(region: str | Exception) -> None:
    assert told((region, {"sts": [B]})) == []


def test_services_that_name_no_zones_are_in_all() -> None:
    assert told(("us-west-2", {"sts": [], "logs": []})) == []


def test_a_service_that_nobody_may_ask_about_hides_no_other() -> None:
    refused = LookupError("reading EC2 VPC Endpoint Services: api error UnauthorizedOperation: You are not authorized")
    assert told(("us-west-2", {"sts": refused, "logs": [B]})) == []
    (problem,) = told(("us-west-2", {"sts": refused, "logs": [C]}))
    assert "usw2-az1 has no endpoint of logs" in problem


def test_a_stack_without_a_bucket_asks_for_none() -> None:
    assert told((MISSING, {}), fsx={}) == []


def test_a_teams_bucket_must_exist_and_may_be_in_another_region() -> None:
    vision: dict[str, Any] = {"fsx": {}, "teams": [{"name": "vision", "buckets": [{"name": "training-data"}]}]}
    (missing,) = told((MISSING, {}), "eks-gpu", **vision)
    assert missing.startswith("hyperpod:teams[0].buckets: there is no bucket training-data")
    for elsewhere in ("us-east-1", MOVED):
        assert told((elsewhere, {}), "eks-gpu", **vision) == []


def test_a_bucket_that_is_not_there_stops_the_program_before_it_makes_anything() -> None:
    with Account("us-west-2") as account, pytest.raises(Exception, match="there is no bucket training-data"):
        up(project("dev", **BUCKET), account, preview=True)
    assert not list(account.live)
