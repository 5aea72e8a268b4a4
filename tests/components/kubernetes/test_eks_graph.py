"""What the program registers for EKS stacks: the control plane, its add-ons, and who may reach it."""

import json
from typing import Any

import pulumi
import pytest

from components.kubernetes.addons import NODE_ADDONS, POD_ADDONS
from operations.engine.state import ResourceState
from tests.golden.stacks import deployed, state_of
from tests.support import everything_before, of_type, one, plan


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
