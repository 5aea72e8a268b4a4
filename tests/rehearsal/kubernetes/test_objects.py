"""The program's Kubernetes objects, in an order in which they can be created."""

from typing import Any

from operations.engine.state import ResourceState
from rehearsal.kubernetes.objects import Release, plan

RELEASE = "kubernetes:helm.sh/v3:Release"


def _resource(name: str, type_token: str, start: float, finish: float, /, **inputs: Any) -> ResourceState:
    return ResourceState(
        urn=name, type=type_token, name=name, custom=True, parent="", inputs=inputs, start=start, finish=finish
    )


def _state(*resources: ResourceState) -> dict[str, ResourceState]:
    return {resource.urn: resource for resource in resources}


CLUSTER = _resource("cluster", "aws-native:sagemaker:Cluster", 100, 900)


def test_what_starts_before_the_cluster_is_up_must_do_without_nodes() -> None:
    early = _resource("early", "kubernetes:core/v1:Namespace", 50, 51, metadata={"name": "a"})
    late = _resource("late", "kubernetes:core/v1:Namespace", 900, 901, metadata={"name": "b"})
    found = plan(_state(late, CLUSTER, early))
    assert [step.name for step in found.before_nodes] == ["early"]
    assert [step.name for step in found.after_nodes] == ["late"]


def test_a_dependency_comes_first_among_resources_of_the_same_second() -> None:
    namespace = _resource("namespace", "kubernetes:core/v1:Namespace", 50, 50, metadata={"name": "a"})
    quota = _resource("quota", "kubernetes:core/v1:ResourceQuota", 50, 50, metadata={"name": "q"})
    quota.dependencies = ("namespace",)
    assert [step.name for step in plan(_state(quota, namespace, CLUSTER)).steps] == ["namespace", "quota"]


def test_whole_numbers_are_integers_again() -> None:
    quota = _resource("quota", "kubernetes:core/v1:ResourceQuota", 0, 0, metadata={"name": "q"}, spec={"hard": [2.0]})
    step = plan(_state(quota, CLUSTER)).steps[0]
    assert step.manifest is not None
    assert step.manifest["spec"] == {"hard": [2]}
    assert isinstance(step.manifest["spec"]["hard"][0], int)


def test_a_release_is_read_with_what_helm_needs_to_know() -> None:
    release = _resource(
        "chart", RELEASE, 0, 0, name="r", namespace="n", chart="./c", skipAwait=True, takeOwnership=True, timeout=600.0
    )
    assert plan(_state(release, CLUSTER)).steps[0].release == Release(
        name="r", namespace="n", chart="./c", wait=False, timeout=600, take_ownership=True
    )


def test_aws_resources_and_providers_are_none_of_kubernetes_business() -> None:
    provider = _resource("provider", "pulumi:providers:kubernetes", 0, 0)
    assert plan(_state(CLUSTER, provider)).steps == ()
