"""A check that a file system can grow in a running cluster: applies the program's changes to the API server."""

import copy

from components.kubernetes.storage import CLAIM_NAME

from ..checks import CheckFailed, require
from ..patience import until
from .kubectl import Manifest, Refused
from .run import Run

_SECONDS = 30.0
# The message of the admission plugin PersistentVolumeClaimResize.
_REFUSAL = "only dynamically provisioned pvc can be resized"


def file_system_grows(run: Run) -> str:
    """The API server accepts every change of growing the file system, and claims stay bound."""
    changes = [_as_made(run, step.manifest) for step in run.grown if step.manifest]
    require(changes, "growing the file system changes nothing in the cluster")
    try:
        run.kubectl.apply(changes)
    except Refused as refused:
        raise CheckFailed(f"the API server refused {_names(changes)}: {refused}") from None
    require(
        until(lambda: all(_bound(run, where) for where in run.namespaces), _SECONDS), f"a {CLAIM_NAME} is not bound"
    )
    for namespace in run.namespaces:
        _refuses_a_larger_claim(run, namespace)
    sizes = {str(one["spec"]["capacity"]["storage"]) for one in changes if one["kind"] == "PersistentVolume"}
    return f"{_names(changes)} say {', '.join(sorted(sizes))}; the claims are bound as they were made"


def _as_made(run: Run, change: Manifest) -> Manifest:
    """The change of the file system that the stack has. The plan has that of an account of its own, whose ids differ
    where another engine has deployed the stack; a volume's source cannot change."""
    if change["kind"] != "PersistentVolume":
        return change
    name = change["metadata"]["name"]
    live = run.kubectl.get("persistentvolume", name)
    if live is None:
        raise CheckFailed(f"there is no PersistentVolume {name}")
    return {**change, "spec": {**change["spec"], "csi": live["spec"]["csi"]}}


def _bound(run: Run, namespace: str) -> bool:
    claim = run.kubectl.get("pvc", CLAIM_NAME, namespace) or {}
    return bool(claim.get("status", {}).get("phase") == "Bound")


def _refuses_a_larger_claim(run: Run, namespace: str) -> None:
    """Show that the check can fail: like EKS, this server refuses a larger claim."""
    claim = copy.deepcopy(run.kubectl.get("pvc", CLAIM_NAME, namespace) or {})
    claim["spec"]["resources"]["requests"]["storage"] = "1000000Gi"
    claim["metadata"].pop("managedFields", None)
    try:
        run.kubectl.apply([claim], dry_run=True)
    except Refused as refused:
        require(_REFUSAL in str(refused), f"a larger claim was refused for another reason: {refused}")
        return
    raise CheckFailed(f"the API server let {CLAIM_NAME} of {namespace} grow")


def _names(objects: list[Manifest]) -> str:
    return ", ".join(f"{one['kind']} {one['metadata']['name']}" for one in objects)
