"""Networks and file systems that cannot be are refused."""

from typing import Any

import pytest

from components.network.subnets import MOST_ENDPOINTS
from components.storage.checks import file_servers
from tests.components.config.refusals import EKS, GROUP, Cases
from tests.golden.stacks import VPC
from tests.support import config

WHOLE = {**VPC, "eksSubnetIds": ["subnet-0aaaaaaaaaaaaaaa1", "subnet-0aaaaaaaaaaaaaaa2"]}
BAD: Cases = {
    "unknown key inside": {"fsx": {"storageGib": 1200}},
    "zone of another region": {"availabilityZoneId": "use1-az1"},
    "FSx size": {"fsx": {"storageGiB": 3600}},
    "FSx throughput": {"fsx": {"throughput": 200}},
    "backups of a linked file system": {"fsx": {"linkedBucket": "data", "backupDays": 7}},
    "deletes for no bucket": {"fsx": {"exportDeletes": True}},
    "home file system by its name": {"fsx": {"homeFileSystemId": "home"}},
    "home file system on EKS": {"orchestrator": "eks", "fsx": {"homeFileSystemId": "fs-0123456789abcdef0"}},
    "home file system in another VPC": {"fsx": {"homeFileSystemId": "fs-0123456789abcdef0"}},
    "a made home file system on EKS": {"orchestrator": "eks", "fsx": {"homeStorageGiB": 64}},
    "two home file systems": {"fsx": {"homeStorageGiB": 64, "homeFileSystemId": "fs-0123456789abcdef0"}},
    "a home file system that is too small": {"fsx": {"homeStorageGiB": 63}},
    "a throughput that OpenZFS does not have": {"fsx": {"homeStorageGiB": 64, "homeThroughput": 160}},
    "a throughput of no home file system": {"fsx": {"homeThroughput": 128}},
    "EFA to a file system too small for it": {
        "fsx": {"efa": True},
        "workers": [{**GROUP, "instanceType": "ml.p5.48xlarge"}],
    },
    "EFA to a file system of an odd size": {
        "fsx": {"efa": True, "throughput": 500, "storageGiB": 14400},
        "workers": [{**GROUP, "instanceType": "ml.p5.48xlarge"}],
    },
    "EFA to a file system that no worker can use": {"fsx": {"efa": True, "throughput": 1000, "storageGiB": 4800}},
    "EFA to a file system from trn2": {
        "accelerator": "trainium",
        "fsx": {"efa": True, "throughput": 1000, "storageGiB": 4800},
        "workers": [{**GROUP, "instanceType": "ml.trn2.48xlarge"}],
    },
    "more EFA connections than a file system takes": {
        "fsx": {"efa": True, "throughput": 1000, "storageGiB": 4800},
        "workers": [{**GROUP, "instanceType": "ml.p5.48xlarge", "count": 129}],
    },
    "retained file system in our VPC": {"fsx": {"retainOnDelete": True}},
    "existing file system in our VPC": {"fsx": {"fileSystemId": "fs-0123456789abcdef0"}},
    "size of an existing file system": {
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
    "overlapping blocks": {"network": {"cidr": "10.0.0.0/16", "secondaryCidr": "10.0.128.0/20"}},
    "block too small for the subnets": {"network": {"cidr": "10.0.0.0/24"}},
    "block too small for the nodes": {
        "network": {"secondaryCidr": "10.1.0.0/28"},
        "workers": [{"name": "w", "instanceType": "ml.p5.48xlarge"}],
    },
    "block too small for the pods": {**EKS, "network": {"secondaryCidr": "10.1.0.0/26"}},
    "block too small for the file servers": {"network": {"secondaryCidr": "10.1.0.0/27"}, "fsx": {"storageGiB": 48000}},
    "not a block": {"network": {"cidr": "10.0.0.1/16"}},
    "blocks AWS will not join": {"network": {"secondaryCidr": "172.16.0.0/16"}},
    "a private block beside a shared one": {"network": {"cidr": "100.64.0.0/16", "secondaryCidr": "10.1.0.0/16"}},
    "the first block of its range as the second": {"network": {"cidr": "10.1.0.0/16", "secondaryCidr": "10.0.0.0/16"}},
    "the block of default VPCs as the second": {"network": {"cidr": "172.16.0.0/16", "secondaryCidr": "172.31.0.0/16"}},
    "the block of AWS's services as the second": {
        "network": {"cidr": "100.64.0.0/16", "secondaryCidr": "198.19.0.0/16"}
    },
    "link-local addresses": {"network": {"cidr": "169.254.0.0/16"}},
    "half an existing network": {"network": {"vpcId": "vpc-0123456789abcdef0"}},
    "half an existing network for EKS": {**EKS, "network": VPC},
    "one subnet for EKS": {**EKS, "network": {**VPC, "eksSubnetIds": ["subnet-0123456789abcdef0"]}},
    "a part of an existing network": {
        **EKS,
        "network": {key: ids for key, ids in WHOLE.items() if key.endswith("Ids")},
    },
    "egress of an existing network": {"network": {**VPC, "egress": "vpc-only"}},
    "ports of an existing network": {"network": {**VPC, "egress": "open-all"}},
    "blocks of an existing network": {"network": {**VPC, "cidr": "10.0.0.0/16", "secondaryCidr": "10.1.0.0/16"}},
    "block larger than AWS allows": {"network": {"cidr": "10.0.0.0/8"}},
    "ids that are none": {"network": {"vpcId": "mine", "privateSubnetId": "mine", "securityGroupIds": ["mine"]}},
    "a public registry": {**EKS, "network": {"egress": "vpc-only", "imageRegistry": "public.ecr.aws/mirror"}},
    "Neuron's device plugin in a closed network": {
        **EKS,
        "accelerator": "trainium",
        "workers": [{**GROUP, "instanceType": "ml.trn1.32xlarge"}],
        "network": {"egress": "vpc-only", "imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"},
    },
    "bad subnet id": {
        "network": {
            "vpcId": "vpc-0123456789abcdef0",
            "privateSubnetId": "subnet-1",
            "securityGroupIds": ["sg-0123456789abcdef0"],
        }
    },
    "registry of charts' images with Slurm": {
        "network": {"egress": "vpc-only", "imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"}
    },
    "EKS's subnets with Slurm": {
        "network": {"vpcId": "vpc-0123456789abcdef0", "eksSubnetIds": ["subnet-0123456789abcdef0"]}
    },
    "block too small for the login nodes": {
        "network": {"secondaryCidr": "10.1.0.0/28"},
        "login": {"instanceType": "ml.m5.large", "count": 20},
    },
    "encryption key of another region": {
        "security": {"kmsKey": "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab"}
    },
    "encryption key by its alias": {"security": {"kmsKey": "arn:aws:kms:us-west-2:123456789012:alias/mine"}},
    "encryption key for volumes that HyperPod does not encrypt": {
        "security": {"kmsKey": "create"},
        "nodeProvisioning": "",
    },
    "a key that has another name now": {"network": {"closed": True}},
    "trusted by no endpoint": {"network": {"trusted": ["210987654321"]}},
    "trusted by a name": {"network": {"egress": "vpc-only", "trusted": ["research"]}},
    "closed EKS without images": {**EKS, "network": {"egress": "vpc-only"}},
    "zone without EKS": {**EKS, "region": "us-east-1", "availabilityZoneId": "use1-az3"},
}


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
