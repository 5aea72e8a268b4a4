"""Checks and refusals on a real API server, where one is built (`make kubernetes-tools`)."""

import time
from collections.abc import Iterator

import pytest

from operations.failures import Exit, Failure
from operations.jobs import run as job_run
from operations.jobs.kubernetes_api import KubernetesApi
from operations.jobs.render import render
from rehearsal.kubernetes import binaries
from rehearsal.kubernetes.control_plane import ControlPlane
from tests.support import config

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.xdist_group("api"),  # one control plane for all of them
    pytest.mark.skipif(bool(binaries.missing()), reason="`make kubernetes-tools` was not run here"),
]
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "training"}}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane without nodes."""
    programs = {name: path for name in binaries.PROGRAMS if (path := binaries.find(name))}
    with ControlPlane(programs) as running:
        KubernetesApi.of(running.folder / "admin.kubeconfig").apply(NAMESPACE)
        yield running


@pytest.fixture
def api(plane: ControlPlane) -> KubernetesApi:
    return KubernetesApi.of(plane.folder / "admin.kubeconfig")


def test_an_unknown_field_is_refused_by_name(api: KubernetesApi) -> None:
    (job,) = (one for one in render("device-check", config("eks-gpu")) if one["kind"] == "Job")
    with pytest.raises(Failure, match=r"\.spec\.oops"):
        api.apply({**job, "spec": {**job["spec"], "oops": 1}}, dry_run=True)
    assert api.get(job) is None


def test_a_job_without_its_operator_names_the_configuration_key(api: KubernetesApi) -> None:
    settings = config("eks-gpu")
    with pytest.raises(Failure) as failed:
        job_run.check(api, render("nanogpt", settings), settings)
    assert "hyperpod:charts" in failed.value.hint


def test_a_job_is_submitted_once_watched_and_taken_away(api: KubernetesApi) -> None:
    settings = config("eks-gpu")
    objects, phases = render("device-check", settings), list[str]()
    job_run.check(api, objects, settings)
    job_run.submit(api, objects)
    with pytest.raises(Failure, match="already exists"):
        job_run.check(api, objects, settings)
    with pytest.raises(Failure, match="did not end"):
        job_run.follow(api, objects, lambda _: None, phases.append, 5, pause=0.5)
    assert "0 of 2 pods run; no nodes available" in phases[-1]
    api.delete(objects[0])
    end = time.monotonic() + 20
    while api.get(objects[0]) is not None:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_pod_leaves_its_node_only_as_its_disruption_budget_lets_it(api: KubernetesApi) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "hyperpod-i-1"}}
    labels, place = {"app": "x"}, {"namespace": "training"}
    container = {"name": "x", "image": "x"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "labels": labels, **place},
        "spec": {"nodeName": "hyperpod-i-1", "containers": [container], "terminationGracePeriodSeconds": 0},
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "x", **place},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", **place}}
    for document in (node, budget, account, pod):
        api.apply(document)
    # Nobody's budget holds a pod that has not started.
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    api._core.patch_namespaced_pod_status("x", "training", {"status": ready})
    api.cordon(node, on=True)
    assert (api.get(node) or {})["spec"]["unschedulable"] is True
    assert "Cannot evict pod as it would violate the pod's disruption budget" in api.evict(pod)
    assert api.get(pod) is not None
    api.delete(budget)
    end = time.monotonic() + 20
    while api.evict(pod):
        assert time.monotonic() < end
        time.sleep(0.2)
    assert api.get(pod) is None
    assert api.evict(pod) == "", "it is gone already"
    api.cordon(node, on=False)
    assert not (api.get(node) or {})["spec"].get("unschedulable")
    api.delete(node)


def test_an_identity_without_rights_is_told_so(plane: ControlPlane) -> None:
    nobody = KubernetesApi.of(plane._user("nobody", "team:other", name="nobody"))
    with pytest.raises(Failure, match="cannot patch resource") as failed:
        nobody.apply(render("device-check", config("eks-gpu"))[0])
    assert failed.value.code == Exit.CANNOT_KNOW
