"""The policies of a closed network's VPC endpoints: without one, an endpoint reaches every account.

The statements are those of AWS's own examples (github.com/aws-samples/data-perimeter-policy-examples,
vpc_endpoint_policies): from our identities to our resources, AWS's services, and the few resources of AWS that nodes
need. A policy allows nothing by itself: roles, buckets and repositories decide as before.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from ..common.context import Context
from ..common.policies import Statement, allow, document
from ..identity.roles import PULL_ACTIONS
from .keys import NetworkConfig

# The prefix of a service's actions, where it is not the endpoint's name (AWS PrivateLink guide, "AWS services that
# integrate with AWS PrivateLink"; Service Authorization Reference).
_PREFIXES: Mapping[str, str] = {
    "aps-workspaces": "aps",
    "ecr.api": "ecr",
    "ecr.dkr": "ecr",
    "monitoring": "cloudwatch",
    "sagemaker.api": "sagemaker",
}


def endpoint_policy(context: Context, net: NetworkConfig, service: str) -> str:
    """Return the policy of a service's endpoint; ``service`` is the last part of the endpoint service's name."""
    every = [f"{_PREFIXES.get(service, service)}:*"]
    own = {"StringEquals": {"aws:PrincipalAccount": [context.account]}}
    statements = [
        _let(f"Ours{number}", every, ["*"], one)
        for number, one in enumerate(_within_trusted_accounts(context.account, net.trusted), 1)
    ]
    # Where one of them calls for us from within the VPC.
    statements.append(_let("ServicesOfAws", every, ["*"], {"Bool": {"aws:PrincipalIsAWSService": "true"}}))
    if service == "s3":
        # By nobody in particular: ECR signs the addresses of layers itself, and agents ask without credentials.
        statements.append(_let("BucketsOfAws", ["s3:GetObject"], _buckets(context)))
    elif service.startswith("ecr."):
        statements.append(_let("ImagesOfAws", PULL_ACTIONS, _repositories(context, net.image_registry), own))
    elif service == "ssm":
        public = f"arn:{context.partition}:ssm:{context.region.name}:"
        read = ["ssm:GetParameter", "ssm:GetParameters", "ssm:GetDocument", "ssm:DescribeDocument"]
        statements.append(_let("PublicOfAws", read, [f"{public}:parameter/aws/*", f"{public}:document/*"], own))
    elif service == "ec2":
        # The EBS driver's volumes are the caller's, but the key aws:ResourceAccount is not there for this action (IAM
        # User Guide, "AWS global condition context keys").
        statements.append(_let("OurVolumes", ["ec2:CreateVolume"], ["*"], own))
    return document(statements)


def _let(
    sid: str, actions: Sequence[str], resources: Sequence[str], condition: Mapping[str, Any] | None = None
) -> Statement:
    return {"Sid": sid, "Principal": "*", **allow(actions, resources, condition)}


def _within_trusted_accounts(account: str, trusted: Sequence[str]) -> list[Mapping[str, Any]]:
    """Require that the caller and the resource both belong to the trusted accounts and organizations."""
    owners = {
        "Account": [account, *(one for one in trusted if one.isdigit())],
        "OrgID": [one for one in trusted if not one.isdigit()],
    }
    known = [kind for kind, values in owners.items() if values]
    return [
        {"StringEquals": {f"aws:Principal{by}": owners[by], f"aws:Resource{of}": owners[of]}}
        for by, of in product(known, known)
    ]


def _buckets(context: Context) -> list[str]:
    """Return AWS's buckets that nodes read: image layers, the SSM agent's files, and packages of Amazon Linux, the
    system of EKS nodes. Deliberately absent: Ubuntu's and Neuron's packages, which are in no bucket.

    Sources: Amazon ECR User Guide, "Minimum Amazon S3 Bucket Permissions for Amazon ECR"; AWS Systems Manager User
    Guide, "SSM Agent communications with AWS managed S3 buckets"; service_owned_resources.md of AWS's examples.
    """
    region = context.region.name
    names = [
        f"prod-{region}-starport-layer-bucket",
        f"aws-ssm-{region}",
        f"amazon-ssm-{region}",
        f"amazon-ssm-packages-{region}",
        f"{region}-birdwatcher-prod",
        f"aws-ssm-distributor-file-{region}",
        f"aws-ssm-document-attachments-{region}",
        f"patch-baseline-snapshot-{region}",
    ]
    if context.on_eks:
        names += [f"amazonlinux-2-repos-{region}", f"al2023-repos-{region}-de612dc2"]
    return [f"arn:{context.partition}:s3:::{name}/*" for name in names]


def _repositories(context: Context, registry: str | None) -> list[str]:
    """Return AWS's registries of this region from which nodes pull, and the mirror of the charts' images."""
    region = context.region
    accounts = [region.eks_images_account, region.deep_learning_account, region.health_agent_account]
    if registry:
        accounts.append(registry.split(".")[0])
    return [
        f"arn:{context.partition}:ecr:{region.name}:{account}:repository/*"
        for account in dict.fromkeys(accounts)
        if account and account != context.account
    ]
