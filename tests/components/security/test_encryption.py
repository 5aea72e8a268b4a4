"""A customer key encrypts everything that a stack stores, and nobody gets more of it than that takes."""

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest

from components.common.context import Context
from components.estimates.cost import quantities
from components.security.encryption import Encryption, EncryptionArgs, key_problems
from operations.engine.state import State
from rehearsal.account import Account
from rehearsal.account.grants import granted
from rehearsal.account.policies import listed
from rehearsal.engines.deployment import up
from rehearsal.existing import prepare
from tests.components.mocks import made
from tests.golden.stacks import GOVCLOUD_KEY, state_of
from tests.support import config, few_files, of_type, one, project

GIVEN = "arn:aws:kms:us-west-2:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
# Every type that stores something at rest, with where its key is. StorageClass: what its driver makes.
ENCRYPTED = {
    "lustreFileSystem:LustreFileSystem": "kmsKeyId",
    "openZfsFileSystem:OpenZfsFileSystem": "kmsKeyId",
    "logGroup:LogGroup": "kmsKeyId",
    "repository:Repository": "encryptionConfigurations.0.kmsKey",
    "amp/workspace:Workspace": "kmsKeyArn",
    "sns/topic:Topic": "kmsMasterKeyId",
    "BucketServerSideEncryptionConfiguration": "rules.0.applyServerSideEncryptionByDefault.kmsMasterKeyId",
    "eks/cluster:Cluster": "encryptionConfig.provider.keyArn",
    "StorageClass": "parameters.kmsKeyId",
}


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def volumes(state: State) -> list[list[dict[str, Any]]]:
    groups = one(state, "hyperpod-cluster").inputs["instanceGroups"]
    return [[storage["ebsVolumeConfig"] for storage in group["instanceStorageConfigs"]] for group in groups]


@pytest.mark.parametrize("kind", ENCRYPTED)
def test_everything_at_rest_is_encrypted_with_the_key_of_the_stack(kind: str) -> None:
    state = state_of("slurm-govcloud" if "openZfs" in kind else "eks-spot")
    key = GOVCLOUD_KEY if "openZfs" in kind else one(state, "encryption-key").outputs["arn"]
    found = of_type(state, kind)
    assert found
    assert [resource.name for resource in found if at(resource.inputs, ENCRYPTED[kind]) != key] == []


@pytest.mark.parametrize("stack", ["eks-spot", "slurm-govcloud"])
def test_both_volumes_of_every_node_are_encrypted_with_the_key(stack: str) -> None:
    state = state_of(stack)
    key = GOVCLOUD_KEY if stack == "slurm-govcloud" else one(state, "encryption-key").outputs["arn"]
    for data, root in volumes(state):
        assert data == {"volumeSizeInGb": data["volumeSizeInGb"], "volumeKmsKeyId": key}
        assert root == {"rootVolume": True, "volumeKmsKeyId": key}


def test_a_given_key_is_used_and_none_is_made() -> None:
    state = state_of("slurm-govcloud")
    assert not of_type(state, "kms/key:Key")
    assert {group.inputs["kmsKeyId"] for group in of_type(state, "LogGroup")} == {GOVCLOUD_KEY}
    assert one(state, "storage-lustre").inputs["kmsKeyId"] == GOVCLOUD_KEY


@pytest.mark.parametrize("kept", [True, False])
def test_the_key_stays_as_long_as_what_it_encrypts(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack's own protection, and a file system that outlives the stack."""
    kind = Mock(return_value=Mock(arn="arn"))
    monkeypatch.setattr("pulumi_aws.kms.Key", kind)

    def key(context: Context) -> None:
        Encryption("encryption", EncryptionArgs(context=context, retained=kept, notified=False))

    made(config("dev", protect=kept), key)
    options = kind.call_args.kwargs["opts"]
    assert (options.protect, options.retain_on_delete) == (kept, kept)


LOGS = "logs.us-west-2.amazonaws.com"
GROUP = "arn:aws:logs:us-west-2:123456789012:log-group:"


@pytest.mark.parametrize(
    ("service", "group", "may"),
    [
        (LOGS, "/aws/eks/eks-trainium/cluster", True),
        (LOGS, "/hyperpod/eks-trainium/flow-logs", True),
        (LOGS, "/aws/events/hyperpod/eks-trainium", True),
        (LOGS, "/aws/eks/another/cluster", False),
        ("logs.us-east-1.amazonaws.com", "/aws/eks/eks-trainium/cluster", False),
        ("s3.amazonaws.com", "/aws/eks/eks-trainium/cluster", False),
    ],
)
def test_the_keys_policy_lets_cloudwatch_logs_in_for_the_stacks_own_groups(service: str, group: str, may: bool) -> None:
    policy = json.loads(one(state_of("eks-spot"), "encryption-key").inputs["policy"])
    own = [one for one in listed(policy["Statement"]) if one["Principal"].get("Service") == service]
    context = {"kms:EncryptionContext:aws:logs:arn": f"{GROUP}{group}"}
    for action in ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey"):
        assert granted(own, (), action, "*", context) == may
    assert not granted(own, (), "kms:ScheduleKeyDeletion", "*", context)


# A role's use of the key: the service that asks for it, the action, whether the grant is for AWS's own use, and whether
# the role may. Sources: SageMaker Developer Guide, "Customer managed AWS KMS key encryption for SageMaker HyperPod" and
# "Using the Amazon EBS CSI driver on SageMaker HyperPod EKS clusters".
USE: list[tuple[str, str | None, str, str, bool]] = [
    ("identity-worker", "sagemaker", "kms:CreateGrant", "true", True),
    ("identity-worker", "sagemaker", "kms:CreateGrant", "false", False),
    ("identity-worker", None, "kms:CreateGrant", "true", False),
    ("identity-worker", "sagemaker", "kms:DescribeKey", "", True),
    ("identity-worker", "s3", "kms:Decrypt", "", True),
    ("identity-worker", None, "kms:Decrypt", "", False),
    ("identity-worker", "s3", "kms:GenerateDataKey", "", False),
    ("eks-addons-ebs-csi", "ec2", "kms:CreateGrant", "true", True),
    ("eks-addons-ebs-csi", "ec2", "kms:GenerateDataKeyWithoutPlaintext", "", True),
    ("eks-addons-ebs-csi", None, "kms:Decrypt", "", False),
    ("eks-addons-fsx-csi", "fsx", "kms:CreateGrant", "true", True),
    ("eks-addons-fsx-csi", "ec2", "kms:CreateGrant", "true", False),
    ("eks-addons-vpc-cni", "ec2", "kms:CreateGrant", "true", False),
    ("network-flow-logs", "logs", "kms:GenerateDataKey", "", True),
    ("network-flow-logs", "logs", "kms:DescribeKey", "", True),
    ("network-flow-logs", None, "kms:GenerateDataKey", "", False),
    ("identity-worker", "logs", "kms:GenerateDataKey", "", False),
]
# Where sessions are recorded, nodes send metrics, and Grafana reads both. Amazon Managed Service for Prometheus User
# Guide, "Encryption at rest", step 3.
RECORDED: list[tuple[str, str | None, str, str, bool]] = [
    ("identity-controller", "logs", "kms:GenerateDataKey", "", True),
    ("identity-controller", "s3", "kms:GenerateDataKey", "", False),
    ("observability-grafana", "logs", "kms:Decrypt", "", True),
    ("observability-grafana", "s3", "kms:Decrypt", "", False),
    ("observability-grafana", "aps", "kms:Decrypt", "", True),
    ("identity-login-metrics", "aps", "kms:GenerateDataKey", "", True),
    ("identity-login-metrics", None, "kms:GenerateDataKey", "", False),
    ("identity-login-metrics", "aps", "kms:CreateGrant", "true", False),
]


@pytest.mark.parametrize(
    ("stack", "role", "service", "action", "grant", "may"),
    [*(("eks-spot", *row) for row in USE), *(("slurm-closed", *row) for row in RECORDED)],
)
def test_a_role_uses_the_key_through_its_service_alone(
    stack: str, role: str, service: str | None, action: str, grant: str, may: bool
) -> None:
    state = state_of(stack)
    statements = listed(json.loads(one(state, role, "RolePolicy").inputs["policy"])["Statement"])
    context = {"kms:GrantIsForAWSResource": grant} if grant else {}
    if service:
        context["kms:ViaService"] = f"{service}.us-west-2.amazonaws.com"
    key = one(state, "encryption-key").outputs["arn"]
    assert granted(statements, (), action, key, context) == may
    assert not granted(statements, (), action, GIVEN, context)


OTHERS = GIVEN.replace("123456789012", "210987654321")
# The given key, what KMS answers, and what is said.
BAD: dict[str, tuple[str, dict[str, str] | Exception]] = {
    "a key that is not enabled": (GIVEN, {"key_state": "PendingDeletion"}),
    "a key that signs": (GIVEN, {"key_usage": "SIGN_VERIFY"}),
    "a key pair": (GIVEN, {"customer_master_key_spec": "RSA_4096"}),
    "a key of AWS's": (GIVEN, {"key_manager": "AWS"}),
    "no key": (GIVEN, LookupError("NotFoundException")),
    "a key of another account": (OTHERS, {}),
}


def told(given: tuple[str, dict[str, str] | Exception]) -> list[str]:
    """What is said of a key of which KMS answers that."""
    key, answer = given
    good = {"key_manager": "CUSTOMER", "key_state": "Enabled", "key_usage": "ENCRYPT_DECRYPT"}
    good["customer_master_key_spec"] = "SYMMETRIC_DEFAULT"
    found = [answer] if isinstance(answer, Exception) else [SimpleNamespace(**good | answer)]
    with patch("pulumi_aws.kms.get_key", Mock(side_effect=found)):
        chosen = config("dev", security={"kmsKey": key})
        return [str(problem) for problem in key_problems(chosen.settings.security.kms_key, "123456789012")]


def test_a_given_key_that_can_encrypt_is_taken() -> None:
    assert told((GIVEN, {})) == []


def test_a_given_key_that_is_not_there_stops_the_program() -> None:
    with Account("us-west-2") as account, pytest.raises(Exception, match="KMS does not describe arn:aws:kms:us-west-2"):
        up(project("dev", security={"kmsKey": GIVEN}), account, preview=True)


@pytest.mark.parametrize(
    ("stack", "key", "made"),
    [("dev", "", 0), ("dev", "create", 1), ("dev", GIVEN, 0), ("eks-gpu", "", 1), ("eks-gpu", GIVEN, 0)],
)
def test_the_estimate_counts_the_keys_that_the_stack_makes(stack: str, key: str, made: int) -> None:
    security = {"security": {"kmsKey": key}} if key else {}
    held = quantities(config(stack, **security))
    assert held.get("KMS key", {}).get("kms_key", 0) == made


def test_an_existing_role_and_a_given_key_are_taken_together() -> None:
    chosen = {
        "security": {"kmsKey": GIVEN},
        "existingRoleArn": "arn:aws:iam::123456789012:role/team/hyperpod",
    }
    with Account("us-west-2") as account, few_files():
        prepare(account, config("dev", **chosen))
        assert up(project("dev", **chosen), account).failure == ""
