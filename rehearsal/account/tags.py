"""The number of tags that AWS accepts."""

from .books import Inputs, Refused

# Tagging AWS Resources and Tag Editor User Guide, "Tag naming limits and requirements".
_LIMIT = 50
# Amazon S3 User Guide, "Categorizing your objects using tags"; the message is PutObjectTagging's.
_OBJECT = "aws:s3/bucketObjectv2:BucketObjectv2"
_OBJECT_LIMIT = 10


def check_tags(token: str, inputs: Inputs) -> None:
    """Raise Refused if a resource of this type cannot have that many tags."""
    count = len(inputs.get("tagsAll") or inputs.get("tags") or ())
    if token == _OBJECT and count > _OBJECT_LIMIT:
        raise Refused("BadRequest", f"Object tags cannot be greater than {_OBJECT_LIMIT}")
    if count > _LIMIT:
        raise Refused(
            "TagLimitExceeded", f"the maximum number of tags for a resource is {_LIMIT}, and these are {count}"
        )
