"""What VPC endpoints allow: if a VPC has one for a service, every call to the service leaves through that endpoint.

AWS PrivateLink guide, "Control access to VPC endpoints using endpoint policies": the endpoint's policy must allow the
call, in addition to the caller's policies; without a policy every call is allowed.
"""

import json
from collections.abc import Mapping

from .books import Books
from .grants import granted
from .policies import listed

_ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
# Endpoints whose name differs from the prefix of their service's actions (AWS PrivateLink guide, "AWS services that
# integrate with AWS PrivateLink").
_NAMES: Mapping[str, str] = {
    "aps": "aps-workspaces",
    "ecr": "ecr.api",
    "cloudwatch": "monitoring",
    "sagemaker": "sagemaker.api",
}


def blocks(account: Books, action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Whether an endpoint of the account refuses the call, by its caller and the owner of the resource.

    ``context`` has the condition keys of the call; an unsigned call has no ``aws:PrincipalAccount``.
    """
    prefix = action.split(":")[0]
    suffix = f".{account.region}.{_NAMES.get(prefix, prefix)}"
    about = {"aws:PrincipalIsAWSService": "false", **context}
    if owner := _owner(account, resource):
        about["aws:ResourceAccount"] = owner
    return any(
        not granted(listed(json.loads(endpoint.inputs["policy"])["Statement"]), (), action, resource, about)
        for endpoint in account.find(_ENDPOINT)
        if endpoint.inputs["serviceName"].endswith(suffix) and endpoint.inputs.get("policy")
    )


def _owner(account: Books, resource: str) -> str | None:
    """The account of a resource. A bucket's ARN does not name it, so only the account's own buckets are known."""
    if resource == "*":
        return account.account_id
    if resource.startswith(f"arn:{account.partition}:s3:::"):
        bucket = resource.split(":::")[1].split("/")[0]
        return account.account_id if ("aws:s3/bucket:Bucket", bucket) in account.live else None
    return resource.split(":")[4] or None
