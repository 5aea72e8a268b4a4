"""Checks that existing buckets are there before anything is created."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi_aws as aws

from ..schema.problems import Problem

# S3's answers to HeadBucket for a missing bucket, and for one in another region.
_MISSING, _MOVED = ("couldn't find resource", "StatusCode: 404", "NoSuchBucket"), ("StatusCode: 301",)


def bucket_problems(key: str, bucket: str, here: str, *, imported: bool) -> Iterator[Problem]:
    """Report that a key's bucket does not exist or, where FSx imports from it, is in another region than ``here``.

    FSx imports changes only within a region (FSx for Lustre User Guide, "Region and account support for linked S3
    buckets"). A bucket that the caller may not read can belong to another account.
    """
    fix = f"a bucket in {here}"
    try:
        there = aws.s3.get_bucket(bucket=bucket).bucket_region
    except Exception as refused:  # Any error of the provider.
        text = str(refused)
        if any(word in text for word in _MISSING):
            yield Problem(key=key, what=f"there is no bucket {bucket}", fix=fix)
        elif imported and any(word in text for word in _MOVED):
            yield Problem(key=key, what=f"{bucket} is not in {here}, and FSx imports only from there", fix=fix)
        return
    if imported and there != here:
        yield Problem(key=key, what=f"{bucket} is in {there}, and FSx imports only from {here}", fix=fix)
