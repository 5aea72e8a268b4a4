"""A Prometheus workspace that answers to signed queries."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.operations.aws import StubbedAws
from tests.rehearsal.nodes.workspace import RIGHT, complaint

ID = "ws-12345678-1234-1234-1234-123456789012"
ARN = f"arn:aws:aps:us-west-2:123456789012:workspace/{ID}"


@dataclass
class Workspace:
    """It answers one thing to every query that is signed with the right key: a series, or what ``values`` has of it."""

    metric: dict[str, str] | None = None
    values: list[tuple[dict[str, str], str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        if why := complaint(headers, path, body, "us-west-2"):
            return 403, {"message": f"The request signature we calculated does not match: {why}"}
        question = parse_qs(body.decode())
        self.asked += question["query"]
        self.times += question.get("time", [])
        found = self.values if self.metric is None else [(self.metric, "1")]
        result = [{"metric": metric, "value": [1790000000, value]} for metric, value in found]
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}

    def described(self, aws: StubbedAws) -> None:
        """Have the account describe it once."""
        status = {"workspaceId": ID, "arn": ARN, "status": {"statusCode": "ACTIVE"}, "createdAt": 0}
        aws.answer("amp", "describe_workspace", {"workspace": {**status, "prometheusEndpoint": self.url}})


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
