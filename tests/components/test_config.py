"""Bad configuration is refused before anything is created, with the key named and all problems at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from components.config import ConfigError, Settings, parse
from tests.support import READY_STACKS, ROOT, config, project

LONG = "a" * 64
GROUP = {"name": "workers", "instanceType": "ml.g5.16xlarge"}
SYSTEM = {"name": "system", "instanceType": "ml.m5.xlarge"}
EKS = {"orchestrator": "eks"}
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
ROLE = "arn:aws:iam::123456789012:role/research"
PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p5"


def problems(stack: str = "dev", **settings: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        config(stack, **settings)
    return {problem.key: str(problem) for problem in refused.value.problems}


@pytest.mark.parametrize("stack", READY_STACKS)
def test_every_ready_stack_is_good(stack: str) -> None:
    assert config(stack).variant in ("slurm-gpu", "slurm-trainium", "eks-gpu", "eks-trainium")


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown key": ({"clusterNmae": "x"}, "hyperpod:clusterNmae", "did you mean clusterName?"),
    "EC2's reservation": (
        {"workers": [{"name": "w", "instanceType": "ml.g5.16xlarge", "capacityReservationId": "cr-0123456789abcdef0"}]},
        "hyperpod:workers[0].capacityReservationId",
        "a SageMaker training plan",
    ),
    "unknown key inside": ({"fsx": {"storageGib": 1200}}, "hyperpod:fsx.storageGib", "did you mean storageGiB?"),
    "unknown instance type": (
        {"workers": [{**GROUP, "instanceType": "ml.p5.49xlarge"}]},
        "hyperpod:workers[0].instanceType",
        "ml.p5.48xlarge",
    ),
    "type HyperPod lacks": (
        {"accelerator": "trainium", "workers": [{**GROUP, "instanceType": "ml.trn1.2xlarge"}]},
        "hyperpod:workers[0].instanceType",
        "does not offer",
    ),
    "GPU type with trainium": (
        {"accelerator": "trainium"},
        "hyperpod:workers[0].instanceType",
        "hyperpod:accelerator is trainium",
    ),
    "CPU type as worker": (
        {"workers": [{**GROUP, "instanceType": "ml.m5.large"}]},
        "hyperpod:workers[0].instanceType",
        "no accelerator",
    ),
    "unknown controller type": (
        {"controllerInstanceType": "m5.large"},
        "hyperpod:controllerInstanceType",
        "ml.m5.large",
    ),
    "zone of another region": ({"availabilityZoneId": "use1-az1"}, "hyperpod:availabilityZoneId", "usw2-az1"),
    "negative count": ({"workers": [{**GROUP, "count": -1}]}, "hyperpod:workers[0].count", "0 to"),
    "count as text": ({"workers": [{**GROUP, "count": "many"}]}, "hyperpod:workers[0].count", "integer"),
    "64-character name": ({"clusterName": LONG}, "hyperpod:clusterName", "at most"),
    "upper-case name": ({"clusterName": "Prod"}, "hyperpod:clusterName", "lower-case"),
    "trailing hyphen": ({"clusterName": "prod-"}, "hyperpod:clusterName", "letter or digit"),
    "two groups of one name": ({"workers": [GROUP, GROUP]}, "hyperpod:workers", "names must differ"),
    "group named as a head node": (
        {"workers": [{**GROUP, "name": "controller"}]},
        "hyperpod:workers[0].name",
        "head nodes",
    ),
    "FSx size": ({"fsx": {"storageGiB": 3600}}, "hyperpod:fsx.storageGiB", "multiple of 2400"),
    "FSx throughput": ({"fsx": {"throughput": 200}}, "hyperpod:fsx.throughput", "125, 250, 500 or 1000"),
    "backups of a linked file system": (
        {"fsx": {"linkedBucket": "data", "backupDays": 7}},
        "hyperpod:fsx.backupDays",
        "linked",
    ),
    "deletes for no bucket": ({"fsx": {"exportDeletes": True}}, "hyperpod:fsx.exportDeletes", "linkedBucket"),
    "home file system by its name": (
        {"fsx": {"homeFileSystemId": "home"}},
        "hyperpod:fsx.homeFileSystemId",
        "fs-0123456789abcdef0",
    ),
    "home file system on EKS": (
        {"orchestrator": "eks", "fsx": {"homeFileSystemId": "fs-0123456789abcdef0"}},
        "hyperpod:fsx.homeFileSystemId",
        "leave it out",
    ),
    "home file system in another VPC": (
        {"fsx": {"homeFileSystemId": "fs-0123456789abcdef0"}},
        "hyperpod:fsx.homeFileSystemId",
        "hyperpod:network.vpcId",
    ),
    "EFA to a file system too small for it": (
        {"fsx": {"efa": True}, "workers": [{**GROUP, "instanceType": "ml.p5.48xlarge"}]},
        "hyperpod:fsx.storageGiB",
        "1200 GiB with EFA at 250 MB/s per TiB; a multiple of 19200",
    ),
    "EFA to a file system of an odd size": (
        {
            "fsx": {"efa": True, "throughput": 500, "storageGiB": 14400},
            "workers": [{**GROUP, "instanceType": "ml.p5.48xlarge"}],
        },
        "hyperpod:fsx.storageGiB",
        "4800 at 1000",
    ),
    "EFA to a file system that no worker can use": (
        {"fsx": {"efa": True, "throughput": 1000, "storageGiB": 4800}},
        "hyperpod:fsx.efa",
        "ml.p5.48xlarge",
    ),
    "EFA to a file system from trn2": (
        {
            "accelerator": "trainium",
            "fsx": {"efa": True, "throughput": 1000, "storageGiB": 4800},
            "workers": [{**GROUP, "instanceType": "ml.trn2.48xlarge"}],
        },
        "hyperpod:fsx.efa",
        "ml.trn1.32xlarge",
    ),
    "more EFA connections than a file system takes": (
        {
            "fsx": {"efa": True, "throughput": 1000, "storageGiB": 4800},
            "workers": [{**GROUP, "instanceType": "ml.p5.48xlarge", "count": 129}],
        },
        "hyperpod:fsx.efa",
        "1032 EFA connections",
    ),
    "retained file system in our VPC": ({"fsx": {"retainOnDelete": True}}, "hyperpod:fsx.retainOnDelete", "vpcId"),
    "Kubernetes version": ({**EKS, "kubernetesVersion": "1.29"}, "hyperpod:kubernetesVersion", "1.34"),
    "overlapping blocks": (
        {"network": {"cidr": "10.0.0.0/16", "secondaryCidr": "10.0.128.0/20"}},
        "hyperpod:network.secondaryCidr",
        "overlaps",
    ),
    "block too small for the subnets": ({"network": {"cidr": "10.0.0.0/24"}}, "hyperpod:network.cidr", "/20 or larger"),
    "block too small for the nodes": (
        {"network": {"secondaryCidr": "10.1.0.0/28"}, "workers": [{"name": "w", "instanceType": "ml.p5.48xlarge"}]},
        "hyperpod:network.secondaryCidr",
        "addresses",
    ),
    "not a block": ({"network": {"cidr": "10.0.0.1/16"}}, "hyperpod:network.cidr", "host bits"),
    "blocks AWS will not join": (
        {"network": {"secondaryCidr": "172.16.0.0/16"}},
        "hyperpod:network.secondaryCidr",
        "does not associate",
    ),
    "half an existing network": (
        {"network": {"vpcId": "vpc-0123456789abcdef0"}},
        "hyperpod:network.privateSubnetId",
        "missing",
    ),
    "bad subnet id": (
        {
            "network": {
                "vpcId": "vpc-0123456789abcdef0",
                "privateSubnetId": "subnet-1",
                "securityGroupIds": ["sg-0123456789abcdef0"],
            }
        },
        "hyperpod:network.privateSubnetId",
        "not an id",
    ),
    "volume too big": ({"workers": [{**GROUP, "volumeGiB": 20000}]}, "hyperpod:workers[0].volumeGiB", "16384"),
    "malformed role ARN": (
        {"existingRoleArn": "arn:aws:iam::1:role/x"},
        "hyperpod:existingRoleArn",
        "arn:aws:iam::ACCOUNT:role/NAME",
    ),
    "role of another partition": (
        {"existingRoleArn": "arn:aws-us-gov:iam::123456789012:role/x"},
        "hyperpod:existingRoleArn",
        "partition",
    ),
    "malformed plan ARN": (
        {"workers": [{**GROUP, "trainingPlanArn": "plan"}]},
        "hyperpod:workers[0].trainingPlanArn",
        "training-plan/NAME",
    ),
    "spot with a training plan": (
        {"workers": [{**GROUP, "trainingPlanArn": PLAN, "capacity": "spot"}], "nodeProvisioning": "Continuous"},
        "hyperpod:workers[0].capacity",
        "reserved",
    ),
    "spot without continuous": (
        {"workers": [{**GROUP, "capacity": "spot"}]},
        "hyperpod:workers[0].capacity",
        "nodeProvisioning",
    ),
    "minimum above count": (
        {"workers": [{**GROUP, "count": 2, "minCount": 3}], "nodeProvisioning": "Continuous"},
        "hyperpod:workers[0].minCount",
        "0 to 2",
    ),
    "labels with Slurm": ({"workers": [{**GROUP, "labels": {"a": "b"}}]}, "hyperpod:workers[0].labels", "Kubernetes"),
    "login nodes with EKS": ({**EKS, "login": {"instanceType": "ml.m5.large"}}, "hyperpod:login", "Slurm"),
    "lost nodes with EKS": ({**EKS, "lostNodeSeconds": 20}, "hyperpod:lostNodeSeconds", "is for Slurm; leave it out"),
    "controller with EKS": (
        {**EKS, "controllerInstanceType": "ml.m5.large"},
        "hyperpod:controllerInstanceType",
        "is for Slurm; leave it out",
    ),
    "controller that HyperPod lacks": (
        {"controllerInstanceType": "ml.trn1.2xlarge"},
        "hyperpod:controllerInstanceType",
        "HyperPod does not offer ml.trn1.2xlarge",
    ),
    "controller with GPUs": (
        {"controllerInstanceType": "ml.p5.48xlarge"},
        "hyperpod:controllerInstanceType",
        "ml.m5.2xlarge",
    ),
    "login nodes with GPUs": (
        {"login": {"instanceType": "ml.g5.8xlarge"}},
        "hyperpod:login.instanceType",
        "no job would use",
    ),
    "Kubernetes version with Slurm": ({"kubernetesVersion": "1.33"}, "hyperpod:kubernetesVersion", "is for EKS"),
    "registry of charts' images with Slurm": (
        {"network": {"closed": True, "imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"}},
        "hyperpod:network.imageRegistry",
        "is for EKS",
    ),
    "EKS's subnets with Slurm": (
        {"network": {"vpcId": "vpc-0123456789abcdef0", "eksSubnetIds": ["subnet-0123456789abcdef0"]}},
        "hyperpod:network.eksSubnetIds",
        "is for EKS",
    ),
    "block too small for the login nodes": (
        {"network": {"secondaryCidr": "10.1.0.0/28"}, "login": {"instanceType": "ml.m5.large", "count": 20}},
        "hyperpod:network.secondaryCidr",
        "addresses",
    ),
    "API's blocks with Slurm": (
        {"kubernetesApiCidrs": ["203.0.113.0/24"]},
        "hyperpod:kubernetesApiCidrs",
        "orchestrator slurm",
    ),
    "authentication mode with Slurm": (
        {"authenticationMode": "API_AND_CONFIG_MAP"},
        "hyperpod:authenticationMode",
        "orchestrator slurm",
    ),
    "closed EKS without images": (
        {**EKS, "network": {"closed": True}},
        "hyperpod:network.imageRegistry",
        "nothing to pull images from",
    ),
    "not a public key": ({"sshPublicKey": "ssh-rsa oops"}, "hyperpod:sshPublicKey", "OpenSSH"),
    "a node lost at once": ({"lostNodeSeconds": 1}, "hyperpod:lostNodeSeconds", "2 to 60"),
    "reserved tag": ({"tags": {"aws:x": "y"}}, "hyperpod:tags.aws:x", "reserved"),
    "characters no tag takes": ({"tags": {"team": "a, b; c!"}}, "hyperpod:tags.team", "'!' ',' ';' in a tag"),
    "character no tag's key takes": ({"tags": {"cost*": "a"}}, "hyperpod:tags.cost*", "_.:/=+-@"),
    "tag's value of 257 characters": ({"tags": {"a": "b" * 257}}, "hyperpod:tags.a", "at most 256"),
    "unknown orchestrator": ({"orchestrator": "kubernetes"}, "hyperpod:orchestrator", "'slurm' or 'eks'"),
    "mistyped region": ({"region": "us-west2"}, "aws:region", "did you mean us-west-2?"),
    "unknown region": ({"region": "mars-east-1"}, "aws:region", "us-west-2"),
    "Kubernetes version EKS lacks": ({**EKS, "kubernetesVersion": "1.30"}, "hyperpod:kubernetesVersion", "1.31, 1.32"),
    "unknown authentication mode": (
        {**EKS, "authenticationMode": "CONFIG_MAP"},
        "hyperpod:authenticationMode",
        "'API' or 'API_AND_CONFIG_MAP'",
    ),
    "team that cannot name a namespace": (
        {**EKS, "teams": [{"name": "Research"}]},
        "hyperpod:teams[0].name",
        "lower-case",
    ),
    "team with a taken name": ({**EKS, "teams": [{"name": "kube-system"}]}, "hyperpod:teams[0].name", "another name"),
    "two teams of one name": ({**EKS, "teams": [{"name": "a"}, {"name": "a"}]}, "hyperpod:teams", "must differ"),
    "team of users": (
        {**EKS, "teams": [{"name": "a", "roleArns": ["arn:aws:iam::123456789012:user/me"]}]},
        "hyperpod:teams[0].roleArns[0]",
        "not a role",
    ),
    "one role in two teams": (
        {**EKS, "teams": [{"name": name, "roleArns": [ROLE]} for name in ("a", "b")]},
        "hyperpod:teams",
        "name it once",
    ),
    "administrator of another partition": (
        {**EKS, "administratorRoleArns": [ROLE.replace(":aws:", ":aws-cn:")]},
        "hyperpod:administratorRoleArns",
        "partition aws-cn",
    ),
    "more accelerators promised than there are": (
        {**EKS, "teams": [{"name": "a", "accelerators": 3}]},
        "hyperpod:teams",
        "the workers have 2",
    ),
    "NeuronCores without Neuron": (
        {**EKS, "charts": {"neuronScheduler": True}},
        "hyperpod:charts.neuronScheduler",
        "accelerator gpu",
    ),
    "agent without its namespace": (
        {**EKS, "charts": {"deepHealthCheck": False}},
        "hyperpod:charts.deepHealthCheck",
        "needs the namespace",
    ),
    "cert-manager out of reach": (
        {
            **EKS,
            "charts": {"hyperpodTrainingOperator": True, "queues": "none"},
            "network": {"closed": True, "imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"},
        },
        "hyperpod:charts.hyperpodTrainingOperator",
        "quay.io",
    ),
    "type without a device plugin": (
        {**EKS, "accelerator": "trainium", "workers": [{**GROUP, "instanceType": "ml.trn2.3xlarge"}]},
        "hyperpod:workers[0].instanceType",
        "no device plugin",
    ),
    "groups that differ in case alone": (
        {**EKS, "workers": [GROUP, {**GROUP, "name": "Workers"}]},
        "hyperpod:workers",
        "more than case",
    ),
    "unknown chart": ({**EKS, "charts": {"kubeflow": True}}, "hyperpod:charts.kubeflow", "mpiOperator"),
    "teams with Slurm": ({"teams": [{"name": "a"}]}, "hyperpod:teams", "orchestrator slurm"),
    "bad API block": ({**EKS, "kubernetesApiCidrs": ["anywhere"]}, "hyperpod:kubernetesApiCidrs", "checkip"),
    "private API block": ({**EKS, "kubernetesApiCidrs": ["10.0.0.0/8"]}, "hyperpod:kubernetesApiCidrs", "not public"),
    "API block of documentation": (
        {**EKS, "kubernetesApiCidrs": ["203.0.113.0/24"]},
        "hyperpod:kubernetesApiCidrs",
        "EKS refuses it",
    ),
    "API address": ({**EKS, "kubernetesApiCidrs": ["52.95.110.1"]}, "hyperpod:kubernetesApiCidrs", "52.95.110.1/32"),
    "zone without EKS": (
        {**EKS, "region": "us-east-1", "availabilityZoneId": "use1-az3"},
        "hyperpod:availabilityZoneId",
        "one of use1-az1, use1-az2, use1-az4",
    ),
    "team too long for its quota": (
        {**EKS, "clusterName": "short", "charts": {"queues": "task-governance"}, "teams": [{"name": "a" * 52}]},
        "hyperpod:teams[0].name",
        "at most 51",
    ),
    "team too long beside the cluster's name": (
        {**EKS, "clusterName": "a" * 20, "charts": {"queues": "task-governance"}, "teams": [{"name": "a" * 43}]},
        "hyperpod:teams[0].name",
        "at most 42",
    ),
    "no nodes for the cluster's own": (
        {**EKS, "workers": [{**GROUP, "taints": [TAINT]}]},
        "hyperpod:workers",
        "a group without accelerators and taints",
    ),
    "no nodes at all for the cluster's own": (
        {**EKS, "workers": [{**GROUP, "count": 0}]},
        "hyperpod:workers",
        "one node in a group",
    ),
    "no node left beside the accelerators": (
        {**EKS, "workers": [{**GROUP, "count": 0}, {**SYSTEM, "count": 0}]},
        "hyperpod:workers",
        "every group is tainted or has none",
    ),
    "nothing to train on": ({**EKS, "workers": [SYSTEM]}, "hyperpod:workers", "ml.p5.48xlarge"),
    "other accelerators on Kubernetes": (
        {**EKS, "workers": [{**GROUP, "instanceType": "ml.trn1.32xlarge"}]},
        "hyperpod:workers[0].instanceType",
        "hyperpod:accelerator is gpu",
    ),
    "checks of accelerators where there are none": (
        {**EKS, "workers": [GROUP, {**SYSTEM, "deepHealthChecks": ["InstanceStress"]}]},
        "hyperpod:workers[1].deepHealthChecks",
        "no accelerators",
    ),
    "taints with deep health checks": (
        {**EKS, "workers": [{**GROUP, "deepHealthChecks": ["InstanceStress"], "taints": [TAINT]}, SYSTEM]},
        "hyperpod:workers[0].taints",
        "leave one of the two out",
    ),
    "taint that Neuron's plugin cannot be told of": (
        {
            **EKS,
            "accelerator": "trainium",
            "workers": [
                {**GROUP, "instanceType": "ml.trn1.32xlarge", "taints": [TAINT]},
                {**GROUP, "instanceType": "ml.trn1.32xlarge", "name": "open"},
            ],
        },
        "hyperpod:workers[0].taints",
        "aws.amazon.com/neuron:NoSchedule",
    ),
    "second thread of a Grace core": (
        {"workers": [{**GROUP, "instanceType": "ml.p6e-gb200.36xlarge", "threadsPerCore": 2}]},
        "hyperpod:workers[0].threadsPerCore",
        "no second thread",
    ),
    "jobs past the queues": (
        {**EKS, "charts": {"hyperpodTrainingOperator": True}},
        "hyperpod:charts.hyperpodTrainingOperator",
        "task-governance",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_is_refused_with_key_reason_and_remedy(case: str) -> None:
    settings, key, text = BAD[case]
    found = problems(**settings)
    assert key in found, f"{key} is not among {found}"
    assert text in found[key]


@pytest.mark.parametrize(("region", "fits"), [("us-west-2", 34), ("ap-southeast-1", 29), ("us-gov-west-1", 30)])
def test_the_region_limits_the_name_through_bucket_and_roles(region: str, fits: int) -> None:
    parse({"aws:region": region, "hyperpod:clusterName": "a" * fits})
    with pytest.raises(ConfigError, match=f"at most {fits} in {region}"):
        parse({"aws:region": region, "hyperpod:clusterName": "a" * (fits + 1)})


def test_a_closed_eks_with_trainium_is_refused_since_its_chart_pulls_from_a_public_registry() -> None:
    registry = "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror"
    found = problems("eks-trainium", network={"closed": True, "imageRegistry": registry})
    assert "Neuron device plugin" in found["hyperpod:network.closed"]


def test_all_problems_are_reported_at_once() -> None:
    found = problems(
        clusterName="Bad-",
        colour="red",
        availabilityZoneId="use1-az1",
        fsx={"storageGiB": 5},
        network={"cidr": "10.0.0.0/30"},
        workers=[{"name": "w", "instanceType": "ml.p9.1xlarge", "count": -1, "volumeGiB": 99999}],
    )
    expected = ["clusterName", "colour", "availabilityZoneId", "fsx.storageGiB", "network.cidr"]
    expected += [f"workers[0].{field}" for field in ("instanceType", "count", "volumeGiB")]
    assert {f"hyperpod:{key}" for key in expected} <= set(found)


def test_every_letter_digit_and_space_may_be_in_a_tag() -> None:
    config(tags={"Équipe 2": "Forschung: a/b_c=d+e-f@g.h", "empty": ""})


@pytest.mark.parametrize(
    ("size", "preset"), [("small", (2, 1200, 500)), ("medium", (8, 4800, 500)), ("large", (32, 14400, 1000))]
)
def test_a_size_fills_in_what_is_not_given_and_explicit_keys_win(size: str, preset: tuple[int, int, int]) -> None:
    filled = config("slurm-gpu", size=size)
    assert (filled.worker_groups[0].count, filled.fsx_gib, filled.worker_groups[0].volume_gib) == preset
    given = config(size=size, fsx={"storageGiB": 2400}, workers=[{**GROUP, "count": 3, "volumeGiB": 100}])
    assert (given.worker_groups[0].count, given.fsx_gib, given.worker_groups[0].volume_gib) == (3, 2400, 100)


def test_the_schema_and_the_typed_settings_agree() -> None:
    schema = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    fields = {field.alias or name: field for name, field in Settings.model_fields.items()}
    assert set(schema) == set(fields)
    defaults = Settings.model_validate({key: entry["default"] for key, entry in schema.items()})
    assert defaults == Settings()
    assert all(entry["description"] for entry in schema.values())


def test_broken_yaml_is_reported_with_file_and_line(tmp_path: Any) -> None:
    from stack.project import ProjectError, load_project

    (tmp_path / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
    (tmp_path / "Pulumi.bad.yaml").write_text("config:\n  hyperpod:size: [small\n")
    with pytest.raises(ProjectError, match=r"Pulumi.bad.yaml, line 3"):
        load_project(tmp_path, "bad")


def test_config_values_are_text_as_the_engine_hands_them_over() -> None:
    values = project(workers=[GROUP], protect=True).config
    assert json.loads(values["hyperpod:workers"]) == [GROUP]
    assert values["hyperpod:protect"] == "true"
