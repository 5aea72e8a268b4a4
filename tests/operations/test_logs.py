"""A pod's log is asked for in the API's own terms, and what it cannot give is no error."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import kubernetes
import pytest

from operations.failures import Exit, Failure
from operations.jobs import kubernetes_api
from operations.jobs.kubernetes_api import KubernetesApi

STAMP = "2026-01-01T00:00:00.000000000Z"


class Server(ThreadingHTTPServer):
    """As much of a Kubernetes API as a log needs: what it was asked, and what the log answers."""

    daemon_threads = True
    asked: list[dict[str, list[str]]]
    status, text = 200, ""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        status, text = 200, json.dumps({"kind": "APIGroupList", "versions": ["v1"], "groups": []})
        if parts.path == "/api/v1/namespaces/training/pods/nanogpt-worker-0/log":
            self.server.asked.append(parse_qs(parts.query))
            status, text = self.server.status, self.server.text
        if status == 0:  # a server that says nothing
            threading.Event().wait(5)
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def read(server: Server, last_seconds: int | None = None) -> list[str]:
    configuration = kubernetes.client.Configuration(host=f"http://127.0.0.1:{server.server_address[1]}")
    configuration.retries = False
    api = KubernetesApi(kubernetes.client.ApiClient(configuration))
    containers = [{"name": "pytorch"}, {"name": "of-a-mesh"}]
    pod = {"metadata": {"name": "nanogpt-worker-0", "namespace": "training"}, "spec": {"containers": containers}}
    return api.log(pod, last_seconds=last_seconds)


def test_a_log_is_shown_with_its_times_in_full_or_only_its_last_seconds(server: Server) -> None:
    server.text = f'{STAMP} step 1\r50%\r\n{STAMP} {{"loss": 2}}\n'
    assert read(server) == [f"{STAMP} step 1\r50%\r", f'{STAMP} {{"loss": 2}}']
    read(server, 12)
    always = {"container": ["pytorch"], "timestamps": ["True"]}
    assert server.asked == [always, {**always, "sinceSeconds": ["12"]}]


@pytest.mark.parametrize("status", [400, 404])
def test_a_pod_that_is_gone_or_has_not_begun_says_nothing(server: Server, status: int) -> None:
    server.status = status
    assert read(server) == []


def test_a_forbidden_log_is_reported_and_an_unreachable_one_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.status, server.text = 403, json.dumps({"message": "no rights"})
    with pytest.raises(Failure, match="no rights") as failed:
        read(server)
    assert failed.value.code == Exit.CANNOT_KNOW
    server.status = 0
    monkeypatch.setattr(kubernetes_api, "_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(Failure, match="cannot be reached"):
        read(server)
