"""``job pull``: an image comes to every node of a group, and a node that cannot have it is named."""

from collections.abc import Callable
from typing import Any

import pytest

from operations.failures import Exit
from operations.jobs import pull
from tests.operations.aws import StubbedAws, ended, run, run_json

IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/training@sha256:abc"
HAS: dict[str, Any] = {"imageID": "sha256:abc", "state": {"running": {}}}
NO_START: dict[str, Any] = {"imageID": "sha256:abc", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
PULLS: dict[str, Any] = {"state": {"waiting": {"reason": "ContainerCreating"}}}
REFUSED: dict[str, Any] = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "403 Forbidden"}}}


class Nodes:
    """A Kubernetes API whose DaemonSet has a pod on each of two nodes; with each look the next states."""

    def __init__(self, *looks: tuple[dict[str, Any], ...]) -> None:
        self._looks = iter(looks)
        self.did: list[str] = []

    def apply(self, document: dict[str, Any]) -> None:
        self.applied = document
        self.did.append("apply")

    def get(self, _: Any) -> dict[str, Any]:
        return {"status": {"observedGeneration": 1, "desiredNumberScheduled": 2}}

    def pods(self, *_: Any) -> list[dict[str, Any]]:
        return [
            {"spec": {"nodeName": f"node-{number}"}, "status": {"containerStatuses": [state]}}
            for number, state in enumerate(next(self._looks, ()))
        ]

    def delete(self, document: dict[str, Any]) -> None:
        assert document is self.applied
        self.did.append("delete")


@pytest.fixture
def on_nodes(aws: StubbedAws, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Nodes]:
    def made(*looks: tuple[dict[str, Any], ...]) -> Nodes:
        api = Nodes(*looks)
        monkeypatch.setattr("operations.commands.image.api_of", lambda *_: api)
        return api

    monkeypatch.setattr(pull, "_LOOK_SECONDS", 0.0)
    return made


def test_every_node_gets_the_image_though_its_container_need_not_start(on_nodes: Any) -> None:
    api = on_nodes((), (PULLS, PULLS), (HAS, PULLS), (HAS, NO_START))
    code, out, err = run("job", "pull", "eks-gpu", IMAGE)
    assert code == Exit.GOOD, err
    assert [line for line in err.splitlines() if "nodes of workers" in line] == [
        f"{done} of 2 nodes of workers have the image" for done in (0, 1, 2)
    ]
    assert "every node of workers has the image" in out
    spec = api.applied["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"sagemaker.amazonaws.com/instance-group-name": "workers"}
    assert spec["containers"][0]["image"] == IMAGE
    assert not any("nvidia.com/gpu" in spec["containers"][0]["resources"][kind] for kind in ("requests", "limits"))
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert api.did == ["apply", "delete"]


def test_a_node_that_cannot_pull_is_named_with_its_reason(on_nodes: Any) -> None:
    api = on_nodes((PULLS, REFUSED), (HAS, REFUSED))
    code, found = run_json("job", "pull", "eks-gpu", IMAGE)
    assert (code, found["refused"]) == (Exit.FAILED, {"node-1": "403 Forbidden"})
    assert api.did == ["apply", "delete"]


def test_nothing_stays_behind_where_the_time_is_up(on_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    api = on_nodes(*([(HAS, PULLS)] * 3))
    monkeypatch.setattr("time.monotonic", iter(range(0, 10_000, 40)).__next__)
    _, err = ended(Exit.FAILED, "job", "pull", "eks-gpu", IMAGE, "--timeout", "60")
    assert "1 of 2 nodes of workers have the image after 1 minutes" in err
    assert api.did == ["apply", "delete"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(("dev", IMAGE), "dev runs Slurm"), (("eks-gpu", IMAGE, "-g", "system"), "group system has no accelerators")],
)
def test_pulling_is_for_workers_of_eks(words: tuple[str, ...], said: str) -> None:
    _, err = ended(Exit.BAD_INPUT, "job", "pull", *words)
    assert said in err
