"""The workspaces of a stack's metrics: which they are, and a question to its Prometheus."""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

import boto3
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from .deployment.tagged import arns
from .failures import bad_input, cannot_know
from .target import Target

_SECONDS = 30.0


def prometheus(target: Target) -> dict[str, Any]:
    """AWS's description of the stack's Prometheus workspace. Raises Failure where it has none."""
    chosen = target.config.settings.observability
    if not chosen.with_prometheus:
        raise bad_input(
            f"{target.stack} has no Prometheus workspace",
            "set hyperpod:observability.prometheus, or name a data source that Grafana has with --data-source",
        )
    arn = chosen.existing_prometheus
    found = arn.rpartition("/")[2] if arn else tagged(target, ":aps:", ":workspace/")
    return dict(target.aws.client("amp").describe_workspace(workspaceId=found)["workspace"])


def tagged(target: Target, service: str, kind: str) -> str:
    """The id of the workspace that the stack created, by its tag. Raises Failure."""
    found = [arn.rpartition("/")[2] for arn in arns(target) if service in arn and kind in arn]
    if not found:
        raise bad_input(f"the stack's workspace (arn:...{service}) is not there", f"hyperpod deploy {target.stack}")
    return found[0]


def query(target: Target, expression: str) -> dict[str, Any]:
    """The workspace's answer to a PromQL expression at this moment: its ``data``. Raises Failure."""
    return next(answers(target, [{"query": expression}]))


def answers(target: Target, questions: Iterable[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """The workspace's ``data`` for each question, which has its ``query`` and perhaps its ``time``. Raises Failure.

    Amazon Managed Service for Prometheus User Guide, "QueryMetrics": signed by the caller, who needs aps:QueryMetrics.
    """
    url = prometheus(target)["prometheusEndpoint"].rstrip("/") + "/api/v1/query"
    credentials = boto3.Session().get_credentials()
    if credentials is None:
        raise cannot_know("a query of metrics cannot be signed without AWS credentials")
    signer = SigV4Auth(credentials, "aps", target.aws.region)
    for question in questions:
        yield _answer(signer, url, urlencode(question))


def _answer(signer: SigV4Auth, url: str, body: str) -> dict[str, Any]:
    request = AWSRequest("POST", url, {"Content-Type": "application/x-www-form-urlencoded"}, body)
    signer.add_auth(request)
    try:
        answer = requests.post(url, data=body, headers=dict(request.headers), timeout=_SECONDS, allow_redirects=False)
        found = answer.json()
    except requests.JSONDecodeError:
        raise cannot_know(f"the Prometheus workspace answered {answer.status_code}, and no JSON") from None
    except requests.RequestException as error:
        raise cannot_know(f"the Prometheus workspace cannot be reached ({type(error).__name__})") from None
    if answer.status_code != 200 or not isinstance(found, dict) or found.get("status") != "success":
        said = found.get("error") or found.get("message") if isinstance(found, dict) else ""
        raise cannot_know(f"the Prometheus workspace refused the query with {answer.status_code}: {said}")
    return dict(found["data"])
