"""Calls the Kubernetes API with the kubelet's own credential: what a node may read, and report about itself.

The kubeconfig is the one that EKS's images write (github.com/awslabs/amazon-eks-ami, kubelet-kubeconfig): a server, a
file with its authority, and a command that prints a token. Nodes have no YAML library, so this module looks for these
lines.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Optional
from urllib.parse import quote

from ..host.errors import StepError
from ..host.host import Host

KUBECONFIG = "/var/lib/kubelet/kubeconfig"
# Seconds for one request, and for the command that makes a token, which asks AWS's metadata or token service.
SECONDS, TOKEN_SECONDS = 5.0, 10.0
_USER = "system:node:"
# Names and labels of as many nodes as HyperPod allows in a cluster, and more.
_MOST_BYTES = 64 << 20
_NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# The namespace in which the API server accepts events of objects without one, and the maximum length of an event.
_EVENTS, _LONGEST_MESSAGE = "default", 1024
_MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Api:
    """One session. Every method raises StepError if the API server refuses or does not answer."""

    server: str
    token: str
    context: Optional[ssl.SSLContext]

    def own_name(self) -> str:
        """The name of this kubelet's Kubernetes node."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        found = self._ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        user = str(found["status"]["userInfo"].get("username", ""))
        if not user.startswith(_USER):
            raise StepError(f'Kubernetes knows this node as "{user}", not as {_USER}NAME')
        return user[len(_USER) :]

    def node(self, name: str) -> Dict[str, Any]:
        """Return the node's object."""
        return self._ask("GET", f"/api/v1/nodes/{quote(name)}")

    def patch_node(self, name: str, change: Mapping[str, Any]) -> None:
        """Merge a change into the node's object."""
        self._ask("PATCH", f"/api/v1/nodes/{quote(name)}", change, _MERGE)

    def warn(self, node: str, reason: str, message: str, now: float) -> None:
        """Create an event of the node, which Kubernetes keeps for an hour. ``now``: seconds since 1970."""
        time = datetime.fromtimestamp(now, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "metadata": {"generateName": f"{node}.", "namespace": _EVENTS},
            # By this uid `kubectl describe node` finds what kubelets themselves say of a node.
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
            "type": "Warning",
            "reason": reason,
            "message": message[:_LONGEST_MESSAGE],
            "source": {"component": "hyperpod-health", "host": node},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }
        self._ask("POST", f"/api/v1/namespaces/{_EVENTS}/events", event)

    def nodes(self, label: str) -> List[Dict[str, Any]]:
        """Return the metadata of every node that has the label."""
        items: List[Dict[str, Any]] = self._ask(
            "GET", f"/api/v1/nodes?labelSelector={quote(label)}", accept=_NAMES_ONLY
        )["items"]
        return [one["metadata"] for one in items]

    def pods(self, node: str) -> List[Dict[str, Any]]:
        """Return the pods of a node: a kubelet may list its own node's."""
        items: List[Dict[str, Any]] = self._ask("GET", f"/api/v1/pods?fieldSelector={quote('spec.nodeName=' + node)}")[
            "items"
        ]
        return items

    def _ask(
        self,
        method: str,
        path: str,
        body: Optional[Mapping[str, Any]] = None,
        kind: str = "application/json",
        accept: str = "application/json",
    ) -> Dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept, "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data=data, headers=headers, method=method)
        handlers: List[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.context:
            handlers.append(urllib.request.HTTPSHandler(context=self.context))
        what = f"Kubernetes ({method} {path.split('?')[0]})"
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=SECONDS) as answer:
                found = json.loads(answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise StepError(f"{what} refuses: {_message(error.read(4096)) or error.reason}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise StepError(f"{what} does not answer: {error}") from None
        if not isinstance(found, dict):
            raise StepError(f"{what} answers with no object")
        return found


def connect(host: Host) -> Api:
    """Open a session with a new token. Raises StepError if the kubeconfig is missing or of another form."""
    text = host.read(KUBECONFIG)
    if text is None:
        raise StepError(f"no {KUBECONFIG}: the kubelet's credential is not where EKS's images have it")
    server, authority, command = (_value(text, key) for key in ("server", "certificate-authority", "command"))
    if not server or not command or (server.startswith("https:") and not authority):
        raise StepError(f"{KUBECONFIG} names no server, certificate-authority and command of a credential")
    said = host.run(command, *_arguments(text), check=False, timeout=TOKEN_SECONDS)
    if said.code != 0:
        # Never its output, which may have a token.
        raise StepError(f"`{command}` ended with {said.code}: {said.err.strip()[-200:]}")
    try:
        token = str(json.loads(said.out)["status"]["token"])
        context = ssl.create_default_context(cafile=str(host.path(authority))) if authority else None
    except (ValueError, KeyError, TypeError):
        raise StepError(f"`{command}` gave no token") from None
    except OSError as error:
        raise StepError(f"{authority} cannot be read: {error}") from None
    return Api(server.rstrip("/"), token, context)


def _value(kubeconfig: str, key: str) -> str:
    found = re.search(rf"^[ -]*{key}:[ \t]*[\"']?([^\s\"']+)", kubeconfig, re.MULTILINE)
    return found.group(1) if found else ""


def _arguments(kubeconfig: str) -> List[str]:
    """Return the list below ``args:``."""
    block = re.search(r"^\s*args:[ \t]*\n((?:\s*- .*(?:\n|$))+)", kubeconfig, re.MULTILINE)
    lines = block.group(1).splitlines() if block else []
    return [line.strip()[2:].strip().strip("\"'") for line in lines]


def _message(body: bytes) -> str:
    """Return the API server's own error."""
    try:
        return str(json.loads(body).get("message", ""))
    except (ValueError, AttributeError):
        return ""
