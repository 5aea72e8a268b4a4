"""Checks the bucket that is linked to the file system before anything is created."""

from collections.abc import Iterator

import pulumi_aws as aws

from ..schema.problems import Problem

_BUCKET = "hyperpod:fsx.linkedBucket"


# S3's answers to HeadBucket for a missing bucket, and for one in another region.
_MISSING, _MOVED = ("couldn't find resource", "StatusCode: 404", "NoSuchBucket"), ("StatusCode: 301",)


def bucket_problems(bucket: str | None, here: str) -> Iterator[Problem]:
    """Report a linked bucket that does not exist, or is in another region than ``here``, the file system's.

    Its changes are imported, which is possible only within a region (FSx for Lustre User Guide, "Region and account
    support for linked S3 buckets"). A bucket that the caller may not read can belong to another account.
    """
    if not bucket:
        return
    fix = f"a bucket in {here}"
    try:
        there = aws.s3.get_bucket(bucket=bucket).bucket_region
    except Exception as refused:  # Any error of the provider.
        text = str(refused)
        if any(word in text for word in _MISSING):
            yield Problem(key=_BUCKET, what=f"there is no bucket {bucket}", fix=fix)
        elif any(word in text for word in _MOVED):
            yield Problem(key=_BUCKET, what=f"{bucket} is not in {here}, and FSx imports only from there", fix=fix)
        return
    if there != here:
        yield Problem(key=_BUCKET, what=f"{bucket} is in {there}, and FSx imports only from {here}", fix=fix)
