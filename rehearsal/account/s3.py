"""S3 in moto. Bucket policies stay in the books, because moto ignores their conditions and would refuse everything."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pulumi
from moto.core.exceptions import ServiceException
from moto.s3.models import s3_backends

from .books import Books, Inputs, Live, Refused
from .kinds import Change, Create, Kind, register

_NAME = re.compile(r"(?!xn--|sthree-|\d+\.\d+\.\d+\.\d+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def _bucket(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    name = i["bucket"]
    if not _NAME.fullmatch(name) or ".." in name:
        raise Refused("InvalidBucketName", f"the specified bucket is not valid: {name}")
    place = (
        {} if account.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": account.region}}
    )
    account.client("s3").create_bucket(Bucket=name, **place)
    _tag(account, name, i)
    arn = f"arn:{account.partition}:s3:::{name}"
    return name, {"arn": arn, "bucketDomainName": f"{name}.s3.amazonaws.com", "bucketRegion": account.region}


def _tag(account: Books, name: str, i: Inputs) -> None:
    """PutBucketTagging, which replaces all tags."""
    tags = i.get("tagsAll") or i.get("tags") or {}
    pairs = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    if pairs:
        account.client("s3").put_bucket_tagging(Bucket=name, Tagging={"TagSet": pairs})
    else:
        account.client("s3").delete_bucket_tagging(Bucket=name)


def _update_bucket(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    _tag(account, live.id, i)
    return {}


def _delete_bucket(account: Books, live: Live) -> None:
    s3 = account.client("s3")
    if live.inputs.get("forceDestroy"):
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=live.id):
            for entry in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                s3.delete_object(Bucket=live.id, Key=entry["Key"], VersionId=entry["VersionId"])
    s3.delete_bucket(Bucket=live.id)


def _exists(account: Books, bucket: str) -> None:
    account.client("s3").head_bucket(Bucket=bucket)


def _setting(put: str, delete: str | None, request: Any) -> tuple[Any, Any]:
    """A bucket's setting: how to put it, how to remove it, and the request built from the inputs."""

    def create(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
        getattr(account.client("s3"), put)(Bucket=i["bucket"], **request(i))
        return i["bucket"], {}

    def remove(account: Books, live: Live) -> None:
        if delete:
            getattr(account.client("s3"), delete)(Bucket=live.inputs["bucket"])

    return create, remove


def _put_again(create: Create) -> Change:
    """S3 cannot update a setting: putting it again replaces it."""
    return lambda account, live, i: create(account, i)[1]


def _encryption(i: Inputs) -> dict[str, Any]:
    rules = []
    for rule in i["rules"]:
        default = rule["applyServerSideEncryptionByDefault"]
        key = {"KMSMasterKeyID": default["kmsMasterKeyId"]} if default.get("kmsMasterKeyId") else {}
        applied = {"SSEAlgorithm": default["sseAlgorithm"], **key}
        rules.append(
            {"ApplyServerSideEncryptionByDefault": applied, "BucketKeyEnabled": bool(rule.get("bucketKeyEnabled"))}
        )
    return {"ServerSideEncryptionConfiguration": {"Rules": rules}}


def _logging(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    _exists(account, i["bucket"])
    enabled = {"TargetBucket": i["targetBucket"], "TargetPrefix": i["targetPrefix"]}
    account.client("s3").put_bucket_logging(Bucket=i["bucket"], BucketLoggingStatus={"LoggingEnabled": enabled})
    return i["bucket"], {}


def _no_logging(account: Books, live: Live) -> None:
    account.client("s3").put_bucket_logging(Bucket=live.inputs["bucket"], BucketLoggingStatus={})


def _public_access(i: Inputs) -> dict[str, Any]:
    keys = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    return {"PublicAccessBlockConfiguration": {key[0].upper() + key[1:]: bool(i.get(key)) for key in keys}}


def _expiry(i: Inputs) -> dict[str, Any]:
    rules = [
        {
            "ID": rule["id"],
            "Status": rule["status"],
            "Filter": {"Prefix": rule.get("filter", {}).get("prefix", "")},
            **(
                {"NoncurrentVersionExpiration": {"NoncurrentDays": int(old["noncurrentDays"])}}
                if (old := rule.get("noncurrentVersionExpiration"))
                else {}
            ),
            "AbortIncompleteMultipartUpload": {
                "DaysAfterInitiation": int(rule["abortIncompleteMultipartUpload"]["daysAfterInitiation"])
            },
        }
        for rule in i["rules"]
    ]
    return {"LifecycleConfiguration": {"Rules": rules}}


def _policy(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    _exists(account, i["bucket"])
    try:
        statements = json.loads(i["policy"])["Statement"]
    except (ValueError, KeyError) as error:
        raise Refused("MalformedPolicy", f"not a policy document ({error})") from error
    own = f"arn:{account.partition}:s3:::{i['bucket']}"
    for statement in statements:
        resources = statement.get("Resource", [])
        for resource in [resources] if isinstance(resources, str) else resources:
            if resource != own and not resource.startswith(f"{own}/"):
                raise Refused("MalformedPolicy", f"policy has invalid resource {resource}")
    return i["bucket"], {}


def body(source: Any) -> bytes:
    """An asset's content."""
    if isinstance(source, pulumi.FileAsset):
        return Path(source.path).read_bytes()
    if isinstance(source, pulumi.StringAsset):
        return source.text.encode(errors="surrogateescape")
    raise Refused("InvalidArgument", f"an object's source cannot be {type(source).__name__}")


def _content(i: Inputs) -> bytes:
    if i.get("source") is not None:
        return body(i["source"])
    return base64.b64decode(i["contentBase64"]) if i.get("contentBase64") else str(i.get("content", "")).encode()


def _objects(account: Books) -> Any:
    """moto's books of objects. They are more than half of a stack, and five milliseconds each as requests."""
    return s3_backends[account.account_id][account.partition]


def _put(account: Books, i: Inputs) -> dict[str, Any]:
    content = _content(i)
    account.show("s3", "PutObject", Bucket=i["bucket"], Key=i["key"], Body=content)
    try:
        made = _objects(account).put_object(i["bucket"], i["key"], content)
    except ServiceException as error:
        raise Refused(error.code, error.message) from error
    version = made.response_dict.get("x-amz-version-id", "")
    return {"etag": hashlib.md5(content, usedforsecurity=False).hexdigest(), "versionId": version}


def _object(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    return f"{i['bucket']}/{i['key']}", _put(account, i)


def _delete_object(account: Books, live: Live) -> None:
    """pulumi-aws deletes every version of an object, and its markers."""
    books, bucket, key = _objects(account), live.inputs["bucket"], live.inputs["key"]
    account.show("s3", "ListObjectVersions", Bucket=bucket, Prefix=key)
    for version in list(books.get_bucket(bucket).keys.getlist(key, [])):
        account.show("s3", "DeleteObject", Bucket=bucket, Key=key, VersionId=version.version_id)
        books.delete_object(bucket, key, version_id=version.version_id)


def _register_kinds() -> None:
    """Make the S3 types known."""
    register(Kind("aws:s3/bucket:Bucket", _bucket, _delete_bucket, _update_bucket))
    versioning = _setting(
        "put_bucket_versioning",
        None,
        lambda i: {"VersioningConfiguration": {"Status": i["versioningConfiguration"]["status"]}},
    )
    register(Kind("aws:s3/bucketLogging:BucketLogging", _logging, _no_logging, _put_again(_logging)))
    settings = {
        "bucketVersioning:BucketVersioning": versioning,
        "bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _setting(
            "put_bucket_encryption", "delete_bucket_encryption", _encryption
        ),
        "bucketPublicAccessBlock:BucketPublicAccessBlock": _setting(
            "put_public_access_block", "delete_public_access_block", _public_access
        ),
        "bucketLifecycleConfiguration:BucketLifecycleConfiguration": _setting(
            "put_bucket_lifecycle_configuration", "delete_bucket_lifecycle", _expiry
        ),
    }
    for token, (create, delete) in settings.items():
        register(Kind(f"aws:s3/{token}", create, delete, _put_again(create)))
    register(
        Kind(
            "aws:s3/bucketPolicy:BucketPolicy",
            _policy,
            lambda account, live: None,
            lambda account, live, i: _policy(account, i)[1],
        )
    )
    register(
        Kind("aws:s3/bucketObjectv2:BucketObjectv2", _object, _delete_object, lambda account, live, i: _put(account, i))
    )


_register_kinds()
