"""Changes of Kubernetes objects for which pulumi-kubernetes replaces them, or which the API server refuses."""

import re

from .books import Inputs, Refused
from .replacement import replacing

_NAMED = frozenset({"apiVersion", "kind", "metadata/name", "metadata/namespace"})
# github.com/pulumi/pulumi-kubernetes, provider/pkg/provider/diff.go (forceNewProperties); claims' requests are patched
# since its pull request 1705, and a ConfigMap's data replaces it unless the provider is told otherwise (issue 1567).
_REPLACES = {
    "ConfigMap": ("data", "binaryData"),
    "Secret": ("data", "stringData", "type"),
    "PersistentVolume": ("spec/csi", "spec/nfs", "spec/hostPath", "spec/local"),
    "PersistentVolumeClaim": ("spec/accessModes", "spec/selector", "spec/storageClassName", "spec/volumeName"),
    "Job": ("spec/selector", "spec/template"),
    "ResourceQuota": ("spec/scopes",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "StorageClass": ("parameters", "provisioner"),
}
# Fields that the API server calls immutable and the provider still patches: Kubernetes API reference, StorageClass
# ("updates to ... are forbidden") and PersistentVolume ("nodeAffinity is immutable").
_IMMUTABLE = {
    "StorageClass": ("reclaimPolicy", "volumeBindingMode"),
    "PersistentVolume": ("spec/nodeAffinity", "spec/volumeMode"),
    "PersistentVolumeClaim": ("spec/volumeMode", "spec/dataSource"),
}


def replacing_paths(token: str) -> frozenset[str]:
    """The paths of fields whose change replaces the object."""
    return _NAMED | frozenset(_REPLACES.get(token.rsplit(":", 1)[-1], ()))


def check_update(old: Inputs, new: Inputs) -> None:
    """Raise Refused for a change that the API server does not accept."""
    kind = str(new["kind"])
    if fixed := replacing(frozenset(_IMMUTABLE.get(kind, ())), old, new):
        raise Refused("Invalid", f"{kind} {new['metadata']['name']} is invalid: {', '.join(fixed)}: field is immutable")
    if kind == "PersistentVolumeClaim":
        _check_claim(old, new)


def _check_claim(old: Inputs, new: Inputs) -> None:
    """Kubernetes documentation, "Expanding Persistent Volumes Claims", and the admission plugin
    PersistentVolumeClaimResize: only what a class provisioned grows, and nothing shrinks."""
    before, after = _requested(old), _requested(new)
    if before == after:
        return
    name = new["metadata"]["name"]
    if after < before:
        raise Refused("Invalid", f"PersistentVolumeClaim {name} is invalid: field can not be less than previous value")
    if not new["spec"].get("storageClassName"):
        raise Refused(
            "Forbidden",
            f'persistentvolumeclaims "{name}" is forbidden: only dynamically provisioned pvc can be resized and the '
            "storageclass that provisions the pvc must support resize",
        )


def _requested(claim: Inputs) -> float:
    text = str(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0"))
    number, unit = re.fullmatch(r"([0-9.]+)([KMGTP]i?)?", text).groups()  # type: ignore[union-attr]
    return float(number) * _UNITS[unit or ""]


_UNITS: dict[str, float] = {"": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    _UNITS |= {_letter: 1000**_power, f"{_letter}i": 1024**_power}
