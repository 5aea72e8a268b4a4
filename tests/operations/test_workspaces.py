"""A question to a stack's Prometheus workspace: signed by the caller, and read as the register's rows say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from operations.assumptions import register
from operations.assumptions.probing import Stack
from tests.operations.aws import StubbedAws, stack
from tests.rehearsal.nodes.workspace import RIGHT, complaint

ID = "ws-12345678-1234-1234-1234-123456789012"
ARN = f"arn:aws:aps:us-west-2:123456789012:workspace/{ID}"
ROW = next(row for row in register() if row.id == "metrics-gpus")


@dataclass
class Workspace:
    """It answers one thing to every query that is signed with the right key."""

    metric: dict[str, str] | None = None
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        if why := complaint(headers, path, body, "us-west-2"):
            return 403, {"message": f"The request signature we calculated does not match: {why}"}
        self.asked += parse_qs(body.decode())["query"]
        result = [] if self.metric is None else [{"metric": self.metric, "value": [1790000000, "1"]}]
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    found = Workspace()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            code, answer = found.answer(self.path, headers, body)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", RIGHT)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}/workspaces/{ID}/"
    yield found
    server.shutdown()
    server.server_close()


def settled(aws: StubbedAws, workspace: Workspace) -> tuple[str, str]:
    """The result of the row, and what was seen."""
    status = {"workspaceId": ID, "arn": ARN, "status": {"statusCode": "ACTIVE"}, "createdAt": 0}
    aws.answer("amp", "describe_workspace", {"workspace": {**status, "prometheusEndpoint": workspace.url}})
    settings = "hyperpod:observability=" + json.dumps({"prometheus": ARN})
    found = Stack(stack(aws, "dev", settings)).ask(ROW)
    return found.result, found.seen


def test_labels_of_the_add_on_are_confirmed_or_refuted_by_a_signed_query(aws: StubbedAws, workspace: Workspace) -> None:
    workspace.metric = {"Hostname": "hyperpod-i-0123456789abcdef0"}
    assert settled(aws, workspace)[0] == "confirmed"
    workspace.metric = {"Hostname": "ip-10-1-2-3"}
    assert settled(aws, workspace) == ("refuted", '[{"Hostname": "ip-10-1-2-3"}]')
    workspace.metric = {}
    assert settled(aws, workspace)[0] == "refuted"
    # Nothing is measured, as without a running node: nothing is known.
    workspace.metric = None
    assert settled(aws, workspace) == ("unknown", "[]")
    (expression,) = set(workspace.asked)
    assert 'cluster_name="hyperpod-dev"' in expression


def test_a_query_that_is_refused_settles_nothing(
    aws: StubbedAws, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    result, seen = settled(aws, workspace)
    assert result == "unknown"
    assert "refused the query with 403" in seen
    workspace.url = "http://127.0.0.1:1/"
    result, seen = settled(aws, workspace)
    assert (result, "cannot be reached" in seen) == ("unknown", True)
