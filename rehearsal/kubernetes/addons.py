"""The workloads of EKS's add-ons from addons.yaml, with the stack's configuration.

EKS applies them, not the program, so they are not the program's resources. Their containers do not run here; only
where the scheduler puts their pods matters.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.common.documents import load
from components.kubernetes.addons import S3_DRIVER, S3_NAMESPACE
from operations.engine.state import ResourceState

from .kubectl import Manifest

_ADDON = "aws:eks/addon:Addon"
_NAMESPACE = "kube-system"
# Runs as soon as it is scheduled, and does nothing.
_IMAGE = "addon.invalid/played:1"


def manifests(state: Mapping[str, ResourceState]) -> tuple[Manifest, ...]:
    """The workloads and namespaces of every add-on that the stack declares."""
    known: dict[str, list[dict[str, Any]]] = load(Path(__file__).with_name("addons.yaml").read_text())
    found = []
    for resource in state.values():
        if resource.type == _ADDON:
            configured = json.loads(resource.inputs.get("configurationValues") or "{}")
            name = resource.inputs["addonName"]
            if name == S3_DRIVER:
                found.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": S3_NAMESPACE}})
            found += [_workload(one, configured) for one in known.get(name, ())]
    return tuple(found)


def _workload(facts: Mapping[str, Any], configured: Mapping[str, Any]) -> Manifest:
    given = {what: _at(configured, path) for what, path in facts.get("configured", {}).items()}
    tolerations = given.get("tolerations") or facts["tolerations"]
    if given.get("everywhere"):
        tolerations = [{"operator": "Exists"}]
    critical = "system-node-critical" if facts["kind"] == "DaemonSet" else "system-cluster-critical"
    pod: dict[str, Any] = {
        "priorityClassName": critical,
        "tolerations": tolerations,
        "containers": [{"name": "addon", "image": _IMAGE, "resources": {"requests": facts["requests"]}}],
    }
    if affinity := given.get("affinity"):
        pod["affinity"] = affinity
    spec: dict[str, Any] = {
        "selector": {"matchLabels": facts["labels"]},
        "template": {"metadata": {"labels": facts["labels"]}, "spec": pod},
    }
    if "replicas" in facts:
        spec["replicas"] = facts["replicas"]
    metadata = {"name": facts["name"], "namespace": _NAMESPACE}
    return {"apiVersion": "apps/v1", "kind": facts["kind"], "metadata": metadata, "spec": spec}


def _at(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values
