"""The part of the Kubernetes API that running jobs needs. Its refusals are raised as Failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import kubernetes
import urllib3
import yaml
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from kubernetes.dynamic import DynamicClient

from ..failures import Failure, bad_input, cannot_know
from .specs import NAME_LABEL

_FIELD_MANAGER = "hyperpod-operations"
_TIMEOUT_SECONDS = 30
_PAGE = 500
_REACH = "can this machine reach the Kubernetes API? Set hyperpod:kubernetesApiCidrs, or run this inside the VPC"

Object = dict[str, Any]


class KubernetesApi:
    """One cluster. Every method raises Failure, never the client's own errors."""

    def __init__(self, client: kubernetes.client.ApiClient) -> None:
        self._core = kubernetes.client.CoreV1Api(client)
        with _in_our_terms("the cluster"):
            self._dynamic = DynamicClient(client)

    @staticmethod
    def of(kubeconfig: str | Path) -> KubernetesApi:
        """From a kubeconfig's text or file. Raises Failure where it cannot be used."""
        try:
            if isinstance(kubeconfig, Path):
                client = kubernetes.config.new_client_from_config(str(kubeconfig))
            else:
                client = kubernetes.config.new_client_from_config_dict(yaml.safe_load(kubeconfig))
        except (ConfigException, OSError, yaml.YAMLError, TypeError, AttributeError) as error:
            where = f"{kubeconfig}" if isinstance(kubeconfig, Path) else "the kubeconfig"
            raise bad_input(
                f"{where} cannot be used: {error}", "create one: hyperpod kubeconfig STACK --write FILE"
            ) from None
        return KubernetesApi(client)

    def apply(self, document: Object, *, dry_run: bool = False) -> None:
        """Server-side apply, with unknown fields refused."""
        query = [("fieldValidation", "Strict")]
        with _in_our_terms(_name(document)):
            self._kind(document).server_side_apply(
                body=document,
                field_manager=_FIELD_MANAGER,
                force_conflicts=True,
                dry_run="All" if dry_run else None,
                query_params=query,
                _request_timeout=_TIMEOUT_SECONDS,
            )

    def get(self, document: Object) -> Object | None:
        """The current object, or None."""
        metadata = document["metadata"]
        with _in_our_terms(_name(document)):
            try:
                found = self._kind(document).get(
                    name=metadata["name"],
                    namespace=metadata.get("namespace"),
                    _request_timeout=_TIMEOUT_SECONDS,
                )
            except ApiException as error:
                if error.status == 404:
                    return None
                raise
        return dict(found.to_dict())

    def listed(self, api_version: str, kind: str, namespace: str, **which: str) -> list[Object]:
        """A namespace's objects of a kind."""
        with _in_our_terms(f"{kind} in {namespace}"):
            found = self._kind({"apiVersion": api_version, "kind": kind}).get(
                namespace=namespace, _request_timeout=_TIMEOUT_SECONDS, **which
            )
            items: list[Object] = found.to_dict()["items"]
        return items

    def labelled(self, api_version: str, kind: str, namespace: str) -> list[Object]:
        """A namespace's objects of a kind that are labelled with their own name, as this project's jobs are."""
        items = self.listed(api_version, kind, namespace, label_selector=NAME_LABEL)
        ours = [one for one in items if one["metadata"]["labels"][NAME_LABEL] == one["metadata"]["name"]]
        return [{**one, "apiVersion": api_version, "kind": kind} for one in ours]

    def delete(self, document: Object) -> None:
        """Delete an object and what belongs to it, if it exists."""
        metadata = document["metadata"]
        with _in_our_terms(_name(document)):
            try:
                self._kind(document).delete(
                    name=metadata["name"],
                    namespace=metadata.get("namespace"),
                    body={"propagationPolicy": "Foreground"},
                    _request_timeout=_TIMEOUT_SECONDS,
                )
            except ApiException as error:
                if error.status != 404:
                    raise

    def pods(self, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """The pods with these labels, oldest first."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        with _in_our_terms(f"pods in {namespace}"):
            found = self._core.list_namespaced_pod(
                namespace, label_selector=selector, _request_timeout=_TIMEOUT_SECONDS
            )
            items = [self._core.api_client.sanitize_for_serialization(pod) for pod in found.items]
        return sorted(items, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def nodes(self) -> list[Object]:
        """Every node of the cluster."""
        return self._all("nodes", self._core.list_node)

    def all_pods(self) -> list[Object]:
        """The pods of all namespaces."""
        return self._all("pods", self._core.list_pod_for_all_namespaces)

    def cordon(self, node: Object, *, on: bool) -> None:
        """Keep new pods off a node, or let them come again."""
        name = node["metadata"]["name"]
        with _in_our_terms(f"Node {name}"):
            self._core.patch_node(name, {"spec": {"unschedulable": on}}, _request_timeout=_TIMEOUT_SECONDS)

    def evict(self, pod: Object) -> str:
        """Ask for a pod's end. Returns why it must stay for now, such as its disruption budget's word, or nothing."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        with _in_our_terms(f"pod {name}"):
            try:
                self._core.create_namespaced_pod_eviction(name, namespace, body, _request_timeout=_TIMEOUT_SECONDS)
            except ApiException as error:
                if error.status == 429:
                    return _said(error)
                if error.status != 404:
                    raise
        return ""

    def _all(self, what: str, listing: Callable[..., Any]) -> list[Object]:
        """Every item of a listing, page by page."""
        items: list[Object] = []
        token: str | None = None
        with _in_our_terms(what):
            while token is None or token:
                found = listing(limit=_PAGE, _continue=token, _request_timeout=_TIMEOUT_SECONDS)
                items += [self._core.api_client.sanitize_for_serialization(one) for one in found.items]
                token = found.metadata._continue or ""
        return items

    def log(self, pod: Object, *, last_seconds: int | None = None) -> list[str]:
        """What a pod's first container said, or said in the last seconds: lines, each behind its time in RFC 3339.

        Empty where the pod is gone or its container has not started.
        """
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        # The client leaves out a parameter that is not given, and sends one that is None.
        since = {} if last_seconds is None else {"since_seconds": last_seconds}
        with _in_our_terms(f"log of {name}"):
            try:
                answer = self._core.read_namespaced_pod_log(
                    name,
                    namespace,
                    container=pod["spec"]["containers"][0]["name"],
                    timestamps=True,
                    # Its own decoding would take a log that is JSON for a document.
                    _preload_content=False,
                    _request_timeout=_TIMEOUT_SECONDS,
                    **since,
                )
                text: str = answer.data.decode(errors="replace")
            except ApiException as error:
                if error.status in (400, 404):
                    return []
                raise
        # Not splitlines: progress bars and the like contain other line separators.
        return [line for line in text.split("\n") if line]

    def _kind(self, document: Object) -> Any:
        return self._dynamic.resources.get(api_version=document["apiVersion"], kind=document["kind"])


def _name(document: Object) -> str:
    metadata = document["metadata"]
    where = f" in {metadata['namespace']}" if metadata.get("namespace") else ""
    return f"{document['kind']} {metadata['name']}{where}"


@contextmanager
def _in_our_terms(what: str) -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        raise _refusal(what, error) from None
    except kubernetes.dynamic.exceptions.ResourceNotFoundError:
        raise Failure(
            f"{what}: the cluster does not know this kind of object",
            "its operator is not installed: hyperpod:charts, and `pulumi up`",
        ) from None
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise cannot_know(f"the Kubernetes API cannot be reached: {error}", _REACH) from None


def _refusal(what: str, error: ApiException) -> Failure:
    said = _said(error)
    if error.status == 401:
        return cannot_know(
            f"{what}: the API does not know this identity",
            "hyperpod:teams or hyperpod:administratorRoleArns must name your role",
        )
    if error.status == 403:
        return cannot_know(f"{what}: {said}", "use a namespace of your team, or ask an administrator")
    if error.status == 503:
        return cannot_know(f"{what}: {said}")
    return Failure(f"{what}: {said}")


def _said(error: ApiException) -> str:
    with suppress(yaml.YAMLError, KeyError, TypeError, AttributeError):
        return str(yaml.safe_load(error.body)["message"])
    return str(error.reason)
