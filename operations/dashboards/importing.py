"""The import of a stack's dashboards into its Grafana workspace, or into a Grafana of somebody's own.

A second import replaces what the first one made, and makes nothing twice.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError

from ..aws import Aws
from ..failures import bad_input, reason
from ..outcome import Outcome
from ..target import Target
from ..workspaces import prometheus, tagged
from .grafana import Grafana
from .shipped import TAG, of_stack

TOKEN = "GRAFANA_TOKEN"
FOLDER_UID, FOLDER_TITLE = TAG, "HyperPod"
_ADDRESS = "https://{}"
# Enough for a dozen requests, and soon useless to anybody else.
_TOKEN_SECONDS = 600
# The interval at which nodes are scraped: Grafana computes rates over four of them at least.
_INTERVAL = "30s"


@dataclass(frozen=True)
class Page:
    """An imported dashboard, by its address, or a written one, by its file."""

    title: str
    url: str


@dataclass(frozen=True)
class Imported:
    """What Grafana has now. ``warnings`` say what could not be cleaned up."""

    grafana: str
    data_source: str
    dashboards: list[Page]
    warnings: list[str] = field(default_factory=list)


def import_dashboards(target: Target, *, url: str = "", token: str = "", data_source: str = "") -> Imported:
    """Give a Grafana the stack's dashboards, their folder and the stack's Prometheus as a data source.

    By default this is the stack's Amazon Managed Grafana, with a token that exists only meanwhile; otherwise the one at
    ``url``, with ``token``. ``data_source`` is the uid of one that is there already. Raises Failure.
    """
    if url:
        source = None if data_source else _source(target, auth="default")
        return _write(target, Grafana(url, token), source, data_source)
    workspace = _grafana(target)
    source = None if data_source else _source(target, auth="ec2_iam_role")
    warnings: list[str] = []
    with _token(target.aws, workspace["id"], warnings) as made:
        grafana = Grafana(_ADDRESS.format(workspace["endpoint"]), made)
        found = _write(target, grafana, source, data_source)
    found.warnings.extend(warnings)
    return found


def apply(target: Target, dry_run: bool) -> Outcome:
    """Import them into the stack's own Grafana. An import always replaces the dashboards of the one before."""
    found = Imported("", "", []) if dry_run else import_dashboards(target)
    number = len(of_stack(target.config.settings))
    return Outcome(changes=[f"import {number} dashboards into Grafana"], notes=found.warnings)


def _write(target: Target, grafana: Grafana, source: dict[str, Any] | None, existing: str) -> Imported:
    if source is not None:
        grafana.ensure_source(source)
    else:
        source = grafana.source(existing)
        if source is None:
            raise bad_input(
                f"Grafana has no data source with the uid {existing}", "its page in Grafana has it in its URL"
            )
    from .panels import rendered  # Grafana's SDK: no other verb waits half a second for it

    grafana.ensure_folder(FOLDER_UID, FOLDER_TITLE)
    pages = []
    for one in of_stack(target.config.settings):
        opened = _opened_on(rendered(one), source, target.cluster_name)
        pages.append(Page(one.title, grafana.put_dashboard(opened, FOLDER_UID)))
    return Imported(grafana.url, source["uid"], pages)


def write_dashboards(target: Target, folder: Path) -> list[Page]:
    """Write the JSON of a stack's dashboards into a folder. Raises Failure where it cannot be written."""
    from .panels import rendered

    pages = []
    for one in of_stack(target.config.settings):
        path = folder / f"{one.name}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(rendered(one), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise bad_input(f"{path} cannot be written: {error.strerror}", "name another folder") from error
        pages.append(Page(one.title, str(path)))
    return pages


def _opened_on(model: dict[str, Any], source: dict[str, Any], cluster: str) -> dict[str, Any]:
    """The dashboard, with this data source and cluster chosen when it opens."""
    chosen = {"datasource": (source["name"], source["uid"]), "cluster": (cluster, cluster)}
    for variable in model["templating"]["list"]:
        if variable["name"] in chosen:
            text, value = chosen[variable["name"]]
            variable["current"] = {"selected": True, "text": text, "value": value}
    return model


@contextmanager
def _token(aws: Aws, workspace: str, warnings: list[str]) -> Iterator[str]:
    """A token of a service account of its own; both are deleted at the end, whatever happens in between.

    The role is Admin, since no lesser one may write data sources (Grafana, roles and permissions).
    """
    client = aws.client("grafana")
    name = f"hyperpod-dashboards-{uuid4().hex[:8]}"
    account = client.create_workspace_service_account(workspaceId=workspace, name=name, grafanaRole="ADMIN")["id"]
    where = {"workspaceId": workspace, "serviceAccountId": account}
    try:
        made = client.create_workspace_service_account_token(**where, name=name, secondsToLive=_TOKEN_SECONDS)
        made = made["serviceAccountToken"]
        try:
            yield made["key"]
        finally:
            with _telling(warnings, f"its token lives for at most {_TOKEN_SECONDS} s"):
                client.delete_workspace_service_account_token(**where, tokenId=made["id"])
    finally:
        command = f"aws grafana delete-workspace-service-account --workspace-id {workspace} --service-account-id"
        with _telling(warnings, f"{command} {account} --region {aws.region}"):
            client.delete_workspace_service_account(**where)


@contextmanager
def _telling(warnings: list[str], hint: str) -> Iterator[None]:
    """Turn what AWS refuses into a warning."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        warnings.append(f"Grafana's service account of this import is left ({reason(error)}): {hint}")


def _grafana(target: Target) -> dict[str, Any]:
    """AWS's description of the stack's Grafana workspace: its id and endpoint. Raises Failure."""
    chosen = target.config.settings.observability
    if chosen.grafana == "none":
        raise bad_input(
            f"{target.stack} has no Grafana workspace",
            "set hyperpod:observability.grafana, or name a Grafana of your own with --url",
        )
    found = chosen.existing_grafana or tagged(target, ":grafana:", "workspaces/")
    return dict(target.aws.client("grafana").describe_workspace(workspaceId=found)["workspace"])


def _source(target: Target, *, auth: str) -> dict[str, Any]:
    """The stack's Prometheus workspace as Grafana's data source, which signs its queries. Raises Failure."""
    workspace = prometheus(target)
    return {
        "uid": workspace["workspaceId"],  # 39 characters; Grafana allows 40.
        "name": f"HyperPod {workspace['workspaceId']}",
        "type": "prometheus",
        "access": "proxy",
        "url": workspace["prometheusEndpoint"].rstrip("/"),
        "jsonData": {
            "httpMethod": "POST",
            "timeInterval": _INTERVAL,
            "sigV4Auth": True,
            "sigV4AuthType": auth,
            "sigV4Region": target.aws.region,
        },
    }
