"""Checks of the keys of metrics. Every rule yields its own problems."""

from collections.abc import Iterator

from ..catalogue.regions import Region
from ..schema.problems import Problem
from .keys import Observability

_KEY = "hyperpod:observability"


def observability_problems(
    chosen: Observability, region: Region | None, *, orchestrator: str, own_key: bool, closed: bool
) -> Iterator[Problem]:
    """Yield every problem of the keys of metrics. ``own_key``: the stack's storage has a customer key; ``closed``:
    nodes have no way out.
    """
    if (arn := chosen.existing_prometheus) and region and arn.split(":")[1:4:2] != [region.partition, region.name]:
        yield Problem(
            key=f"{_KEY}.prometheus",
            what=f"the workspace is in {arn.split(':')[3]}",
            fix=f"a workspace in {region.name}, or create",
        )
    if chosen.grafana != "none" and not chosen.with_prometheus:
        yield Problem(
            key=f"{_KEY}.grafana",
            what="there is no Prometheus workspace to show metrics of",
            fix="set observability.prometheus to create, or leave grafana out",
        )
    elif chosen.grafana != "none" and region and not region.grafana:
        yield Problem(
            key=f"{_KEY}.grafana",
            what=f"Amazon Managed Grafana is not in {region.name}",
            fix="leave grafana out, and let a Grafana of your own query the workspace",
        )
    yield from _authentication(chosen)
    yield from _mlflow(chosen, region, own_key=own_key, closed=closed)
    if chosen.logs and orchestrator == "slurm":
        yield Problem(key=f"{_KEY}.logs", what="is for pods", fix="leave it out with orchestrator slurm")
    elif chosen.logs and not chosen.with_prometheus:
        yield Problem(
            key=f"{_KEY}.logs",
            what="the add-on that sends logs needs a Prometheus workspace",
            fix="set observability.prometheus to create, or leave logs out",
        )
    yield from _scraper(chosen, orchestrator, own_key=own_key)
    yield from _without_addon(chosen)
    if chosen.detail != "basic" and not chosen.with_prometheus:
        yield Problem(
            key=f"{_KEY}.detail",
            what="no metrics are collected without a Prometheus workspace",
            fix="set observability.prometheus to create, or leave detail out",
        )


def _scraper(chosen: Observability, orchestrator: str, *, own_key: bool) -> Iterator[Problem]:
    key = f"{_KEY}.scraper"
    if chosen.scraper == "none":
        return
    if orchestrator == "slurm":
        yield Problem(key=key, what="reads pods, and nodes of Slurm send by themselves", fix="leave it out")
    elif not chosen.with_prometheus:
        yield Problem(
            key=key,
            what="there is no Prometheus workspace to write to",
            fix="set observability.prometheus to create, or leave scraper out",
        )
    elif chosen.prometheus == "create" and own_key:
        # Amazon Managed Service for Prometheus User Guide, "Creating scraper for workspaces enabled with customer
        # managed keys": roles whose trust policies name the collector, which is made after them.
        yield Problem(
            key=key,
            what="does not write to a workspace that is encrypted with a customer key (security.kmsKey)",
            fix="leave one of the two out, or let observability.prometheus be a workspace without such a key",
        )


def _mlflow(chosen: Observability, region: Region | None, *, own_key: bool, closed: bool) -> Iterator[Problem]:
    if not chosen.mlflow:
        return
    key, fix = f"{_KEY}.mlflow", "leave it out, and let jobs log to an MLflow of your own (MLFLOW_TRACKING_URI)"
    if region and not region.mlflow:
        yield Problem(key=key, what=f"SageMaker has no MLflow Apps in {region.name}", fix=fix)
    if own_key:
        # CreateMlflowApp has KmsKeyId; the type in CloudFormation's registry and pulumi-aws 7.51.1 do not.
        yield Problem(
            key=key,
            what="would keep its experiments with a key of AWS's, and not with the stack's (security.kmsKey)",
            fix="leave one of the two out",
        )
    if closed:
        # SageMaker Developer Guide, "Connect to SageMaker AI Within your VPC": no endpoint service for MLflow Apps.
        yield Problem(
            key=key,
            what="no interface endpoint leads to MLflow Apps, and nodes have no other way out",
            fix="set network.egress to open, or leave it out",
        )


def _without_addon(chosen: Observability) -> Iterator[Problem]:
    if chosen.scraper != "everything":
        return
    for key, given in (("logs", chosen.logs), ("detail", chosen.detail != "basic")):
        if given:
            yield Problem(
                key=f"{_KEY}.{key}",
                what="is a setting of the add-on, in whose place the collector is (observability.scraper everything)",
                fix="leave one of the two out",
            )


def _authentication(chosen: Observability) -> Iterator[Problem]:
    given, key = chosen.grafana_authentication, f"{_KEY}.grafanaAuthentication"
    if not given or len(given) != len(set(given)):
        what = "a method is listed twice" if given else "nobody could sign in"
        yield Problem(key=key, what=what, fix="[AWS_SSO], [SAML], or both")
    elif chosen.grafana != "create" and given != ("AWS_SSO",):
        yield Problem(
            key=key,
            what="the stack creates no Grafana workspace",
            fix="set observability.grafana to create, or leave it out",
        )
