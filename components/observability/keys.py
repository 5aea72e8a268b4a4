"""The keys of metrics: which workspaces the stack uses, and how much is collected."""

from typing import Annotated, Literal, TypeAlias

from pydantic import StrictBool

from ..schema.fields import IN_PLACE, Change, Model, form

# Amazon Managed Service for Prometheus API Reference, WorkspaceDescription, arn and workspaceId; Amazon Managed Grafana
# API Reference, WorkspaceDescription, id.
PrometheusWorkspace: TypeAlias = Annotated[
    str,
    form(
        "none|create|arn:aws[a-z-]*:aps:[a-z0-9-]+:[0-9]{12}:workspace/ws-[0-9a-f-]{1,64}",
        "is not a workspace's ARN",
        "none, create, or arn:aws:aps:REGION:ACCOUNT:workspace/ws-...",
    ),
]
GrafanaWorkspace: TypeAlias = Annotated[
    str, form("none|create|g-[0-9a-f]{10}", "is not a workspace's id", "none, create, or g-0123456789")
]
SignIn: TypeAlias = Literal["AWS_SSO", "SAML"]
_LOST = "in place; none deletes a workspace that it created, with everything in it"


class Observability(Model):
    """The destinations of metrics, and how many are collected."""

    prometheus: Annotated[
        PrometheusWorkspace, Change("in place", f"{_LOST}; nodes that boot afterwards send to it")
    ] = "none"
    """Workspace of Amazon Managed Service for Prometheus: none, create, or the ARN of one in this account and region.
    """
    grafana: Annotated[GrafanaWorkspace, Change("in place", _LOST)] = "none"
    """Workspace of Amazon Managed Grafana: none, create, or the id of one in this account and region. Needs
    `prometheus`."""
    grafana_authentication: Annotated[
        tuple[SignIn, ...], Change("in place", "in place: another Grafana workspace takes its place")
    ] = ("AWS_SSO",)
    """How people sign in to a Grafana that the stack creates. AWS_SSO, the default: IAM Identity Center, which the
    account must have. SAML: an identity provider, which you set up in the workspace afterwards."""
    detail: Annotated[
        Literal["basic", "advanced"], Change("at boot", "in place; with Slurm for nodes that boot afterwards")
    ] = "basic"
    """How many metrics of accelerators and network are collected. advanced has more samples to pay for."""

    logs: Annotated[StrictBool, IN_PLACE] = False
    """Also send the logs of the cluster's pods to CloudWatch, which bills what it takes in. EKS only."""

    scraper: Annotated[Literal["none", "training", "everything"], IN_PLACE] = "none"
    """Collector that Amazon Managed Service for Prometheus itself runs, billed by the hour and the sample. training: it
    reads the metrics of training jobs' pods, which the add-on does not. everything: also the kubelets and your own
    exporters, in place of the add-on, in regions without it. EKS only; needs `prometheus`."""

    mlflow: Annotated[
        StrictBool,
        Change(
            "in place",
            "in place, with Slurm for nodes that boot afterwards; false deletes all experiments and files",
        ),
    ] = False
    """Create an MLflow App of SageMaker's, to which the project's trainers and your own jobs log. It costs nothing by
    the hour; its files cost what S3 does. Not with `security.kmsKey`, and not without a way out of the VPC."""

    @property
    def with_prometheus(self) -> bool:
        """Whether metrics go to a Prometheus workspace."""
        return self.prometheus != "none"

    @property
    def existing_prometheus(self) -> str | None:
        """The ARN of an existing workspace."""
        return None if self.prometheus in ("none", "create") else self.prometheus

    @property
    def existing_grafana(self) -> str | None:
        """The id of an existing workspace."""
        return None if self.grafana in ("none", "create") else self.grafana
