"""Experiment tracking: an MLflow App of SageMaker's, the bucket of its files, and the rights of jobs to log to it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ..common.context import Context, Tracking
from ..common.names import own_path
from ..common.policies import Statement, allow, assume_role, document
from ..storage import private_bucket

# Rights of the app and of jobs on its files: the first two and s3:ListBucket by the SageMaker Developer Guide, "Set up
# IAM permissions for MLflow Apps". The last ends an upload in parts that failed.
_FILES = ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")


@dataclass(frozen=True, kw_only=True)
class MlflowArgs:
    """Inputs of the app. ``worker_role`` is the ARN of the workers' role, by which Slurm's jobs get their own."""

    context: Context
    worker_role: Input[str]


class Mlflow(ComponentResource):
    """Owns the app, the private bucket of its files, the app's role, and with Slurm the role of jobs.

    The app has no instance and no cost by the hour, unlike MLflow tracking servers. On EKS the role of a team's pods
    has the rights (kubernetes/teams/buckets.py). Both the app and the bucket go with everything in them. Deliberately
    absent: SageMaker's model registry, into which the app could put models.
    """

    tracking: Tracking
    outputs: dict[str, Output[str]]

    def __init__(self, name: str, args: MlflowArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Mlflow", name, None, opts)
        context, self._name, self._child = args.context, name, ResourceOptions(parent=self)
        bucket, ready = self._bucket(context)
        role = aws.iam.Role(
            f"{name}-app",
            name=context.names.role("mlflow"),
            # SageMaker's page on confused deputies does not name MLflow among the features with aws:SourceAccount.
            assume_role_policy=assume_role("sagemaker.amazonaws.com"),
            permissions_boundary=context.boundary,
            opts=self._child,
        )
        rights = aws.iam.RolePolicy(f"{name}-app", role=role.name, policy=document(_files(context)), opts=self._child)
        app = aws.sagemaker.MlflowApp(
            f"{name}-app",
            name=context.names.cluster_id,
            artifact_store_uri=bucket.bucket.apply(lambda one: f"s3://{one}"),
            role_arn=role.arn,
            # The app takes the role, and writes to the bucket, when it is created.
            opts=ResourceOptions(parent=self, depends_on=[rights, *ready], protect=context.protect),
        )
        job_role = None if context.on_eks else self._job_role(context, app.arn, args.worker_role)
        self.tracking = Tracking(app.arn, job_role)
        self.outputs = {
            "mlflowArn": app.arn,
            "mlflowOpen": app.arn.apply(lambda arn: open_command(context.region.name, arn)),
        }
        self.register_outputs(self.outputs)

    def _bucket(self, context: Context) -> tuple[aws.s3.Bucket, list[pulumi.Resource]]:
        name, child = f"{self._name}-files", self._child
        bucket = aws.s3.Bucket(
            name,
            bucket=context.names.artifacts,
            force_destroy=True,
            opts=ResourceOptions(parent=self, protect=context.protect),
        )
        _, policy = private_bucket.close(name, bucket, document([private_bucket.tls_only(_arns(context))]), child)
        encrypted = private_bucket.encrypt(name, bucket, None, child)
        aws.s3.BucketLifecycleConfiguration(
            f"{name}-unfinished",
            bucket=bucket.bucket,
            rules=[
                {
                    "id": "end-unfinished-uploads",
                    "status": "Enabled",
                    "filter": {"prefix": ""},
                    "abort_incomplete_multipart_upload": {"days_after_initiation": private_bucket.UNFINISHED_DAYS},
                }
            ],
            opts=child,
        )
        return bucket, [encrypted, policy]

    def _job_role(self, context: Context, app: Output[str], workers: Input[str]) -> Output[str]:
        """Create the role that `hyperpod-credentials mlflow` gives to everybody on a worker; in its path are the roles
        that workers may assume.
        """
        trust = Output.from_input(workers).apply(
            lambda arn: document([{"Effect": "Allow", "Principal": {"AWS": arn}, "Action": "sts:AssumeRole"}])
        )
        role = aws.iam.Role(
            f"{self._name}-job",
            name=context.names.role("mlflow-job"),
            path=f"/{own_path(context.names.cluster)}/",
            assume_role_policy=trust,
            permissions_boundary=context.boundary,
            opts=self._child,
        )
        aws.iam.RolePolicy(
            f"{self._name}-job",
            role=role.name,
            policy=app.apply(lambda arn: document(job_statements(context, arn))),
            opts=self._child,
        )
        return role.arn


def job_statements(context: Context, app: str) -> list[Statement]:
    """Allow logging to the app and reading what is in it; no right to create, change or delete apps.

    An app has one action for all of MLflow's API; the actions of ``sagemaker-mlflow`` are those of tracking servers
    (Service Authorization Reference, Amazon SageMaker AI, and Amazon SageMaker with MLflow).
    """
    return [allow(["sagemaker:CallMlflowAppApi"], [app]), *_files(context)]


def open_command(region: str, app: str) -> str:
    """Return the command that answers with an address of the app's pages, for five minutes and one browser."""
    return (
        f"aws sagemaker create-presigned-mlflow-app-url --region {region} --arn {app} "
        "--query AuthorizedUrl --output text"
    )


def _files(context: Context) -> list[Statement]:
    bucket, objects = _arns(context)
    return [allow(["s3:ListBucket"], [bucket]), allow(_FILES, [objects])]


def _arns(context: Context) -> tuple[str, str]:
    """Return the ARNs of the bucket and of the objects in it."""
    bucket = f"arn:{context.partition}:s3:::{context.names.artifacts}"
    return bucket, f"{bucket}/*"
