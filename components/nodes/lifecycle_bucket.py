"""The bucket from which every node downloads its lifecycle scripts, and the scripts in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pulumi
import pulumi_aws as aws
from hyperpod_node.facts.model import Mlflow
from hyperpod_node.health import own
from hyperpod_node.slurm import containers
from pulumi import Asset, ComponentResource, FileAsset, Input, Output, ResourceOptions, StringAsset

from ..common.context import Context
from ..common.policies import document
from ..config import Config
from ..health import own_checks
from ..schema.folders import OF_UNIX, has_windows_line_ends
from ..slurm import container_packages
from ..storage import private_bucket
from . import provisioning

PREFIX = "lifecycle"
# Versions let you restore a script; nobody needs a superseded one for longer than a quarter.
OLD_VERSIONS_DAYS = 90
# An object has at most ten tags (Amazon S3 User Guide, "Categorizing your objects using tags"), and the provider's
# default tags may be more. The bucket has them.
_UNTAGGED = aws.s3.BucketObjectv2OverrideProviderArgs(
    default_tags=aws.s3.BucketObjectv2OverrideProviderDefaultTagsArgs(tags={})
)


# Actions that change objects, or the bucket so that they could be changed.
_WRITES = [
    "s3:DeleteBucket*",
    "s3:DeleteObject*",
    "s3:PutBucket*",
    "s3:PutEncryptionConfiguration",
    "s3:PutLifecycleConfiguration",
    "s3:PutObject*",
    "s3:PutReplicationConfiguration",
    "s3:ReplicateDelete",
    "s3:ReplicateObject",
]


@dataclass(frozen=True, kw_only=True)
class LifecycleBucketArgs:
    """Inputs of the bucket. ``folder`` has the files, by default this project's own; the configuration is rendered next
    to them. ``writers`` are the ARNs of its writers, with wildcards.
    """

    context: Context
    config: Config
    writers: Sequence[str]
    folder: Path = field(default_factory=lambda: scripts())


class LifecycleBucket(ComponentResource):
    """Owns the bucket, its settings, and one object for each lifecycle file.

    ``force_destroy`` empties the bucket on destroy, versions and delete markers included, so no Lambda has to clean up.
    Each file is a plain object, so an edited file changes its own object and nothing else. Nodes can read but not
    write: whoever replaces ``on_create.sh`` is root on later nodes.
    """

    bucket: Output[str]
    source_uri: Output[str]
    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: LifecycleBucketArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:LifecycleBucket", name, None, opts)
        self._name = name
        bucket = aws.s3.Bucket(
            f"{name}-bucket", bucket=args.context.names.bucket, force_destroy=True, opts=ResourceOptions(parent=self)
        )
        self.bucket = bucket.bucket
        self.source_uri = bucket.bucket.apply(lambda b: f"s3://{b}/{PREFIX}")
        keys, settings = args.config.settings, self._settings(bucket, args)
        # Objects are created after the settings, so that each is versioned and encrypted.
        after = ResourceOptions(parent=self, depends_on=settings)
        files: dict[str, Input[Asset]] = {
            path.relative_to(args.folder).as_posix(): FileAsset(str(path)) for path in lifecycle_files(args.folder)
        }
        # Next to the scripts, where the nodes look for them.
        files |= {f"{own.FOLDER}/{path.name}": FileAsset(str(path)) for path in own_checks.files(keys.health_checks)}
        packages = container_packages.files(keys.slurm.container_packages)
        files |= {f"{containers.FOLDER}/{path.name}": FileAsset(str(path)) for path in packages}
        rendered: dict[str, Input[Asset]] = {provisioning.FILE_NAME: _parameters(args)}
        if keys.users:
            text = provisioning.people_text(args.config, args.context.names)
            rendered[provisioning.PEOPLE_FILE] = StringAsset(text)
        if keys.slurm.extra_conf:
            text = provisioning.conf_text(args.config, args.context.names)
            rendered[provisioning.CONF_FILE] = StringAsset(text)
        self.ready = [
            aws.s3.BucketObjectv2(
                f"{name}-{key}",
                bucket=bucket.bucket,
                key=f"{PREFIX}/{key}",
                source=asset,
                override_provider=_UNTAGGED,
                opts=after,
            )
            for key, asset in {**files, **rendered}.items()
        ]
        self.register_outputs({"bucket": self.bucket, "sourceUri": self.source_uri})

    def _settings(self, bucket: aws.s3.Bucket, args: LifecycleBucketArgs) -> list[pulumi.Resource]:
        name, child = self._name, ResourceOptions(parent=self)
        text = bucket_policy(args.context, args.writers, args.config.settings.existing_role_arn)
        closed, policy = private_bucket.close(name, bucket, text, child)
        versioning = aws.s3.BucketVersioning(
            f"{name}-versions", bucket=bucket.bucket, versioning_configuration={"status": "Enabled"}, opts=child
        )
        encryption = private_bucket.encrypt(name, bucket, args.context.key, child)
        aws.s3.BucketLifecycleConfiguration(
            f"{name}-old-versions",
            bucket=bucket.bucket,
            rules=[
                {
                    "id": "expire-old-versions",
                    "status": "Enabled",
                    "filter": {"prefix": ""},
                    "noncurrent_version_expiration": {"noncurrent_days": OLD_VERSIONS_DAYS},
                    "abort_incomplete_multipart_upload": {"days_after_initiation": private_bucket.UNFINISHED_DAYS},
                }
            ],
            opts=ResourceOptions(parent=self, depends_on=[versioning]),
        )
        if logs := args.config.settings.security.access_log_bucket:
            aws.s3.BucketLogging(
                f"{name}-access-log",
                bucket=bucket.bucket,
                target_bucket=logs,
                target_prefix=f"{args.context.names.bucket}/",
                opts=child,
            )
        return [closed, versioning, encryption, policy]


def _parameters(args: LifecycleBucketArgs) -> Output[Asset]:
    """Render the nodes' facts. The addresses of a workspace and of an app are known once these exist."""
    context = args.context
    workspace, tracking = context.nodes_write_to, context.tracking
    url = Output.from_input(workspace.remote_write_url if workspace else None)
    # On EKS, pods are told, and not nodes (kubernetes/teams/training_namespace.py).
    app = [tracking.arn, tracking.job_role] if tracking and tracking.job_role else []
    return Output.all(url, *app).apply(
        lambda known: StringAsset(
            provisioning.render(args.config, context.names, known[0], Mlflow(*known[1:]) if app else None)
        )
    )


def bucket_policy(context: Context, writers: Sequence[str], role: str | None) -> str:
    """Deny requests without TLS, writes by a node's role, and writes by anybody except the writers.

    AWS's managed policies for SageMaker's users allow writing every bucket called sagemaker-*, and a writer of this one
    is root on later nodes. The account's root user can always remove a bucket's policy.
    """
    bucket = f"arn:{context.partition}:s3:::{context.names.bucket}"
    arns = [bucket, f"{bucket}/*"]
    own_roles = f"arn:{context.partition}:iam::{context.account}:role/{context.names.any_role}"
    # A condition, not a principal: S3 refuses a policy that names a role which does not exist yet.
    read_only = {
        "Sid": "NodesReadOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": _WRITES,
        "Resource": arns,
        "Condition": {"ArnLike": {"aws:PrincipalArn": role or own_roles}},
    }
    writers_only = {
        "Sid": "WritersOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": _WRITES,
        "Resource": arns,
        "Condition": {
            "ArnNotLike": {"aws:PrincipalArn": [*writers, f"arn:{context.partition}:iam::{context.account}:root"]},
            "Bool": {"aws:PrincipalIsAWSService": "false"},
        },
    }
    return document([private_bucket.tls_only(arns), read_only, writers_only])


def scripts() -> Path:
    """Return this project's ``lifecycle/``: in an installed package next to its modules, in a clone next to
    ``components/``.
    """
    installed = Path(__file__).parents[1] / "lifecycle"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "lifecycle"


def lifecycle_files(folder: Path) -> list[Path]:
    """Return the files to ship, in a stable order, without editor backups and bytecode.

    Raises RunError if a script has Windows line endings, as in a clone without .gitattributes.
    """
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part == "__pycache__" or part.startswith(".") for part in path.relative_to(folder).parts)
    )
    wrong = " ".join(str(path) for path in found if has_windows_line_ends(path))
    if wrong:
        raise pulumi.RunError(f"scripts have Windows line endings: {wrong}; {OF_UNIX.format(path=wrong)}")
    return found
