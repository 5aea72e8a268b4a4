"""Kubernetes objects: valid by the published schemas of the cluster's version, and in an existing namespace."""

from functools import cache
from typing import Any

import kubernetes_validate
from kubernetes_validate import utils

from . import eks, karpenter
from .books import RELEASE, Books, Inputs, Live, Refused
from .kinds import Kind, family
from .kubernetes_updates import check_update, replacing_paths
from .pod_nodes import open_nodes

PREFIX = "kubernetes:"
NAMESPACE = "kubernetes:core/v1:Namespace"
# Every cluster has them from the start.
_OWN_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
# Who else makes namespaces: the HyperPod chart, and add-ons of EKS.
_CHART, _ADDON = (
    (RELEASE, "name", "hyperpod-dependencies"),
    ("aws:eks/addon:Addon", "addonName", "aws-mountpoint-s3-csi-driver"),
)
_MAKERS = {"aws-hyperpod": _CHART, "kubeflow": _CHART, "mount-s3": _ADDON}
# API group of custom resources, and the release whose chart defines them; their webhooks need that chart's pods.
_CUSTOM = {"kueue.x-k8s.io": "kueue"}

# Otherwise each check of an object reads the schemas of all kinds again.
utils.schema_contents = cache(utils.schema_contents)
utils.all_versions = cache(utils.all_versions)


def _cluster(account: Books) -> Live:
    found = next(iter(account.find(eks.CLUSTER, by=account.now)), None)
    if found is None:
        raise Refused("Unreachable", "configured Kubernetes cluster is unreachable: no EKS cluster is up")
    return found


def _check(account: Books, i: Inputs) -> None:
    group = i["apiVersion"].split("/")[0]
    if group in karpenter.GROUPS:
        _cluster(account)
        karpenter.check(account, i)
        return
    if group in _CUSTOM:
        _check_custom(account, i, _CUSTOM[group])
        return
    version = str(_cluster(account).inputs["version"])
    try:
        kubernetes_validate.validate({k: v for k, v in i.items() if v is not None}, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path) or "the object"
        raise Refused("Invalid", f"{i['kind']} is invalid: {where}: {error.message}") from None
    except kubernetes_validate.SchemaNotFoundError:
        kind = f"{i['kind']} in version {i['apiVersion']}"
        raise Refused("NotFound", f"no matches for kind {kind} on Kubernetes {version}") from None


def _check_custom(account: Books, i: Inputs, release: str) -> None:
    _cluster(account)
    if next(account.find(RELEASE, by=account.now, name=release), None) is None:
        raise Refused("NotFound", f"no matches for kind {i['kind']} in version {i['apiVersion']}")
    if not open_nodes(account):
        raise Refused("InternalError", f"failed calling webhook of {release}: no endpoints available, no node takes it")


def check_namespace(account: Books, namespace: str | None) -> None:
    """Raises Refused where the namespace is not there."""
    if namespace is None or namespace in _OWN_NAMESPACES:
        return
    if namespace in _MAKERS:
        kind, key, name = _MAKERS[namespace]
        if next(account.find(kind, by=account.now, **{key: name}), None):
            return
    found = account.find(NAMESPACE, by=account.now)
    if not any(live.inputs["metadata"]["name"] == namespace for live in found):
        raise Refused("NotFound", f'namespaces "{namespace}" not found')


def _create(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    _check(account, i)
    metadata = i["metadata"]
    check_namespace(account, metadata.get("namespace"))
    name = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
    there = any(live.id == name and live.inputs.get("kind") == i["kind"] for live in account.live.values())
    # pulumi-kubernetes 4.29.0, release notes: an error, unless the provider was told otherwise.
    if there and not account.upserts:
        raise Refused("AlreadyExists", f"{i['kind']} {name} already exists")
    return name, {"metadata": {**metadata, "uid": account.new_id("uid")}}


def _update(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    _check(account, i)
    check_update(live.inputs, i)
    return {}


def _delete(account: Books, live: Live) -> None:
    """Deleting a namespace deletes everything in it."""
    if live.type != NAMESPACE:
        return
    name = live.inputs["metadata"]["name"]
    for key, one in list(account.live.items()):
        if _namespace(one) == name:
            del account.live[key]


def _namespace(live: Live) -> str | None:
    metadata = live.inputs.get("metadata") if live.type.startswith(PREFIX) else None
    return metadata.get("namespace") if metadata else None


def _kind(token: str) -> Kind | None:
    if not token.startswith(PREFIX):
        return None
    return Kind(token, _create, _delete, _update, fixed=replacing_paths(token))


family(_kind)
