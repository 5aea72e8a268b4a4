"""A provider's default tags reach its resources on both engines, as with pulumi-aws."""

from pathlib import Path
from typing import Any

from pulumi.runtime.proto import provider_pb2

from rehearsal.account import Account
from rehearsal.engines import protocol
from rehearsal.engines.default_tags import with_default_tags
from rehearsal.engines.provider import EmbeddedProvider

VPC, OBJECT = "aws:ec2/vpc:Vpc", "aws:s3/bucketObjectv2:BucketObjectv2"
DEFAULTS = {"team": "research", "stage": "test"}


def test_a_resource_s_own_tags_win_over_the_provider_s() -> None:
    laid = with_default_tags(VPC, {"tags": {"stage": "live"}}, DEFAULTS)
    assert laid == {"tags": {"stage": "live"}, "tagsAll": {"team": "research", "stage": "live"}}


def test_what_has_no_tags_gets_none() -> None:
    rule = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    for token in ("aws:s3/bucketPolicy:BucketPolicy", "aws-native:sagemaker:Cluster", "kubernetes:core/v1:ConfigMap"):
        assert with_default_tags(token, {}, DEFAULTS) == {}
    assert with_default_tags(rule, {}, DEFAULTS) == {"tagsAll": DEFAULTS}


def test_an_object_that_overrides_the_default_tags_with_nothing_has_only_its_own() -> None:
    inputs: dict[str, Any] = {"tags": {"own": "x"}, "overrideProvider": {"defaultTags": {"tags": {}}}}
    assert with_default_tags(OBJECT, inputs, DEFAULTS)["tagsAll"] == {"own": "x"}
    assert with_default_tags(OBJECT, {}, DEFAULTS)["tagsAll"] == DEFAULTS


def test_the_provider_lays_those_that_it_was_configured_with(tmp_path: Path) -> None:
    with Account("us-west-2") as account:
        aws = EmbeddedProvider(account, "aws", tmp_path)
        settings = {"region": "us-west-2", "defaultTags": '{"tags": {"team": "research"}}'}
        aws.Configure(provider_pb2.ConfigureRequest(args=protocol.serialize(settings)), None)
        # The default provider, which the program uses only for functions.
        aws.Configure(provider_pb2.ConfigureRequest(args=protocol.serialize({"region": "us-west-2"})), None)
        news = protocol.serialize({"cidrBlock": "10.0.0.0/16", "tags": {"Name": "a"}})
        request = provider_pb2.CheckRequest(
            urn=f"urn:pulumi:dev::hyperpod::{VPC}::vpc", type=VPC, name="vpc", news=news
        )
        inputs, _ = protocol.deserialize(aws.Check(request, None).inputs)
        assert inputs["tagsAll"] == {"team": "research", "Name": "a"}
