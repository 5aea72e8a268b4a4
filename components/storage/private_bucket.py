"""The settings that every bucket of a stack has: nobody else reads it, nothing in it is plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi_aws as aws
from pulumi import Input, Output, ResourceOptions

# An upload that a lost connection cut short costs storage until somebody ends it.
UNFINISHED_DAYS = 7


def close(
    name: str, bucket: aws.s3.Bucket, policy: Input[str], opts: ResourceOptions
) -> tuple[aws.s3.BucketPublicAccessBlock, aws.s3.BucketPolicy]:
    """Refuse public access to a bucket, whatever its policy and its objects' say, and give it its policy."""
    closed = aws.s3.BucketPublicAccessBlock(
        f"{name}-private",
        bucket=bucket.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=opts,
    )
    return closed, aws.s3.BucketPolicy(
        f"{name}-policy",
        bucket=bucket.bucket,
        policy=policy,
        # Both change the bucket's policy status; S3 refuses one while the other is in progress.
        opts=ResourceOptions.merge(opts, ResourceOptions(depends_on=[closed])),
    )


def encrypt(
    name: str, bucket: aws.s3.Bucket, key: Output[str] | None, opts: ResourceOptions
) -> aws.s3.BucketServerSideEncryptionConfiguration:
    """Encrypt with the customer key and a bucket key, which saves a request to KMS for each object; otherwise with S3's
    own.
    """
    default = aws.s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs
    rule = aws.s3.BucketServerSideEncryptionConfigurationRuleArgs(
        apply_server_side_encryption_by_default=default(
            sse_algorithm="AES256" if key is None else "aws:kms", kms_master_key_id=key
        ),
        bucket_key_enabled=None if key is None else True,
    )
    return aws.s3.BucketServerSideEncryptionConfiguration(
        f"{name}-encryption", bucket=bucket.bucket, rules=[rule], opts=opts
    )


def tls_only(arns: Sequence[str]) -> Mapping[str, Any]:
    """Return the statement of a bucket's policy that denies requests without TLS."""
    return {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": list(arns),
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
