"""What the pods of a namespace may reach, and who may reach them."""

import json

import pytest

from tests.golden.stacks import state_of
from tests.support import everything_before, of_type, one, plan


@pytest.mark.parametrize("queues", ["kueue", "none"])
def test_strict_policies_leave_the_clusters_own_pods_their_connections(queues: str) -> None:
    charts = {"strictNetworkPolicies": True, "queues": queues, "hyperpodTrainingOperator": True}
    state = plan("eks-gpu", charts=charts).state
    addons = {r.inputs["addonName"]: r.inputs.get("configurationValues", "") for r in of_type(state, "Addon")}
    settings = {"enableNetworkPolicy": "true", "env": {"NETWORK_POLICY_ENFORCING_MODE": "strict"}}
    assert json.loads(addons["vpc-cni"]) == settings
    opened = {r.inputs["metadata"]["namespace"]: r for r in of_type(state, "NetworkPolicy") if r.name.count("open")}
    of_queues = {"kueue-system"} if queues == "kueue" else set()
    assert set(opened) == {"kube-system", "aws-hyperpod", "kubeflow", "cert-manager", "mount-s3"} | of_queues
    for policy in opened.values():
        assert (policy.inputs["spec"]["ingress"], policy.inputs["spec"]["egress"]) == ([{}], [{}])
    # EKS's add-on makes the namespace, and needs nodes itself.
    assert "eks-addons-aws-mountpoint-s3-csi-driver" in everything_before(state, opened.pop("mount-s3"))
    # A node's first pods need names, and cert-manager's serve the webhooks that add-ons call.
    before = everything_before(state, one(state, "hyperpod-cluster"))
    assert {f"eks-open-{namespace}" for namespace in opened} - {"eks-open-kueue-system"} <= before


def test_sagemakers_operator_reaches_the_agents_of_its_jobs_and_nothing_else_of_a_team() -> None:
    """SageMaker Developer Guide, "Using the training operator to run jobs": the agent listens to port 8080."""
    rule = {
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "aws-hyperpod"}}}],
        "ports": [{"port": 8080, "protocol": "TCP"}],
    }
    for stack, there in (("eks-teams", True), ("eks-gpu", False)):
        policies = [r.inputs for r in of_type(state_of(stack), "NetworkPolicy")]
        ingress = [p["spec"]["ingress"] for p in policies if p["metadata"]["name"] == "training"]
        assert ingress
        assert all((rule in rules) is there for rules in ingress)
