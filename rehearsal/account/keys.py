"""KMS keys: whether those who encrypt with one may, by the key's policy and by their own."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .books import Books, Live, Refused
from .grants import granted
from .policies import listed

KEY = "aws:kms/key:Key"


def key_of(account: Books, arn: str) -> Live | None:
    """The key with this ARN, if there is one."""
    return next((key for key in account.find(KEY) if key.outputs["arn"] == arn), None)


def check_logs(account: Books, key: str, group: str) -> None:
    """CloudWatch Logs User Guide, "Encrypt log data in CloudWatch Logs using AWS KMS": the service has no identity in
    the account, so the key's own policy must let it in. That of a key from before the stack is not known here."""
    found = key_of(account, key)
    if found is None or not found.inputs.get("policy"):
        return
    service = f"logs.{account.region}.amazonaws.com"
    statements = [
        one
        for one in listed(json.loads(found.inputs["policy"])["Statement"])
        if service in listed(one.get("Principal", {}).get("Service", []))
    ]
    context = {"kms:EncryptionContext:aws:logs:arn": group}
    for action in ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey", "kms:DescribeKey"):
        if not granted(statements, (), action, key, context):
            raise Refused(
                "InvalidParameterException",
                f"The specified KMS Key Id could not be found or is not allowed to be used: {service} may not {action}",
            )


def check_volumes(account: Books, group: Mapping[str, Any], role: Iterable[Mapping[str, Any]]) -> None:
    """SageMaker Developer Guide, "Customer managed AWS KMS key encryption for SageMaker HyperPod": a size for the data
    volume alone, and grants that the group's role makes through SageMaker. Only with continuous provisioning, which new
    clusters have: its example asks for no mode."""
    configs = group.get("instanceStorageConfigs") or []
    volumes = [one["ebsVolumeConfig"] for one in configs if one.get("ebsVolumeConfig")]
    if len({bool(volume.get("rootVolume")) for volume in volumes}) != len(volumes):
        raise Refused("ValidationException", "a group has at most one root volume and one secondary volume")
    for volume in volumes:
        root, key = volume.get("rootVolume"), volume.get("volumeKmsKeyId")
        if root and (volume.get("volumeSizeInGb") or not key):
            raise Refused("ValidationException", "a RootVolume has VolumeKmsKeyId and no VolumeSizeInGB")
        if key:
            _check_role(account, key, "sagemaker", ("kms:CreateGrant", "kms:DescribeKey"), role)


def keys_of(account: Books, bucket: str) -> list[str]:
    """The keys that a bucket's objects are encrypted with."""
    kind = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
    rules = [rule for one in account.find(kind, bucket=bucket) for rule in one.inputs["rules"]]
    found = [rule["applyServerSideEncryptionByDefault"].get("kmsMasterKeyId") for rule in rules]
    return [key for key in found if key]


def check_bucket(account: Books, bucket: str, role: Iterable[Mapping[str, Any]]) -> None:
    """Amazon S3 User Guide, "Using server-side encryption with AWS KMS keys": who reads an object decrypts its key."""
    for key in keys_of(account, bucket):
        _check_role(account, key, "s3", ("kms:Decrypt",), role)


def _check_role(
    account: Books, key: str, service: str, actions: Iterable[str], role: Iterable[Mapping[str, Any]]
) -> None:
    context = {
        "kms:ViaService": f"{service}.{account.region}.amazonaws.com",
        "kms:GrantIsForAWSResource": "true",
        "aws:PrincipalAccount": account.account_id,
    }
    for action in actions:
        if not granted(role, (), action, key, context):
            raise Refused("AccessDeniedException", f"the execution role may not {action} on {key} through {service}")
