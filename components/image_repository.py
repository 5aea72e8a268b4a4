"""Where the stack's own training images are."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi_aws as aws
from pulumi import ComponentResource, Output, ResourceOptions


@dataclass(frozen=True, kw_only=True)
class ImageRepositoryArgs:
    """What the repository is made from."""

    cluster: str


class ImageRepository(ComponentResource):
    """Owns a private ECR repository for training images, which goes with the stack, images and all.

    Deliberately absent: any image. ``python -m operations image`` builds one where Docker is.
    """

    url: Output[str]

    def __init__(self, name: str, args: ImageRepositoryArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:ImageRepository", name, None, opts)
        repository = aws.ecr.Repository(
            f"{name}-training",
            name=f"{args.cluster}/training",
            # A job that was restarted runs what it ran before.
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            force_delete=True,
            opts=ResourceOptions(parent=self),
        )
        self.url = repository.repository_url
        self.register_outputs({"url": self.url})
