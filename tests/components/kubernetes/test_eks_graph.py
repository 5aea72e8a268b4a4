"""What the program registers for EKS stacks: the control plane, its add-ons, and who may reach it."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pulumi
import pytest

from components.catalogue.kubernetes_versions import DEFAULT_VERSION, KUBERNETES_VERSIONS, addon_version
from components.kubernetes.addons import NODE_ADDONS, POD_ADDONS
from operations.engine.state import ResourceState
from tests.golden.stacks import deployed, state_of
from tests.support import everything_before, of_type, one, plan


def test_eks_groups_carry_labels_taints_and_spot() -> None:
    fast, old = one(state_of("eks-teams"), "hyperpod-cluster").inputs["instanceGroups"]
    assert fast["kubernetesConfig"] == {"labels": {"example.com/line": "fast"}}
    assert old["kubernetesConfig"] == {"taints": [{"key": "example.com/old", "value": "yes", "effect": "NoSchedule"}]}
    assert fast["onStartDeepHealthChecks"] == ["InstanceStress", "InstanceConnectivity"]
    (spot,) = one(state_of("eks-spot"), "hyperpod-cluster").inputs["instanceGroups"]
    assert spot["capacityRequirements"] == {"spot": {}}
    assert spot["minInstanceCount"] == 1


@pytest.mark.parametrize("stack", ["eks-gpu", "eks-trainium"])
def test_eks_brings_no_nodes_no_default_groups_and_only_its_accelerators_plugins(stack: str) -> None:
    state = state_of(stack)
    assert not of_type(state, "NodeGroup") + of_type(state, "ManagedNodeGroup")
    values = one(state, "eks-chart-release").inputs["values"]
    gpu = stack == "eks-gpu"
    assert values["nvidia-device-plugin"]["devicePlugin"]["enabled"] is gpu
    assert values["neuron-device-plugin"]["devicePlugin"]["enabled"] is not gpu
    assert values["global"]["region"] == "us-west-2"
    zones = {one(state, f"network-eks-{letter}", "Subnet").inputs["availabilityZoneId"] for letter in "ab"}
    assert len(zones) == 2


def test_the_control_plane_reaches_what_it_calls_on_nodes() -> None:
    state = state_of("eks-gpu")
    rules = [r for r in of_type(state, "SecurityGroupIngressRule") if r.name.startswith("eks-nodes-")]
    ports = {rule.inputs["fromPort"] for rule in rules}
    # Kueue's webhooks and its aggregated API, metrics-server's aggregated API, kubelet.
    assert ports >= {9443, 8082, 10251, 10250}


@pytest.mark.parametrize(
    "version",
    [pytest.param(v, marks=[pytest.mark.slow] if v != DEFAULT_VERSION else []) for v in KUBERNETES_VERSIONS],
)
def test_every_addon_has_the_version_that_belongs_to_the_clusters(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A day on which EKS has every version of the table.
    monkeypatch.setattr("components.catalogue.kubernetes_versions.today", lambda: date(2026, 11, 25))
    state = plan("eks-gpu", kubernetesVersion=version).state if version != DEFAULT_VERSION else state_of("eks-gpu")
    addons = {r.inputs["addonName"]: r.inputs["addonVersion"] for r in of_type(state, "eks/addon:Addon")}
    assert addons == {addon: addon_version(addon, version) for addon in (*NODE_ADDONS, *POD_ADDONS)}


def test_addons_with_pods_wait_longer_than_the_cluster_that_brings_their_nodes() -> None:
    state = state_of("eks-gpu")
    waits = {r.inputs["addonName"]: minutes(r) for r in of_type(state, "eks/addon:Addon") if r.options}
    assert set(waits) == set(POD_ADDONS)
    assert min(waits.values()) > minutes(one(state, "hyperpod-cluster"))


def minutes(resource: ResourceState) -> int:
    """How long Pulumi waits for its creation."""
    hours, _, rest = resource.options["customTimeouts"]["create"].partition("h")
    return int(hours) * 60 + int(rest.removesuffix("m") or 0)


def test_only_addons_that_call_aws_have_a_role() -> None:
    linked = state_of("eks-closed")
    with_role = {r.inputs["addonName"] for r in of_type(linked, "Addon") if r.inputs.get("podIdentityAssociations")}
    assert with_role == {"vpc-cni", "aws-ebs-csi-driver", "aws-fsx-csi-driver", "aws-mountpoint-s3-csi-driver"}
    unlinked = of_type(state_of("eks-gpu"), "iam/role:Role")
    assert "eks-addons-s3-csi" not in {role.name for role in unlinked}
    policy = json.loads(one(linked, "eks-addons-s3-csi", "RolePolicy").inputs["policy"])
    resources = {resource for statement in policy["Statement"] for resource in statement["Resource"]}
    assert resources == {"arn:aws:s3:::training-data", "arn:aws:s3:::training-data/*"}


def test_the_training_operator_finds_its_role_and_cert_manager_when_it_starts() -> None:
    state = state_of("eks-teams")
    operator = one(state, "eks-addons-amazon-sagemaker-hyperpod-training-operator", "eks/addon:Addon")
    # EKS refuses an association with the add-on.
    assert not operator.inputs.get("podIdentityAssociations")
    (own,) = of_type(state, "PodIdentityAssociation")
    assert (own.inputs["namespace"], own.inputs["serviceAccount"]) == (
        "aws-hyperpod",
        "hp-training-operator-controller-manager",
    )
    policy = one(state, "eks-addons-operator", "RolePolicyAttachment")
    assert {own.name, policy.name, "eks-chart-cert-manager", "eks-chart-release"} <= everything_before(state, operator)
    assert "eks-chart-cert-manager" in everything_before(state, one(state, "eks-chart-release"))
    # Helm waits for a hook's pod, and the nodes for Helm.
    assert one(state, "eks-chart-release").inputs["values"]["cert-manager"]["startupapicheck"] == {"enabled": False}


def test_sagemakers_add_ons_come_when_there_are_nodes_and_no_other_add_on_waits_for_them() -> None:
    """SageMaker Developer Guide, "Task governance setup": a node "must already exist"; the other two ask the same."""
    state = state_of("eks-teams")
    late = {
        r.inputs["addonName"]
        for r in of_type(state, "eks/addon:Addon")
        if "hyperpod-cluster" in everything_before(state, r)
    }
    assert late == {
        "amazon-sagemaker-hyperpod-observability",
        "amazon-sagemaker-hyperpod-taskgovernance",
        "amazon-sagemaker-hyperpod-training-operator",
    }


def test_the_ebs_driver_attaches_volumes_only_to_the_stacks_own_nodes() -> None:
    state = state_of("eks-gpu")
    own = one(state, "eks-addons-ebs-csi", "RolePolicy").inputs["policy"]
    assert "sagemaker:" not in own
    volumes = one(state, "hyperpod-volumes")
    assert volumes.inputs["role"] == one(state, "eks-addons-ebs-csi", "iam/role:Role").inputs["name"]
    # Its resource is the cluster's ARN, which the cluster has once it is there.
    assert "hyperpod-cluster" in everything_before(state, volumes)
    assert not of_type(state_of("slurm-gpu"), "hyperpod-volumes")


def test_the_control_plane_is_created_after_the_address_blocks_of_its_vpc() -> None:
    state = state_of("eks-gpu")
    assert "network-secondary" in everything_before(state, one(state, "eks-cluster-eksCluster"))


def test_the_driver_for_fsx_can_delete_only_what_it_made() -> None:
    policy = json.loads(one(state_of("eks-gpu"), "eks-addons-fsx-csi", "RolePolicy").inputs["policy"])
    (deleting,) = [s for s in policy["Statement"] if "fsx:DeleteFileSystem" in s["Action"]]
    assert deleting["Condition"] == {"Null": {"aws:ResourceTag/CSIVolumeName": "false"}}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"charts": {"hyperpodTrainingOperator": True}, "kubernetesVersion": "1.36"},
            "Kubernetes up to 1.35 for its training operator",
        ),
        ({"observability": {"prometheus": "create"}}, "the largest here that takes any pod is ml.m5.xlarge"),
        ({"observability": {"prometheus": "create", "scraper": "everything"}}, ""),
    ],
)
def test_what_sagemakers_guide_asks_for_beyond_the_stack_is_told(settings: dict[str, Any], said: str) -> None:
    """SageMaker Developer Guide, "Using the HyperPod training operator", "Setting up the ... observability add-on"."""
    told = [warning for warning in plan("eks-gpu", **settings).warnings if warning.startswith("SageMaker's guide")]
    assert len(told) == bool(said)
    assert said in "".join(told)


def test_a_version_that_sagemakers_guide_names_and_a_stack_without_its_add_ons_ask_for_nothing_more() -> None:
    state = state_of("eks-teams")
    assert one(state, "eks-cluster-eksCluster").inputs["version"] == "1.35"
    assert one(state, "eks-addons-amazon-sagemaker-hyperpod-training-operator", "eks/addon:Addon")
    for stack in ("eks-teams", "eks-gpu"):
        assert not [one for one in deployed(stack).warnings if one.startswith("SageMaker's guide")], stack


def test_kubernetes_secrets_are_encrypted_by_a_key_of_the_stack_that_rotates() -> None:
    state = state_of("eks-gpu")
    key = one(state, "eks-secrets")
    assert key.inputs["enableKeyRotation"] is True
    cluster = one(state, "eks-cluster-eksCluster")
    assert cluster.inputs["encryptionConfig"]["resources"] == ["secrets"]
    assert key.name in everything_before(state, cluster)


def test_administrators_and_teams_get_access_entries_and_nothing_waits_for_them() -> None:
    user = "arn:aws:iam::123456789012:role/vision"
    state = state_of("eks-teams")
    entries = {r.inputs["principalArn"]: r.inputs for r in of_type(state, "AccessEntry") if "type" not in r.inputs}
    assert entries[user]["kubernetesGroups"] == ["team:vision"]
    assert one(state, "eks-access-123456789012/vision").inputs["principalArn"] == user
    policy = one(state, "eks-access-123456789012/admin-administrator", "AccessPolicyAssociation")
    assert policy.inputs["policyArn"].endswith("/AmazonEKSClusterAdminPolicy")
    people = {r.name for r in of_type(state, "AccessEntry") if "type" not in r.inputs} | {policy.name}
    assert len(people) == 5
    assert not people & everything_before(state, one(state, "hyperpod-cluster"))


def test_a_closed_eks_pulls_the_charts_public_images_from_the_mirror() -> None:
    registry = "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"
    state = state_of("eks-closed")
    values = one(state, "eks-chart-release").inputs["values"]
    images = [
        values["nvidia-device-plugin"]["image"],
        values["mpi-operator"]["mpiOperator"]["image"],
        values["training-operators"]["image"],
    ]
    assert all(image["repository"].startswith(f"{registry}/") for image in images)


def test_the_kubernetes_api_is_private_until_somebody_names_who_may_reach_it() -> None:
    closed = one(state_of("eks-gpu"), "eks-cluster-eksCluster").inputs["vpcConfig"]
    assert (closed["endpointPublicAccess"], closed["endpointPrivateAccess"]) == (False, True)
    assert any("API is private" in warning for warning in deployed("eks-gpu").warnings)
    opened = one(state_of("eks-teams"), "eks-cluster-eksCluster").inputs["vpcConfig"]
    assert (opened["endpointPublicAccess"], opened["publicAccessCidrs"]) == (True, ["52.95.110.0/24"])
    assert not any("whole internet" in warning for warning in deployed("eks-teams").warnings)
    anybody = plan("eks-gpu", kubernetesApiCidrs=["52.95.110.0/24", "0.0.0.0/0"]).warnings
    assert any("the whole internet reaches the Kubernetes API" in warning for warning in anybody)


@pytest.mark.parametrize("stack", ["eks-gpu", "eks-closed", "eks-teams"])
def test_a_namespace_goes_before_the_nodes_and_add_ons_that_its_pods_and_volumes_need_to_go(stack: str) -> None:
    state = state_of(stack)
    claims = {r.inputs["metadata"]["namespace"] for r in of_type(state, "PersistentVolumeClaim")}
    homes = [r for r in of_type(state, "core/v1:Namespace") if r.inputs["metadata"]["name"] in claims]
    assert len(homes) == len(claims) >= 2
    addons = {f"eks-addons-{addon}" for addon in (*NODE_ADDONS, *POD_ADDONS)}
    for home in homes:
        assert {"hyperpod-cluster", "hyperpod-volumes", *addons} <= everything_before(state, home)
        # An add-on that only collects metrics must not keep teams from their namespaces.
        assert "eks-addons-amazon-sagemaker-hyperpod-observability" not in everything_before(state, home)


def test_task_governance_outlives_the_namespaces_whose_workloads_it_finishes() -> None:
    state = state_of("eks-teams")
    teams = [r for r in of_type(state, "core/v1:Namespace") if r.inputs["metadata"]["name"].startswith("hyperpod-ns-")]
    assert teams
    for team in teams:
        assert "eks-addons-amazon-sagemaker-hyperpod-taskgovernance" in everything_before(state, team)


def test_the_add_ons_that_nodes_need_are_there_before_them_and_go_after_them() -> None:
    """SageMaker Developer Guide, "Deleting a SageMaker HyperPod cluster": HyperPod's resources first, then EKS's."""
    state = state_of("eks-gpu")
    assert {f"eks-addons-{addon}" for addon in NODE_ADDONS} <= everything_before(state, one(state, "hyperpod-cluster"))


def test_all_of_eks_belongs_to_its_component() -> None:
    owners = {r.name: r.parent.rpartition("::")[2] for r in state_of("eks-gpu").values() if not r.in_account}
    assert (owners["training"], owners["images"]) == ("eks", "eks")


def test_a_component_registers_its_outputs_after_its_last_child(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: set[int] = set()
    late: list[str] = []
    begin, end = pulumi.Resource.__init__, pulumi.ComponentResource.register_outputs

    def made(self: Any, kind: str, name: str, *args: Any, **options: Any) -> None:
        opts = options.get("opts") or next((one for one in args if isinstance(one, pulumi.ResourceOptions)), None)
        if opts is not None and id(opts.parent) in finished:
            late.append(name)
        begin(self, kind, name, *args, **options)

    def ended(self: pulumi.ComponentResource, outputs: Any) -> None:
        finished.add(id(self))
        end(self, outputs)

    monkeypatch.setattr(pulumi.Resource, "__init__", made)
    monkeypatch.setattr(pulumi.ComponentResource, "register_outputs", ended)
    plan("eks-gpu", charts={"hyperpodTrainingOperator": True}, tags={"made": "for this test"})
    assert len(finished) > 10
    assert late == []
