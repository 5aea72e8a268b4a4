"""Worker groups, the controller and login nodes that cannot be are refused."""

from typing import Any

import pytest

from tests.components.config.refusals import EKS, GROUP, PLAN, SYSTEM, TAINT, Cases
from tests.golden.stacks import VPC
from tests.support import READY_STACKS, config

FAST = {**GROUP, "instanceType": "ml.p5.48xlarge"}
DEMAND = {**GROUP, "name": "burst", "scaling": "demand"}
BAD: Cases = {
    "EC2's reservation": {
        "workers": [{"name": "w", "instanceType": "ml.g5.16xlarge", "capacityReservationId": "cr-0123456789abcdef0"}]
    },
    "unknown instance type": {"workers": [{**GROUP, "instanceType": "ml.p5.48large"}]},
    "type HyperPod lacks": {"accelerator": "trainium", "workers": [{**GROUP, "instanceType": "ml.trn1.2xlarge"}]},
    "GPU type with trainium": {"accelerator": "trainium"},
    "only CPU types as workers": {"workers": [{**GROUP, "instanceType": "ml.m5.large"}]},
    "unknown controller type": {"controllerInstanceType": "m5.large"},
    "negative count": {"workers": [{**GROUP, "count": -1}]},
    "count as text": {"workers": [{**GROUP, "count": "many"}]},
    "two groups of one name": {"workers": [GROUP, GROUP]},
    "group named as a head node": {"workers": [{**GROUP, "name": "controller"}]},
    "one of two groups named as HyperPod's partition of all nodes": {"workers": [GROUP, {**GROUP, "name": "dev"}]},
    "one of two groups named as Slurm's defaults": {"workers": [{**GROUP, "name": "DEFAULT"}, GROUP]},
    "one of two groups named as their common partition": {"workers": [GROUP, {**GROUP, "name": "gpu"}]},
    "volume too big": {"workers": [{**GROUP, "volumeGiB": 20000}]},
    "a writer that is no role": {
        "security": {"lifecycleWriters": ["arn:aws:sts::123456789012:assumed-role/ci/session"]}
    },
    "a writer of another partition": {"security": {"lifecycleWriters": ["arn:aws-us-gov:iam::123456789012:role/ci"]}},
    "permissions of roles that are not made": {
        "existingRoleArn": "arn:aws:iam::123456789012:role/x",
        "security": {"nodePermissions": "published"},
    },
    "a lifecycle bucket with data": {"fsx": {"linkedBucket": "sagemaker-other-us-west-2-0a1b2c3d"}},
    "access logs among lifecycle scripts": {"security": {"accessLogBucket": "sagemaker-other-us-west-2-0a1b2c3d"}},
    "a group's name with a line below": {"workers": [{**GROUP, "name": "my_workers"}]},
    "a group's name of 64 characters": {"workers": [{**GROUP, "name": "w" * 64}]},
    "more groups than a cluster has": {"workers": [{**GROUP, "name": f"w{number}"} for number in range(99)]},
    "a plan of another region": {"workers": [{**GROUP, "trainingPlanArn": PLAN.replace("us-west-2", "us-east-1")}]},
    "malformed plan ARN": {"workers": [{**GROUP, "trainingPlanArn": "plan"}]},
    "spot with a training plan": {"workers": [{**GROUP, "trainingPlanArn": PLAN, "capacity": "spot"}]},
    "spot without continuous": {"workers": [{**GROUP, "capacity": "spot"}], "nodeProvisioning": ""},
    "negative minimum": {"workers": [{**GROUP, "minCount": -1}]},
    "minimum above count": {"workers": [{**GROUP, "count": 2, "minCount": 3}]},
    "labels with Slurm": {"workers": [{**GROUP, "labels": {"a": "b"}}]},
    "taints with Slurm": {"workers": [{**GROUP, "taints": [TAINT]}]},
    "minimum without continuous": {"workers": [{**GROUP, "count": 2, "minCount": 1}], "nodeProvisioning": ""},
    "demand with Slurm": {"workers": [{**GROUP, "scaling": "demand"}], "autoscaling": {"enabled": True}},
    "demand without Karpenter": {**EKS, "workers": [GROUP, {**DEMAND, "count": 0}]},
    "Karpenter that is off": {**EKS, "workers": [GROUP, DEMAND], "autoscaling": {"enabled": False}},
    "Karpenter without anything that it needs": {
        **EKS,
        "autoscaling": {"enabled": True},
        "nodeProvisioning": "",
        "nodeRecovery": "None",
        "charts": {"healthMonitoring": False},
    },
    "demand with what Karpenter does not take": {
        **EKS,
        "workers": [
            GROUP,
            {**DEMAND, "trainingPlanArn": PLAN, "minCount": 1, "deepHealthChecks": ["InstanceStress"]},
        ],
        "autoscaling": {"enabled": True},
    },
    "Karpenter without a switch": {**EKS, "workers": [GROUP, DEMAND], "autoscaling": {"consolidation": "WhenEmpty"}},
    "Karpenter with wrong values": {
        **EKS,
        "workers": [GROUP, {**DEMAND, "scaling": "auto"}],
        "autoscaling": {
            "enabled": "yes",
            "consolidation": "Always",
            "consolidateAfter": "ten minutes",
            "disruptionBudget": "200%",
        },
    },
    "only groups that follow demand": {**EKS, "workers": [DEMAND], "autoscaling": {"enabled": True}},
    "several types with Slurm": {"workers": [{**GROUP, "fallbackTypes": ["ml.g5.8xlarge"]}]},
    "several types with what AWS describes of one": {
        **EKS,
        "nodeProvisioning": "",
        "charts": {"queues": "task-governance"},
        "workers": [
            {**GROUP, "fallbackTypes": ["ml.g5.8xlarge"], "trainingPlanArn": PLAN},
            {**GROUP, "name": "spot", "fallbackTypes": ["ml.g5.8xlarge"], "capacity": "spot"},
            SYSTEM,
        ],
    },
    "types on which no job could run alike": {
        **EKS,
        "workers": [
            {**FAST, "fallbackTypes": ["ml.g5.16xlarge", "ml.g5.48xlarge", "ml.p6e-gb200.36xlarge", "ml.m5.large"]},
            {**SYSTEM, "fallbackTypes": ["ml.m8g.xlarge"]},
        ],
    },
    "a type twice, one unknown, one without a device plugin": {
        **EKS,
        "workers": [
            {**FAST, "fallbackTypes": ["ml.p5.48xlarge", "ml.p5e", "ml.p7.48xlarge", "ml.g7.48xlarge"]},
            SYSTEM,
        ],
    },
    "more types than a group has": {
        **EKS,
        "workers": [GROUP, {**SYSTEM, "fallbackTypes": [f"ml.m5.{size}xlarge" for size in range(2, 22)]}],
    },
    "too little room on the smallest of several types": {
        **EKS,
        "workers": [GROUP | {"taints": [TAINT]}, {**SYSTEM, "count": 2, "fallbackTypes": ["ml.m5.large"]}],
    },
    "types of which only some are labelled with their place in the network": {
        **EKS,
        "charts": {"topology": True},
        "workers": [{**FAST, "fallbackTypes": ["ml.p6-b200.48xlarge"]}, SYSTEM],
    },
    "login nodes with EKS": {**EKS, "login": {"instanceType": "ml.m5.large"}},
    "lost nodes with EKS": {**EKS, "lostNodeSeconds": 20},
    "controller with EKS": {**EKS, "controllerInstanceType": "ml.m5.large"},
    "controller that HyperPod lacks": {"controllerInstanceType": "ml.trn1.2xlarge"},
    "controller with GPUs": {"controllerInstanceType": "ml.p5.48xlarge"},
    "login nodes with GPUs": {"login": {"instanceType": "ml.g5.8xlarge"}},
    "a node lost at once": {"lostNodeSeconds": 1},
    "type without a device plugin": {
        **EKS,
        "accelerator": "trainium",
        "workers": [{**GROUP, "instanceType": "ml.trn2.3xlarge"}],
    },
    "groups that differ in case alone": {**EKS, "workers": [GROUP, {**GROUP, "name": "Workers"}]},
    "no nodes for the cluster's own": {**EKS, "workers": [{**GROUP, "taints": [TAINT]}]},
    "no nodes at all for the cluster's own": {**EKS, "workers": [{**GROUP, "count": 0}]},
    "no node left beside the accelerators": {**EKS, "workers": [{**GROUP, "count": 0}, {**SYSTEM, "count": 0}]},
    "nothing to train on": {**EKS, "workers": [SYSTEM]},
    "other accelerators on Kubernetes": {**EKS, "workers": [{**GROUP, "instanceType": "ml.trn1.32xlarge"}]},
    "checks of accelerators where there are none": {
        **EKS,
        "workers": [GROUP, {**SYSTEM, "deepHealthChecks": ["InstanceStress"]}],
    },
    "a release of the image that is none": {**EKS, "workers": [{**GROUP, "imageRelease": "2.1"}, SYSTEM]},
    "a release of the image with Slurm": {"workers": [{**GROUP, "imageRelease": "2.1.0"}]},
    "patches by themselves with Slurm": {"workers": [{**GROUP, "autoPatch": "WhenIdle"}]},
    "patches when HyperPod has no such word": {**EKS, "workers": [{**GROUP, "autoPatch": "DrainFirst"}, SYSTEM]},
    "an image that is none": {"workers": [{**GROUP, "imageId": "ubuntu-22.04"}]},
    "an image of one's own with what is for AWS's": {
        **EKS,
        "nodeProvisioning": "",
        "workers": [
            {**GROUP, "imageId": "ami-0123456789abcdef0", "imageRelease": "2.1.0", "autoPatch": "WhenIdle"},
            SYSTEM,
        ],
    },
    "checks of GPUs of a Slurm cluster that has none": {
        "accelerator": "trainium",
        "workers": [{**GROUP, "instanceType": "ml.trn1.32xlarge", "deepHealthChecks": ["InstanceStress"]}],
    },
    "taints with deep health checks": {
        **EKS,
        "workers": [{**GROUP, "deepHealthChecks": ["InstanceStress"], "taints": [TAINT]}, SYSTEM],
    },
    "taint that Neuron's plugin cannot be told of": {
        **EKS,
        "accelerator": "trainium",
        "workers": [
            {**GROUP, "instanceType": "ml.trn1.32xlarge", "taints": [TAINT]},
            {**GROUP, "instanceType": "ml.trn1.32xlarge", "name": "open"},
        ],
    },
    "second thread of a Grace core": {
        "workers": [{**GROUP, "instanceType": "ml.p6e-gb200.36xlarge", "threadsPerCore": 2}]
    },
    "Arm nodes for any pod": {**EKS, "workers": [GROUP, {**SYSTEM, "instanceType": "ml.m8g.xlarge"}]},
    "Enroot's packages on an Arm controller": {
        "controllerInstanceType": "ml.m8g.2xlarge",
        "slurm": {"containers": True, "containerPackages": "tests/golden/containers"},
    },
    "a GPU type that is newer than the chart": {
        **EKS,
        "workers": [{**GROUP, "instanceType": "ml.p7.48xlarge"}, SYSTEM],
    },
    "a GPU type that the chart leaves out": {**EKS, "workers": [{**GROUP, "instanceType": "ml.g4dn.12xlarge"}, SYSTEM]},
    "an UltraServer in a zone of its region": {
        "region": "us-east-1",
        "availabilityZoneId": "",
        "workers": [{**GROUP, "instanceType": "ml.p6e-gb200.36xlarge"}],
    },
    "an UltraServer in another region": {
        "availabilityZoneId": "",
        "network": VPC,
        "workers": [{**GROUP, "instanceType": "ml.p6e-gb200.36xlarge"}],
    },
}


def notes(stack: str = "dev", **settings: Any) -> str:
    return "\n".join(config(stack, **settings).notes)


def test_a_type_that_aws_adds_tomorrow_is_no_refusal_and_what_is_unknown_of_it_is_said() -> None:
    said = notes(workers=[{**GROUP, "instanceType": "ml.p7.48xlarge"}])
    assert "ml.p7.48xlarge is not in the catalogue: no price, and no facts about EFA" in said
    assert "only whole nodes" in said
    assert "ml.p5.48xlarge" in said
    kubernetes: dict[str, Any] = {**EKS, "workers": [GROUP, {**SYSTEM, "instanceType": "ml.m9i.xlarge"}]}
    assert "ml.m9i.xlarge is not in the catalogue" in notes(**kubernetes)
    assert "only whole nodes" not in notes(**kubernetes)


def test_a_newer_type_takes_as_many_addresses_as_any_of_its_kind() -> None:
    def needed(name: str) -> int:
        return config("dev", workers=[{**GROUP, "instanceType": name, "count": 10}]).settings.addresses

    assert needed("ml.p7.48xlarge") == needed("ml.p5.48xlarge")


@pytest.mark.parametrize("count", [1, 8])
def test_several_nodes_without_efa_are_told_their_bandwidth(count: int) -> None:
    said = notes(workers=[{**GROUP, "instanceType": "ml.g5.xlarge", "count": count}])
    assert ("ml.g5.xlarge has no EFA: jobs on several nodes use TCP, at 10 Gbit/s" in said) == (count > 1)


def test_the_ready_stacks_have_nothing_to_be_told_of_their_types() -> None:
    assert [notes(stack) for stack in READY_STACKS] == [""] * len(READY_STACKS)


def test_a_gpu_without_bfloat16_is_named() -> None:
    assert "lack bfloat16" in notes(workers=[{**GROUP, "instanceType": "ml.g4dn.12xlarge"}])


def test_arm_nodes_are_taken_where_aws_has_an_image_and_nothing_here_needs_another() -> None:
    tainted = {"name": "arm", "instanceType": "ml.c8g.4xlarge", "taints": [TAINT]}
    config("dev", **EKS, workers=[GROUP, SYSTEM, tainted])
    config("dev", controllerInstanceType="ml.m8g.2xlarge")
