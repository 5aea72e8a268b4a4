"""What cannot be on EKS is refused."""

import re

import yaml
from moto.ec2.models.instance_types import INSTANCE_TYPES

from components.catalogue.accelerators import CATALOGUE
from components.common.documents import load
from components.kubernetes.checks import RESERVED
from components.kubernetes.pod_room import CLUSTER_PODS
from tests.components.config.refusals import EKS, GROUP, ROLE, Cases, told
from tests.golden.stacks import GOLDEN, state_of
from tests.support import ROOT, config

BAD: Cases = {
    "one small node for all of the cluster's pods": {
        **EKS,
        "workers": [{"name": "workers", "instanceType": "ml.g5.xlarge", "count": 1}],
    },
    "no small number of such nodes": {
        **EKS,
        "workers": [GROUP | {"count": 0}, {"name": "system", "instanceType": "ml.t3.medium", "count": 3}],
    },
    "Kubernetes version": {**EKS, "kubernetesVersion": "1.29"},
    "Kubernetes version with Slurm": {"kubernetesVersion": "1.33"},
    "API's blocks with Slurm": {"kubernetesApiCidrs": ["203.0.113.0/24"]},
    "authentication mode with Slurm": {"authenticationMode": "API_AND_CONFIG_MAP"},
    "Kubernetes version EKS lacks": {**EKS, "kubernetesVersion": "1.30"},
    "unknown authentication mode": {**EKS, "authenticationMode": "CONFIG_MAP"},
    "team that cannot name a namespace": {**EKS, "teams": [{"name": "Research"}]},
    "teams with the names of what else there is": {**EKS, "teams": [{"name": name} for name in RESERVED]},
    # Found by trying names.
    "two teams with one user id": {**EKS, "teams": [{"name": "team-138"}, {"name": "team-152"}]},
    "replaced by nobody": {**EKS, "healthPolicy": "replace", "nodeRecovery": "None"},
    "rebooted by nobody on Slurm": {"healthPolicy": "reboot", "nodeRecovery": "None"},
    "more groups than flavors": {
        **EKS,
        "workers": [GROUP | {"name": f"g{number}", "count": 0} for number in range(64)]
        + [{"name": "system", "instanceType": "ml.m5.xlarge", "count": 3}],
    },
    "less memory for checkpoints than SageMaker's minimum": {**EKS, "charts": {"checkpointMemoryPercent": 19}},
    "more memory for checkpoints than jobs can spare, in a closed network": {
        **EKS,
        "network": {"egress": "vpc-only"},
        "charts": {"checkpointMemoryPercent": 81},
    },
    "checkpoints in memory with Slurm": {"charts": {"checkpointMemoryPercent": 30}},
    "strict without policies": {**EKS, "charts": {"networkPolicies": False, "strictNetworkPolicies": True}},
    "strict with task governance": {**EKS, "charts": {"queues": "task-governance", "strictNetworkPolicies": True}},
    "topology of nobody's": {
        **EKS,
        "charts": {"queues": "none", "topology": True},
        "workers": [GROUP | {"instanceType": "ml.g6.48xlarge"}],
    },
    "topology of nodes that are not there": {
        **EKS,
        "workers": [GROUP, {"name": "gpus", "instanceType": "ml.p5.48xlarge", "scaling": "demand"}],
        "autoscaling": {"enabled": True},
        "charts": {"topology": True},
    },
    "topology with task governance": {**EKS, "charts": {"queues": "task-governance", "topology": True}},
    "a weight without task governance": {**EKS, "teams": [{"name": "a", "fairShareWeight": 1}]},
    "one bucket twice": {**EKS, "teams": [{"name": "a", "buckets": [{"name": "data"}, {"name": "data"}]}]},
    "folder without a slash": {**EKS, "teams": [{"name": "a", "buckets": [{"name": "data", "prefix": "/tokens"}]}]},
    "two teams of one name": {**EKS, "teams": [{"name": "a"}, {"name": "a"}]},
    "team of users": {**EKS, "teams": [{"name": "a", "roleArns": ["arn:aws:iam::123456789012:user/me"]}]},
    "one role in two teams": {**EKS, "teams": [{"name": name, "roleArns": [ROLE]} for name in ("a", "b")]},
    "administrator of another partition": {**EKS, "administratorRoleArns": [ROLE.replace(":aws:", ":aws-cn:")]},
    "team of another partition": {**EKS, "teams": [{"name": "a", "roleArns": [ROLE.replace(":aws:", ":aws-cn:")]}]},
    "more accelerators promised than there are": {**EKS, "teams": [{"name": "a", "accelerators": 3}]},
    "NeuronCores without Neuron": {**EKS, "charts": {"neuronScheduler": True}},
    "agent without its namespace": {**EKS, "charts": {"deepHealthCheck": False}},
    "training operator without its namespace": {
        **EKS,
        "charts": {
            "hyperpodTrainingOperator": True,
            "healthMonitoring": False,
            "jobAutoRestart": False,
            "deepHealthCheck": False,
        },
    },
    "cert-manager out of reach": {
        **EKS,
        "charts": {"hyperpodTrainingOperator": True, "queues": "none"},
        "network": {"egress": "vpc-only", "imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"},
    },
    "notebooks in strict and closed networks": {
        **EKS,
        "charts": {"spaces": True, "queues": "none", "strictNetworkPolicies": True},
        "network": {"egress": "vpc-only", "imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"},
    },
    "unknown chart": {**EKS, "charts": {"kubeflow": True}},
    "charts and administrators with Slurm": {"charts": {"mpiOperator": False}, "administratorRoleArns": [ROLE]},
    "teams with Slurm": {"teams": [{"name": "a"}]},
    "bad API block": {**EKS, "kubernetesApiCidrs": ["anywhere"]},
    "private API block": {**EKS, "kubernetesApiCidrs": ["10.0.0.0/8"]},
    "API block of documentation": {**EKS, "kubernetesApiCidrs": ["203.0.113.0/24"]},
    "API address": {**EKS, "kubernetesApiCidrs": ["52.95.110.1"]},
    "team too long for its quota": {
        **EKS,
        "clusterName": "short",
        "charts": {"queues": "task-governance"},
        "teams": [{"name": "a" * 52}],
    },
    "team too long beside the cluster's name": {
        **EKS,
        "clusterName": "a" * 20,
        "charts": {"queues": "task-governance"},
        "teams": [{"name": "a" * 43}],
    },
}


def test_a_type_on_which_the_chart_starts_no_device_plugin_is_refused_and_no_other() -> None:
    """By the types that the HyperPod chart's DaemonSets name; those of EFA's are a value, which the stack sets."""
    values = yaml.safe_load((ROOT / "rehearsal/kubernetes/stand_in_chart/values.yaml").read_text())["standIn"]
    there = {
        plugin: {f"{family}.{size}" for family, sizes in values[plugin].items() for size in sizes}
        for plugin in ("nvidia", "neuronDevicePlugin")
    }
    for name, row in CATALOGUE.items():
        if not row.accelerator or not row.hyperpod:
            continue
        wanted = "nvidia" if row.accelerator == "gpu" else "neuronDevicePlugin"
        group = {"name": "workers", "instanceType": name, "count": 1}
        said = told({**EKS, "accelerator": row.accelerator, "workers": [group]})
        refused = any("starts no device plugin" in problem for problem in said)
        assert refused is (name not in there[wanted]), name


def test_the_pods_that_need_room_are_those_that_the_rehearsal_starts() -> None:
    """Requests in their smallest form: 100m, 70Mi; none is none."""
    there = {
        (pods["name"], pods["kind"] == "DaemonSet"): (
            pods.get("replicas", 1),
            *(int(re.sub(r"\D", "", str(pods["requests"].get(what, 0)))) for what in ("cpu", "memory")),
        )
        for addon, found in load((ROOT / "rehearsal/kubernetes/addons.yaml").read_text()).items()
        if "sagemaker" not in addon
        for pods in found
    }
    counted = {
        (one.name, one.place == "node"): (one.pods, one.cpu_m, one.memory_mib)
        for one in CLUSTER_PODS
        if not one.needs and one.place != "accelerated"
    }
    assert counted == there


def test_a_node_has_a_place_for_each_address_of_an_interface_but_its_own() -> None:
    assert len(CATALOGUE) > 100
    for name, row in CATALOGUE.items():
        if facts := INSTANCE_TYPES.get(name.removeprefix("ml."), {}).get("NetworkInfo"):
            assert row.pods == facts["Ipv4AddressesPerInterface"] - 1, name


def test_no_team_has_a_namespace_of_what_else_a_stack_has() -> None:
    templates = (ROOT / "rehearsal/kubernetes/stand_in_chart/templates").glob("*.yaml")
    of_chart = [re.findall(r"kind: Namespace\nmetadata: {name: ([a-z-]+)", path.read_text()) for path in templates]
    used = {name for names in of_chart for name in names}
    assert "mpi-operator" in used
    chosen = config(GOLDEN["eks-closed"].stack, **GOLDEN["eks-closed"].settings).settings
    for resource in state_of("eks-closed").values():
        if resource.type.startswith("kubernetes:") and (metadata := resource.inputs.get("metadata")):
            used.add(metadata["name"] if resource.type.endswith(":Namespace") else metadata.get("namespace"))
    assert used - {None, *(team.name for team in chosen.teams)} <= set(RESERVED)
