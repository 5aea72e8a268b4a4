"""The registry of the stack's own training images."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi_aws as aws
from pulumi import ComponentResource, Input, Output, ResourceOptions


@dataclass(frozen=True, kw_only=True)
class ImageRepositoryArgs:
    """Inputs of the repository. ``key`` is the customer key's ARN."""

    cluster: str
    key: Input[str] | None = None


class ImageRepository(ComponentResource):
    """Owns a private ECR repository for training images, which is deleted with the stack, including its images.

    Deliberately absent: any image. ``hyperpod job image`` builds one where Docker is installed.
    """

    url: Output[str]

    def __init__(self, name: str, args: ImageRepositoryArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:ImageRepository", name, None, opts)
        repository = aws.ecr.Repository(
            f"{name}-training",
            name=f"{args.cluster}/training",
            # A restarted job runs the image it ran before.
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            force_delete=True,
            encryption_configurations=[
                aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=args.key)
            ]
            if args.key is not None
            else None,
            opts=ResourceOptions(parent=self),
        )
        self.url = repository.repository_url
        self.register_outputs({"url": self.url})
