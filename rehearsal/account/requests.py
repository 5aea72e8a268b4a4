"""Which action of IAM a request to a service needs."""

from functools import cache

import botocore.session

from .authorization import Action, actions, operations

# Amazon S3 User Guide, "Required permissions for Amazon S3 API operations": operations that the reference lacks.
_S3 = {
    "ListBuckets": "ListAllMyBuckets",
    "ListObjects": "ListBucket",
    "HeadBucket": "ListBucket",
    "HeadObject": "GetObject",
    "ListObjectVersions": "ListBucketVersions",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    "DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "DeleteBucketEncryption": "PutEncryptionConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "DeleteBucketLifecycle": "PutLifecycleConfiguration",
}

# Service Authorization Reference, "Actions, resources, and condition keys for Amazon Resource Group Tagging API".
_PREFIXES = {"resourcegroupstaggingapi": "tag"}


@cache
def action_of(service: str, operation: str) -> Action:
    """The action that an operation needs. If the reference has none: one of that name, without resource types.

    ``service`` is botocore's name.
    """
    prefix = _prefix(service)
    name = (_S3.get(operation) if prefix == "s3" else None) or operations(prefix).get(operation, operation)
    found = actions(f"{prefix}:{name}")
    return found[0] if found else Action(f"{prefix}:{name}", operation, (), frozenset())


@cache
def _prefix(service: str) -> str:
    """A service's IAM prefix: its signing name, its own name, or neither."""
    if service in _PREFIXES:
        return _PREFIXES[service]
    signed: str = botocore.session.get_session().get_service_model(service).signing_name
    return signed if actions(f"{signed}:*") else service
