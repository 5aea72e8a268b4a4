"""The embedded account lets only those encrypt with a key who may, by AWS's guides."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest

from operations.engine.state import HYPERPOD_CLUSTER
from rehearsal.account import Account, Refused
from rehearsal.engines.deployment import Deployment
from tests.golden.stacks import account_of, deployed
from tests.support import one

GIVEN = "arn:aws:kms:us-west-2:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


@pytest.fixture(scope="module")
def encrypted() -> Iterator[tuple[Account, Deployment]]:
    with account_of("eks-spot") as account:
        yield account, deployed("eks-spot")


def cluster(encrypted: tuple[Account, Deployment], **changes: Any) -> str:
    """What the account says to another cluster like the one that is there."""
    account, deployment = encrypted
    there = one(deployment.state, "hyperpod-cluster")
    with patch.dict(account.live[HYPERPOD_CLUSTER, there.id].inputs, clusterName="elsewhere"):
        try:
            made, _ = account.create(HYPERPOD_CLUSTER, "probe", {**there.inputs, **changes}, at=10_000)
        except Refused as refused:
            return str(refused)
    del account.live[HYPERPOD_CLUSTER, made]
    return ""


def groups(encrypted: tuple[Account, Deployment], *volumes: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups of the cluster, with these volumes."""
    there: list[dict[str, Any]] = deepcopy(one(encrypted[1].state, "hyperpod-cluster").inputs["instanceGroups"])
    for group in there:
        group["instanceStorageConfigs"] = [{"ebsVolumeConfig": volume} for volume in volumes]
    return there


def test_volumes_are_encrypted_in_a_cluster_that_asks_for_no_mode(encrypted: tuple[Account, Deployment]) -> None:
    assert cluster(encrypted, nodeProvisioningMode=None) == ""


@pytest.mark.parametrize(
    ("volumes", "said"),
    [
        ([{"rootVolume": True}], "a RootVolume has VolumeKmsKeyId and no VolumeSizeInGB"),
        ([{"rootVolume": True, "volumeKmsKeyId": "KEY", "volumeSizeInGb": 100}], "no VolumeSizeInGB"),
        ([{"volumeSizeInGb": 100}, {"volumeSizeInGb": 100}], "at most one root volume and one secondary"),
    ],
)
def test_a_root_volume_has_a_key_and_no_size(
    encrypted: tuple[Account, Deployment], volumes: list[dict[str, Any]], said: str
) -> None:
    key = one(encrypted[1].state, "encryption-key").outputs["arn"]
    named = [{name: key if value == "KEY" else value for name, value in volume.items()} for volume in volumes]
    assert said in cluster(encrypted, instanceGroups=groups(encrypted, *named))


@pytest.mark.parametrize(
    ("permission", "said"),
    [
        ("kms:CreateGrant", "may not kms:CreateGrant on .* through sagemaker"),
        ("kms:DescribeKey", "may not kms:DescribeKey on .* through sagemaker"),
        ("kms:Decrypt", "may not kms:Decrypt on .* through s3"),
    ],
)
def test_a_role_that_may_not_use_the_key_boots_no_node(
    encrypted: tuple[Account, Deployment], permission: str, said: str
) -> None:
    account, deployment = encrypted
    live = account.live["aws:iam/rolePolicy:RolePolicy", one(deployment.state, "identity-worker", "RolePolicy").id]
    with patch.dict(live.inputs, policy=live.inputs["policy"].replace(permission, "kms:ListKeys")):
        heard = cluster(encrypted)
    assert re.search(said, heard), heard


def test_a_groups_key_does_not_change(encrypted: tuple[Account, Deployment]) -> None:
    account, deployment = encrypted
    there = one(deployment.state, "hyperpod-cluster")
    changed = groups(encrypted, {"volumeSizeInGb": 500, "volumeKmsKeyId": GIVEN})
    account.adopt("aws:kms/key:Key", "other key", GIVEN.rsplit("/", 1)[1], {}, {"arn": GIVEN})
    with pytest.raises(Refused, match="the KMS key of instance group spot cannot be changed"):
        account.update(HYPERPOD_CLUSTER, there.id, {**there.inputs, "instanceGroups": changed})


def test_cloudwatch_logs_must_be_let_in_by_the_keys_own_policy(encrypted: tuple[Account, Deployment]) -> None:
    account, deployment = encrypted
    key = one(deployment.state, "encryption-key")
    wanted = {"kmsKeyId": key.outputs["arn"], "retentionInDays": 14}
    account.create("aws:cloudwatch/logGroup:LogGroup", "own", {**wanted, "name": "/hyperpod/eks-trainium/more"})
    with pytest.raises(Refused, match=r"logs\.us-west-2\.amazonaws\.com may not kms:Encrypt"):
        account.create("aws:cloudwatch/logGroup:LogGroup", "other", {**wanted, "name": "/somebody/elses"})
    live = account.live["aws:kms/key:Key", key.id]
    account_only = json.dumps(
        {"Version": "2012-10-17", "Statement": json.loads(live.inputs["policy"])["Statement"][:1]}
    )
    with patch.dict(live.inputs, policy=account_only), pytest.raises(Refused, match="is not allowed to be used"):
        account.create("aws:cloudwatch/logGroup:LogGroup", "more", {**wanted, "name": "/hyperpod/eks-trainium/last"})
