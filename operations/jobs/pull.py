"""Pulls a container image to every node of a worker group, so that the first job does not wait for it."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from components.config import Config, InstanceGroup
from components.kubernetes.node_placement import GROUP_LABEL
from components.kubernetes.pod_resources import tolerations

from ..failures import Failure
from .run import Api, Object

NAME = "hyperpod-image-pull"
_LABELS = {"app.kubernetes.io/name": NAME}
_LOOK_SECONDS = 5.0
# The kubelet tries again for ever (Kubernetes, "Images", ImagePullBackOff): a name that is wrong stays so.
_REFUSED = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName")
OnProgress = Callable[[int, int], None]


def pull(
    api: Api, config: Config, group: InstanceGroup, image: str, timeout: float, on_progress: OnProgress
) -> dict[str, str]:
    """Pull ``image`` to the group's nodes by a DaemonSet, which is deleted then. Returns why it failed, by node.

    ``timeout`` in seconds. Raises Failure where the time is up.
    """
    settings = config.settings
    document = daemon_set(settings.namespace_of(settings.namespaces[0].name), group, image)
    api.apply(document)
    try:
        return _follow(api, document, group, timeout, on_progress)
    finally:
        api.delete(document)


def daemon_set(namespace: str, group: InstanceGroup, image: str) -> Object:
    """A pod on each node of the group, without devices. It need not start: its image is pulled before."""
    asked = {"cpu": "10m", "memory": "64Mi"}
    container = {"name": "pull", "image": image, "command": ["sleep", "infinity"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": _LABELS},
            "template": {
                "metadata": {"labels": _LABELS},
                "spec": {
                    "nodeSelector": {GROUP_LABEL: group.name},
                    "tolerations": tolerations([group]),
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": False,
                    "containers": [
                        container | {"imagePullPolicy": "Always", "resources": {"requests": asked, "limits": asked}}
                    ],
                },
            },
        },
    }


def _follow(
    api: Api, document: Object, group: InstanceGroup, timeout: float, on_progress: OnProgress
) -> dict[str, str]:
    deadline, namespace = time.monotonic() + timeout, document["metadata"]["namespace"]
    done, wanted = -1, 0
    while True:
        status = (api.get(document) or {}).get("status", {})
        pods = api.pods(namespace, _LABELS)
        pulled, refused = sum(map(_pulled, pods)), dict(_refusals(pods))
        # The controller counts the nodes before it makes the pods.
        wanted = int(status.get("desiredNumberScheduled", 0))
        if pulled != done:
            done = pulled
            on_progress(done, wanted)
        if status.get("observedGeneration") and pulled + len(refused) >= wanted:
            return refused
        if time.monotonic() > deadline:
            raise Failure(
                f"{done} of {wanted} nodes of {group.name} have the image after {timeout / 60:g} minutes",
                "again with a longer --timeout: nodes keep the layers that they have",
            )
        time.sleep(_LOOK_SECONDS)


def _container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(iter(pod.get("status", {}).get("containerStatuses", [])), {})


def _pulled(pod: Mapping[str, Any]) -> bool:
    """Whether its node has the image: a container that has started, or tried to, has an image's id."""
    return bool(_container(pod).get("imageID"))


def _refusals(pods: list[Object]) -> Iterator[tuple[str, str]]:
    for pod in pods:
        waiting = _container(pod).get("state", {}).get("waiting", {})
        if waiting.get("reason") in _REFUSED and not _pulled(pod):
            yield pod["spec"].get("nodeName", "?"), waiting.get("message") or waiting["reason"]
