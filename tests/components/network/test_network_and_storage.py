"""Networks and file systems that cannot be are refused."""

from __future__ import annotations

from typing import Any

import pytest

from components.network.subnets import MOST_ENDPOINTS
from components.storage.checks import file_servers
from tests.components.config.refusals import EKS, GROUP, Cases, check
from tests.golden.stacks import VPC
from tests.support import config

WHOLE = {**VPC, "eksSubnetIds": ["subnet-0aaaaaaaaaaaaaaa1", "subnet-0aaaaaaaaaaaaaaa2"]}
BAD: Cases = {
    "unknown key inside": ({"fsx": {"storageGib": 1200}}, "hyperpod:fsx.storageGib", "did you mean storageGiB?"),
    "zone of another region": ({"availabilityZoneId": "use1-az1"}, "hyperpod:availabilityZoneId", "usw2-az1"),
    "FSx size": ({"fsx": {"storageGiB": 3600}}, "hyperpod:fsx.storageGiB", "multiple of 2400"),
    "FSx throughput": ({"fsx": {"throughput": 200}}, "hyperpod:fsx.throughput", "125, 250, 500 or 1000"),
    "backups of a linked file system": (
        {"fsx": {"linkedBucket": "data", "backupDays": 7}},
        "hyperpod:fsx.backupDays",
        "linked",
    ),
    "deletes for no bucket": ({"fsx": {"exportDeletes": True}}, "hyperpod:fsx.exportDeletes", "linkedBucket"),
    "home file system by its name": (
        {"fsx": {"homeFileSystemId": "home"}},
        "hyperpod:fsx.homeFileSystemId",
        "fs-0123456789abcdef0",
    ),
    "home file system on EKS": (
        {"orchestrator": "eks", "fsx": {"homeFileSystemId": "fs-0123456789abcdef0"}},
        "hyperpod:fsx.homeFileSystemId",
        "leave it out",
    ),
    "home file system in another VPC": (
        {"fsx": {"homeFileSystemId": "fs-0123456789abcdef0"}},
        "hyperpod:fsx.homeFileSystemId",
        "hyperpod:network.vpcId",
    ),
    "a made home file system on EKS": (
        {"orchestrator": "eks", "fsx": {"homeStorageGiB": 64}},
        "hyperpod:fsx.homeStorageGiB",
        "leave it out",
    ),
    "two home file systems": (
        {"fsx": {"homeStorageGiB": 64, "homeFileSystemId": "fs-0123456789abcdef0"}},
        "hyperpod:fsx.homeStorageGiB",
        "one of it and homeFileSystemId",
    ),
    "a home file system that is too small": ({"fsx": {"homeStorageGiB": 63}}, "hyperpod:fsx.homeStorageGiB", "64"),
    "a throughput that OpenZFS does not have": (
        {"fsx": {"homeStorageGiB": 64, "homeThroughput": 160}},
        "hyperpod:fsx.homeThroughput",
        "64, 128, 256",
    ),
    "a throughput of no home file system": (
        {"fsx": {"homeThroughput": 128}},
        "hyperpod:fsx.homeThroughput",
        "homeStorageGiB",
    ),
    "EFA to a file system too small for it": (
        {"fsx": {"efa": True}, "workers": [{**GROUP, "instanceType": "ml.p5.48xlarge"}]},
        "hyperpod:fsx.storageGiB",
        "1200 GiB with EFA at 250 MB/s per TiB; a multiple of 19200",
    ),
    "EFA to a file system of an odd size": (
        {
            "fsx": {"efa": True, "throughput": 500, "storageGiB": 14400},
            "workers": [{**GROUP, "instanceType": "ml.p5.48xlarge"}],
        },
        "hyperpod:fsx.storageGiB",
        "4800 at 1000",
    ),
    "EFA to a file system that no worker can use": (
        {"fsx": {"efa": True, "throughput": 1000, "storageGiB": 4800}},
        "hyperpod:fsx.efa",
        "ml.p5.48xlarge",
    ),
    "EFA to a file system from trn2": (
        {
            "accelerator": "trainium",
            "fsx": {"efa": True, "throughput": 1000, "storageGiB": 4800},
            "workers": [{**GROUP, "instanceType": "ml.trn2.48xlarge"}],
        },
        "hyperpod:fsx.efa",
        "ml.trn1.32xlarge",
    ),
    "more EFA connections than a file system takes": (
        {
            "fsx": {"efa": True, "throughput": 1000, "storageGiB": 4800},
            "workers": [{**GROUP, "instanceType": "ml.p5.48xlarge", "count": 129}],
        },
        "hyperpod:fsx.efa",
        "1032 EFA connections",
    ),
    "retained file system in our VPC": ({"fsx": {"retainOnDelete": True}}, "hyperpod:fsx.retainOnDelete", "vpcId"),
    "existing file system in our VPC": (
        {"fsx": {"fileSystemId": "fs-0123456789abcdef0"}},
        "hyperpod:fsx.fileSystemId",
        "name that VPC",
    ),
    "size of an existing file system": (
        {
            "network": VPC,
            "fsx": {
                "fileSystemId": "fs-0123456789abcdef0",
                "homeFileSystemId": "fs-0123456789abcdef0",
                "storageGiB": 2400,
                "throughput": 250,
                "compression": "LZ4",
                "backupDays": 0,
                "retainOnDelete": True,
            },
        },
        "hyperpod:fsx.storageGiB",
        "the stack does not change it",
    ),
    "overlapping blocks": (
        {"network": {"cidr": "10.0.0.0/16", "secondaryCidr": "10.0.128.0/20"}},
        "hyperpod:network.secondaryCidr",
        "overlaps",
    ),
    "block too small for the subnets": ({"network": {"cidr": "10.0.0.0/24"}}, "hyperpod:network.cidr", "/20 or larger"),
    "block too small for the nodes": (
        {"network": {"secondaryCidr": "10.1.0.0/28"}, "workers": [{"name": "w", "instanceType": "ml.p5.48xlarge"}]},
        "hyperpod:network.secondaryCidr",
        "addresses",
    ),
    "block too small for the pods": (
        {**EKS, "network": {"secondaryCidr": "10.1.0.0/26"}},
        "hyperpod:network.secondaryCidr",
        "64 addresses, and nodes, file servers and endpoints take 1",
    ),
    "block too small for the file servers": (
        {"network": {"secondaryCidr": "10.1.0.0/27"}, "fsx": {"storageGiB": 48000}},
        "hyperpod:network.secondaryCidr",
        "32 addresses",
    ),
    "not a block": ({"network": {"cidr": "10.0.0.1/16"}}, "hyperpod:network.cidr", "host bits"),
    "blocks AWS will not join": (
        {"network": {"secondaryCidr": "172.16.0.0/16"}},
        "hyperpod:network.secondaryCidr",
        "no block of 172.16.0.0/12",
    ),
    "a private block beside a shared one": (
        {"network": {"cidr": "100.64.0.0/16", "secondaryCidr": "10.1.0.0/16"}},
        "hyperpod:network.secondaryCidr",
        "no block of 10.0.0.0/8",
    ),
    "the first block of its range as the second": (
        {"network": {"cidr": "10.1.0.0/16", "secondaryCidr": "10.0.0.0/16"}},
        "hyperpod:network.secondaryCidr",
        "10.0.0.0/8 outside 10.0.0.0/16",
    ),
    "the block of default VPCs as the second": (
        {"network": {"cidr": "172.16.0.0/16", "secondaryCidr": "172.31.0.0/16"}},
        "hyperpod:network.secondaryCidr",
        "no block of 172.31.0.0/16",
    ),
    "the block of AWS's services as the second": (
        {"network": {"cidr": "100.64.0.0/16", "secondaryCidr": "198.19.0.0/16"}},
        "hyperpod:network.secondaryCidr",
        "no block of 198.19.0.0/16",
    ),
    "link-local addresses": ({"network": {"cidr": "169.254.0.0/16"}}, "hyperpod:network.cidr", "link-local"),
    "half an existing network": (
        {"network": {"vpcId": "vpc-0123456789abcdef0"}},
        "hyperpod:network.privateSubnetId",
        "missing",
    ),
    "half an existing network for EKS": ({**EKS, "network": VPC}, "hyperpod:network.eksSubnetIds", "is missing"),
    "one subnet for EKS": (
        {**EKS, "network": {**VPC, "eksSubnetIds": ["subnet-0123456789abcdef0"]}},
        "hyperpod:network.eksSubnetIds",
        "EKS needs two",
    ),
    "a part of an existing network": (
        {**EKS, "network": {key: ids for key, ids in WHOLE.items() if key.endswith("Ids")}},
        "hyperpod:network.securityGroupIds",
        "name the existing VPC too",
    ),
    "egress of an existing network": (
        {"network": {**VPC, "egress": "vpc-only"}},
        "hyperpod:network.egress",
        "you own its routes and endpoints",
    ),
    "ports of an existing network": (
        {"network": {**VPC, "egress": "open-all"}},
        "hyperpod:network.egress",
        "you own its routes and endpoints",
    ),
    "blocks of an existing network": (
        {"network": {**VPC, "cidr": "10.0.0.0/16", "secondaryCidr": "10.1.0.0/16"}},
        "hyperpod:network.secondaryCidr",
        "either create a VPC or use an existing one",
    ),
    "block larger than AWS allows": ({"network": {"cidr": "10.0.0.0/8"}}, "hyperpod:network.cidr", "/16 to /28"),
    "ids that are none": (
        {"network": {"vpcId": "mine", "privateSubnetId": "mine", "securityGroupIds": ["mine"]}},
        "hyperpod:network.securityGroupIds[0]",
        "not an id",
    ),
    "a public registry": (
        {**EKS, "network": {"egress": "vpc-only", "imageRegistry": "public.ecr.aws/mirror"}},
        "hyperpod:network.imageRegistry",
        "not a private ECR registry",
    ),
    "Neuron's device plugin in a closed network": (
        {
            **EKS,
            "accelerator": "trainium",
            "workers": [{**GROUP, "instanceType": "ml.trn1.32xlarge"}],
            "network": {"egress": "vpc-only", "imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"},
        },
        "hyperpod:network.egress",
        "only from public.ecr.aws",
    ),
    "bad subnet id": (
        {
            "network": {
                "vpcId": "vpc-0123456789abcdef0",
                "privateSubnetId": "subnet-1",
                "securityGroupIds": ["sg-0123456789abcdef0"],
            }
        },
        "hyperpod:network.privateSubnetId",
        "not an id",
    ),
    "registry of charts' images with Slurm": (
        {"network": {"egress": "vpc-only", "imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"}},
        "hyperpod:network.imageRegistry",
        "is for EKS",
    ),
    "EKS's subnets with Slurm": (
        {"network": {"vpcId": "vpc-0123456789abcdef0", "eksSubnetIds": ["subnet-0123456789abcdef0"]}},
        "hyperpod:network.eksSubnetIds",
        "is for EKS",
    ),
    "block too small for the login nodes": (
        {"network": {"secondaryCidr": "10.1.0.0/28"}, "login": {"instanceType": "ml.m5.large", "count": 20}},
        "hyperpod:network.secondaryCidr",
        "addresses",
    ),
    "encryption key of another region": (
        {"security": {"kmsKey": "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab"}},
        "hyperpod:security.kmsKey",
        "the key is in us-east-1; a key in us-west-2, or create",
    ),
    "encryption key by its alias": (
        {"security": {"kmsKey": "arn:aws:kms:us-west-2:123456789012:alias/mine"}},
        "hyperpod:security.kmsKey",
        "is not a key's ARN; create, or arn:aws:kms:REGION:ACCOUNT:key/ID",
    ),
    "encryption key for volumes that HyperPod does not encrypt": (
        {"security": {"kmsKey": "create"}, "nodeProvisioning": ""},
        "hyperpod:nodeProvisioning",
        "only in this mode; set it to Continuous",
    ),
    "a key that has another name now": (
        {"network": {"closed": True}},
        "hyperpod:network.closed",
        "network.egress vpc-only has taken its place",
    ),
    "trusted by no endpoint": (
        {"network": {"trusted": ["210987654321"]}},
        "hyperpod:network.trusted",
        "set network.egress to vpc-only",
    ),
    "trusted by a name": (
        {"network": {"egress": "vpc-only", "trusted": ["research"]}},
        "hyperpod:network.trusted[0]",
        "not an account or organization; 123456789012 in quotes",
    ),
    "closed EKS without images": (
        {**EKS, "network": {"egress": "vpc-only"}},
        "hyperpod:network.imageRegistry",
        "cannot pull the charts' images",
    ),
    "zone without EKS": (
        {**EKS, "region": "us-east-1", "availabilityZoneId": "use1-az3"},
        "hyperpod:availabilityZoneId",
        "one of use1-az1, use1-az2, use1-az4",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_is_refused_with_key_reason_and_remedy(case: str) -> None:
    check(BAD[case])


# Amazon FSx for Lustre User Guide, "IP addresses for file systems": an address for each storage server (2.4 TiB, or
# with EFA 38.4 TiB at 125 MB/s per TiB to 4.8 TiB at 1000) and each metadata server (12,000 IOPS).
@pytest.mark.parametrize(
    ("fsx", "servers"),
    [
        ({"storageGiB": 1200}, 2),
        ({"storageGiB": 14400}, 7),
        ({"storageGiB": 1200, "homeStorageGiB": 64}, 3),
        ({"storageGiB": 38400, "throughput": 125, "efa": True}, 2),
        ({"storageGiB": 96000, "throughput": 1000, "efa": True}, 24),
    ],
)
def test_a_file_system_takes_an_address_for_each_server(fsx: dict[str, Any], servers: int) -> None:
    settings = config("slurm-gpu", fsx=fsx).settings
    assert file_servers(settings.fsx, settings.fsx_gib) == servers


@pytest.mark.parametrize("closed", [False, True])
def test_no_network_gets_more_endpoints_than_have_room(closed: bool) -> None:
    closing = {"egress": "vpc-only", "imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"}
    chosen = config("eks-gpu", network=closing if closed else {}, observability={"prometheus": "create"})
    assert len(chosen.settings.interface_services) == MOST_ENDPOINTS[closed]
