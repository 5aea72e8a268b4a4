"""An API server on this machine that answers one kubelet, with the limits that NodeRestriction and the Node authorizer
set it (Kubernetes, "Admission Control in Kubernetes", "Using Node Authorization"). A real one answers in
tests/rehearsal/kubernetes/test_node_health.py."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "k8s-aws-v1.very-secret"
GROUP = "sagemaker.amazonaws.com/instance-group-name"
STATUS = "sagemaker.amazonaws.com/node-health-status"
# As EKS's images have it (github.com/awslabs/amazon-eks-ami, kubelet-kubeconfig).
KUBECONFIG = """apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: /etc/kubernetes/pki/ca.crt
    server: {server}
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    user: kubelet
  name: kubelet
current-context: kubelet
users:
- name: kubelet
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: aws-iam-authenticator
      args:
        - "token"
        - "-i"
        - "mine"
        - --region
        - "us-west-2"
"""


@dataclass
class Kubernetes:
    """Its nodes by name, the pods of the one node, and the changes it took. ``others_act`` just before one."""

    me: str
    url: str = ""
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    others_act: Any = None

    def add(self, name: str, **more: Any) -> None:
        """A node of HyperPod, with nothing wrong."""
        labels = {GROUP: "workers", STATUS: "Schedulable", **more.pop("labels", {})}
        metadata = {"name": name, "resourceVersion": "1", "labels": labels, "annotations": more.pop("annotations", {})}
        self.nodes[name] = {"metadata": metadata, "spec": more}

    @property
    def own(self) -> dict[str, Any]:
        """The kubelet's node."""
        return self.nodes[self.me]

    def answer(self, method: str, path: str, query: dict[str, list[str]], accept: str, body: Any) -> tuple[int, Any]:
        """The answer to one request of the kubelet."""
        if (method, path) == ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"):
            return 201, {"status": {"userInfo": {"username": f"system:node:{self.me}", "groups": ["system:nodes"]}}}
        if (method, path) == ("GET", "/api/v1/nodes"):
            assert query == {"labelSelector": [GROUP]}
            assert "PartialObjectMetadataList" in accept
            return 200, {"items": [{"metadata": one["metadata"]} for one in self.nodes.values()]}
        if (method, path, query) == ("GET", "/api/v1/pods", {"fieldSelector": [f"spec.nodeName={self.me}"]}):
            return 200, {"items": self.pods}
        if (method, path) == ("POST", "/api/v1/namespaces/default/events"):
            self.events.append(body)
            return 201, body
        if path != f"/api/v1/nodes/{self.me}":
            return 403, {"message": f"{path} is forbidden: node {self.me} is not allowed to"}
        return (200, self.own) if method == "GET" else self._patch(body)

    def _patch(self, body: Any) -> tuple[int, Any]:
        if self.others_act:
            self.others_act()
        metadata = self.own["metadata"]
        if body["metadata"].pop("resourceVersion") != metadata["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        assert set(body) <= {"metadata", "spec"}
        assert set(body.get("spec", {})) <= {"unschedulable"}
        self.changes.append(body)
        _merge(self.own, body)
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        return 200, self.own


def _merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    """RFC 7386."""
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = value


@contextmanager
def serve(kubernetes: Kubernetes) -> Iterator[None]:
    """Let it answer on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def do_PATCH(self) -> None:
            self._answer()

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            where = urlsplit(self.path)
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                code, found = 401, {"message": "Unauthorized"}
            else:
                accept = self.headers["Accept"]
                code, found = kubernetes.answer(self.command, where.path, parse_qs(where.query), accept, body)
            data = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    kubernetes.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
