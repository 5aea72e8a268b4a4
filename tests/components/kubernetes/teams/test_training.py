"""What the program declares inside of Kubernetes: valid for every version, and no more open than it has to be."""

import json
import subprocess
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from components.catalogue.kubernetes_versions import KUBERNETES_VERSIONS
from components.config import Config
from components.kubernetes.pod_environment import pod_variables
from components.kubernetes.teams.queues import binary_quantity, cluster_queue, flavor, flavor_name, shares
from operations.engine.state import State
from operations.jobs.render import render
from operations.jobs.requests import jobs_of
from rehearsal.account import Account
from rehearsal.engines.deployment import up
from tests.golden import files
from tests.golden.stacks import GOLDEN, account_of, state_of
from tests.support import ROOT, config, everything_before, few_files, of_type, one, plan, project

TEAMS = [
    {"name": "vision", "accelerators": 4},
    {"name": "speech", "roleArns": ["arn:aws:iam::123456789012:role/speech"]},
]


@cache
def _planned(stack: str) -> State:
    return plan(stack, teams=TEAMS).state


def planned(stack: str = "eks-gpu") -> State:
    """What a stack with two teams declares."""
    return _planned(stack)


def objects(state: State) -> list[dict[str, Any]]:
    """Every object of Kubernetes' own API groups, and not the charts or custom resources."""
    found = [r.inputs for r in state.values() if r.type.startswith("kubernetes:") and "apiVersion" in r.inputs]
    return [{key: value for key, value in one.items() if value is not None} for one in found]


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["eks-gpu", "eks-trainium"])
def test_every_object_is_valid_on_every_supported_version(stack: str) -> None:
    with Account("us-west-2") as account, few_files():
        declared = objects(up(project(stack), account).state)
    settings = config(stack)
    jobs = [document for name in jobs_of(settings) for document in render(name, settings)]
    kinds = set()
    for document in (*declared, *jobs):
        if document["apiVersion"].split("/")[0] in ("kueue.x-k8s.io", "kubeflow.org"):
            continue
        for version in KUBERNETES_VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
            kinds.add(document["kind"])
    assert kinds >= {"Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy", "Role", "RoleBinding", "ConfigMap"}
    assert kinds >= {"PersistentVolume", "PersistentVolumeClaim", "StorageClass", "Job"}


def test_nothing_in_the_cluster_holds_up_the_nodes() -> None:
    state = planned()
    before = everything_before(state, one(state, "hyperpod-cluster"))
    assert not [name for name in before if name.startswith("training-")]


def test_kueue_waits_for_nodes_that_come_when_the_cluster_is_in_service() -> None:
    # operations/engine/durations.csv: users report up to 25 minutes until instances are there.
    assert one(planned(), "training-queues-kueue").inputs["timeout"] > 2 * 25 * 60


def test_kueue_leaves_the_jobs_of_sagemakers_operator_to_that_operator() -> None:
    """SageMaker Developer Guide, "Task governance setup": the line of Kueue's file, spelled as the operator's kind."""
    found = {}
    for stack in (planned(), plan("eks-gpu", charts={"hyperpodTrainingOperator": True}).state):
        values = one(stack, "training-queues-kueue").inputs["values"]["managerConfig"]
        integrations = json.loads(values["controllerManagerConfigYaml"])["integrations"]
        assert "kubeflow.org/pytorchjob" in integrations["frameworks"]
        found[stack is planned()] = integrations.get("externalFrameworks")
    assert found == {True: None, False: ["HyperPodPyTorchJob.v1.sagemaker.amazonaws.com"]}


def test_a_namespace_goes_with_its_jobs_before_the_queue_that_they_hold() -> None:
    """Kueue keeps a ClusterQueue that is deleted until no workload holds any of it; what comes first goes last."""
    state = planned()
    for team in ("vision", "speech"):
        namespace, local = one(state, f"training-{team}-namespace"), one(state, f"training-queues-local-{team}")
        assert f"training-queues-queue-{team}" in everything_before(state, namespace)
        # It is in the namespace, and Kueue finishes with a workload without it.
        assert namespace.name in everything_before(state, local)


def test_a_namespace_refuses_privileged_pods_and_every_object_in_it_waits_for_it() -> None:
    state = planned()
    labels = one(state, "training-speech-namespace").inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
    for resource in state.values():
        metadata = resource.inputs.get("metadata") or {}
        if resource.type.startswith("kubernetes:") and metadata.get("namespace") == "speech":
            assert "training-speech-namespace" in everything_before(state, resource)


def test_a_teams_group_has_permissions_only_in_its_own_namespace() -> None:
    state = planned()
    everywhere = [subject for one in of_type(state, "ClusterRoleBinding") for subject in one.inputs["subjects"]]
    assert {subject["name"] for subject in everywhere if subject["kind"] != "ServiceAccount"} == {"system:nodes"}
    binding = one(state, "training-speech-members").inputs
    assert binding["metadata"]["namespace"] == "speech"
    assert [subject["name"] for subject in binding["subjects"]] == ["team:speech"]
    rules = one(state, "training-speech-role").inputs["rules"]
    assert not [rule for rule in rules if "*" in rule["verbs"] or "*" in rule["resources"]]
    writable = {resource for rule in rules if "create" in rule["verbs"] for resource in rule["resources"]}
    assert not writable & {"roles", "rolebindings", "resourcequotas", "limitranges", "networkpolicies"}


def test_each_team_mounts_its_own_directory_and_can_never_delete_it() -> None:
    state = state_of("eks-closed")
    handles = [r.inputs["spec"]["csi"]["volumeHandle"] for r in of_type(state, ":PersistentVolume")]
    # A pod with two volumes of one handle never starts.
    assert len(set(handles)) == len(handles) == 5
    for team in ("vision", "speech"):
        volume = one(state, f"training-{team}-fsx").inputs
        assert volume["spec"]["csi"]["volumeAttributes"]["mountname"].endswith(f"/teams/{team}")
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        assert volume["spec"]["claimRef"] == {"namespace": team, "name": "fsx-claim"}
        claim = one(state, f"training-{team}-fsx-claim").inputs["spec"]
        assert claim["volumeName"] == volume["metadata"]["name"] == f"team-{team}"
        data = one(state, f"training-{team}-data").inputs["spec"]
        assert data["csi"]["volumeAttributes"]["mountname"].endswith("/data")
        assert "ro" in data["mountOptions"]
    root = one(state, "training-directories-fsx").inputs["spec"]
    assert root["claimRef"]["namespace"] == "hyperpod-storage"


def test_a_directory_changes_hands_with_what_is_in_it_and_nothing_that_a_link_names(tmp_path: Path) -> None:
    (container,) = one(planned(), "training-directories-vision").inputs["spec"]["template"]["spec"]["containers"]
    bare, there = tmp_path / "teams" / "vision", tmp_path / "teams"
    changed = tmp_path / "changed"
    # As somebody else's: everybody may run this test, and only root may give files away.
    (stub := tmp_path / "chown").write_text(f'#!/bin/sh\nshift 2\nfor file; do echo "$file" >> {changed}; done\n')
    stub.chmod(0o755)
    command = [part.replace("/fsx/", f"{tmp_path}/") for part in container["command"]]
    for _ in range(2):
        subprocess.run(command, check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
        (bare / "model").touch()
        if not (bare / "link").is_symlink():
            (bare / "link").symlink_to(there)
    assert bare.stat().st_mode & 0o777 == 0o770
    assert there.stat().st_mode & 0o777 == 0o755
    lines = changed.read_text().splitlines()
    assert lines[0] == str(bare)
    # The directory itself comes last, so that an interrupted change begins again.
    assert sorted(lines[1:3]) == [str(bare / "link"), str(bare / "model")]
    assert lines[3:] == [str(bare)]


def test_a_living_teams_claim_moves_to_its_directory_and_keeps_its_size() -> None:
    """As a stack of before the directories was deployed: one volume of the root for each team."""
    before, settings = deepcopy(state_of("eks-closed")), GOLDEN["eks-closed"].settings
    one(before, "training-vision-fsx").inputs["metadata"] = {"name": "fsx-vision"}
    one(before, "training-vision-fsx-claim").inputs["spec"]["volumeName"] = "fsx-vision"
    later = project("eks-gpu", **settings | {"fsx": settings["fsx"] | {"storageGiB": 9600}})
    with account_of("eks-closed") as account, few_files():
        after = up(later, account, old=before, preview=True)
    replaced = {urn.rsplit("::", 1)[-1] for urn, operation in after.changes.items() if operation == "replace"}
    assert replaced == {"training-vision-fsx", "training-vision-fsx-claim"}
    assert one(after.state, "training-vision-fsx-claim").inputs["spec"]["resources"] == {
        "requests": {"storage": "4800Gi"}
    }


@pytest.mark.parametrize("stack", ["eks-gpu", "eks-trainium"])
def test_pods_get_the_variables_that_slurms_jobs_get(stack: str) -> None:
    found = one(state_of(stack), "training-training-environment-workers").inputs["data"]
    node = files.read(ROOT / "tests" / "golden" / "nodes" / stack.replace("eks", "slurm"))["worker"][
        "/etc/hyperpod/task.env"
    ]["text"]
    of_slurm = dict(line.split("=", 1) for line in node.splitlines())
    # A pod has its own network, and its cores are what it asks for.
    own = {"GLOO_SOCKET_IFNAME": "eth0"}
    assert found == {**of_slurm, **own}
    assert found["FI_EFA_USE_DEVICE_RDMA"] == "1"
    assert not {"NCCL_ALGO", "NCCL_PROTO", "NCCL_TREE_THRESHOLD"} & set(found)


def test_where_efa_is_not_certain_pods_use_tcp() -> None:
    group = config("eks-gpu", workers=[{"name": "a", "instanceType": "ml.g5.16xlarge"}]).worker_groups[0]
    assert pod_variables(group)["HYPERPOD_TRANSPORT"] == "tcp"
    assert "FI_PROVIDER" not in pod_variables(group)


def quotas(settings: Config, share: float = 1.0) -> dict[str, dict[str, Any]]:
    (group,) = cluster_queue("a", settings.worker_groups, share)["resourceGroups"]
    return {f["name"]: {r["name"]: r["nominalQuota"] for r in f["resources"]} for f in group["flavors"]}


def test_a_queue_has_what_the_nodes_have() -> None:
    found = quotas(config("eks-gpu", size="medium"))["workers"]
    assert (found["nvidia.com/gpu"], found["vpc.amazonaws.com/efa"], found["cpu"]) == ("64", "256", "768")
    assert found["memory"] == "16Ti"
    half = quotas(config("eks-gpu", size="medium"), 0.5)["workers"]
    assert half["nvidia.com/gpu"] == "32"


def test_queues_together_have_every_device_also_where_one_cannot_be_parted() -> None:
    workers = [{"name": "open", "instanceType": "ml.g6.8xlarge", "count": 1}]
    teams = [{"name": name} for name in ("a", "b", "c")]
    state = plan("eks-gpu", workers=workers, teams=teams).state
    found = []
    for team in teams:
        (group,) = one(state, f"training-queues-queue-{team['name']}").inputs["spec"]["resourceGroups"]
        found.append({r["name"]: r["nominalQuota"] for r in group["flavors"][0]["resources"]})
    assert sum(int(quota["nvidia.com/gpu"]) for quota in found) == 1
    assert sum(int(quota["cpu"]) for quota in found) == 16


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (4096 << 30, "4Ti"), (1152 << 30, "1152Gi"), (10304 << 20, "10304Mi"), (5 << 60, "5120Pi"), (3, "3")],
)
def test_a_quantity_is_spelled_as_the_api_server_writes_it_back(amount: int, text: str) -> None:
    assert binary_quantity(amount) == text


def test_a_queue_covers_everything_that_a_job_asks_for() -> None:
    settings = config("eks-gpu")
    (group,) = cluster_queue("a", settings.worker_groups, 1.0)["resourceGroups"]
    job = render("device-check", settings)[-1]
    asked = set(job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"])
    assert asked <= set(group["coveredResources"])


def test_every_flavor_names_the_same_resources_and_its_own_groups_nodes() -> None:
    workers = [
        {"name": "train", "instanceType": "ml.p5.48xlarge", "count": 2},
        {"name": "dev", "instanceType": "ml.g5.8xlarge", "count": 1,
         "taints": [{"key": "dev", "value": "yes", "effect": "NoSchedule"}]},
    ]  # fmt: skip
    settings = config("eks-gpu", workers=workers)
    found = quotas(settings)
    assert set(found["train"]) == set(found["dev"])
    assert found["dev"]["vpc.amazonaws.com/efa"] == "0"
    taint = {"key": "dev", "value": "yes", "effect": "NoSchedule"}
    assert flavor(settings.worker_groups[1])["nodeTaints"] == [taint]


def test_with_a_topology_every_flavor_has_one_and_a_changed_flavor_has_another_name() -> None:
    """Kueue, ResourceFlavor: "resourceFlavorSpec are immutable when topologyName is set"."""
    taint = {"key": "dev", "value": "yes", "effect": "NoSchedule"}
    train, dev = {"name": "train", "instanceType": "ml.p5.48xlarge"}, {"name": "dev", "instanceType": "ml.g5.8xlarge"}
    near, far = config("eks-gpu", workers=[train, dev]).worker_groups
    tainted = config("eks-gpu", workers=[train, dev | {"taints": [taint]}]).worker_groups[1]
    assert [flavor(one, True)["topologyName"] for one in (near, far)] == ["network", "hosts"]
    assert (flavor(near), flavor_name(near)) == ({"nodeLabels": flavor(near)["nodeLabels"]}, "train")
    names = [flavor_name(one, True) for one in (near, far, tainted)]
    assert len({*names, flavor_name(far)}) == 4
    assert [name.rpartition("-")[0] for name in names] == ["train", "dev", "dev"]
    queue = cluster_queue("a", [near, tainted], 1.0, topology=True)
    assert [one["name"] for one in queue["resourceGroups"][0]["flavors"]] == [names[0], names[2]]


def test_teams_get_what_they_were_promised_and_share_the_rest() -> None:
    assert shares({"a": 4, "b": None, "c": None}, 16) == {"a": 0.25, "b": 0.375, "c": 0.375}
    assert shares({"a": None}, 16) == {"a": 1.0}
    assert sum(shares({"a": 3, "b": None, "c": 5}, 16).values()) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_deleted_namespace_leaves_nothing_behind() -> None:
    with Account("us-west-2") as account:
        deployment = up(project("eks-gpu", teams=[{"name": "vision"}]), account)
        inside = [live.name for live in account.live.values() if live.name.startswith("training-vision-")]
        assert len(inside) > 8
        namespace = one(deployment.state, "training-vision-namespace")
        account.delete(namespace.type, namespace.id)
        left = [live.name for live in account.live.values() if live.name.startswith("training-vision-")]
        assert left == ["training-vision-fsx"]
