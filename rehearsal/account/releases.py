"""Helm releases, as records: what Helm waits for, and which namespaces have to be there."""

from typing import Any

from . import eks
from .books import RELEASE, Books, Inputs, Live, Refused
from .kinds import Kind, register
from .kubernetes import check_namespace
from .pod_nodes import open_nodes


def _release(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    clusters = list(account.find(eks.CLUSTER, by=account.now))
    if not clusters:
        raise Refused("Unreachable", "configured Kubernetes cluster is unreachable: no EKS cluster is up")
    if not i.get("skipAwait") and not open_nodes(account):
        raise Refused("Timeout", f"release {i.get('name')}: timed out waiting for its pods, no node takes them")
    if any(account.find(RELEASE, name=i.get("name"), namespace=i.get("namespace"))):
        raise Refused("AlreadyExists", "cannot re-use a name that is still in use")
    waits = _cert_manager(account, i)
    if waits and not open_nodes(account):
        raise Refused("Timeout", "failed post-install: timed out waiting for the condition")
    return f"{i['namespace']}/{i['name']}", {
        "status": {"status": "deployed", "namespace": i["namespace"], "name": i["name"]}
    }


def _cert_manager(account: Books, i: Inputs) -> bool:
    """Whether cert-manager's job startupapicheck runs, a post-install hook: Helm waits for hooks whatever else it waits
    for (Helm, "Chart Hooks"). Raises Refused where its namespace, which no chart makes, is not there.

    In the HyperPod chart it is off, and in a namespace of its own, unless the values say otherwise.
    """
    values = (i.get("values") or {}).get("cert-manager") or {}
    if not values.get("enabled"):
        return False
    check_namespace(account, values.get("namespace", "cert-manager"))
    return bool((values.get("startupapicheck") or {}).get("enabled", True))


def _update(account: Books, live: Live, i: Inputs) -> dict[str, Any]:
    _cert_manager(account, i)
    return {}


register(
    Kind(
        token=RELEASE,
        create=_release,
        delete=lambda account, live: None,
        update=_update,
        # pulumi-kubernetes: a release is upgraded in place, under its name in its namespace.
        fixed=frozenset({"name", "namespace"}),
    )
)
