"""The configurations that the tests deploy: the ready stacks, and some that use every option between them."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

from components.config import parse
from operations.engine.state import State
from rehearsal.account import Account, Live
from rehearsal.engines.deployment import Deployment, up
from rehearsal.existing import prepare
from tests.golden.normal import Normal, normal
from tests.shared import made_once
from tests.support import READY_STACKS, few_files, project


@dataclass(frozen=True)
class Golden:
    """One configuration: a ready stack with keys laid over it. Its files hold what differs from ``base``'s.

    ``parts`` are components of which the base has none, and the configuration whose own they are compared with.
    """

    stack: str
    settings: dict[str, Any] = field(default_factory=dict)
    base: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)

    def compared(self, files: Callable[[str], Normal]) -> Normal:
        """What its own files are the difference to, by the files of others."""
        base = files(self.base) if self.base else {}
        return {**base, **{part: files(other)[part] for part, other in self.parts.items()}}


# Those whose deployments are written down whole: the ready stacks, and with most of the keys one of each orchestrator.
WRITTEN = (*READY_STACKS, "slurm-closed", "eks-teams")
DAY = date(2026, 11, 22)
BOUNDARY = "arn:aws:iam::123456789012:policy/teams/boundary"
GOVCLOUD_KEY = "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ROLE = "arn:aws:iam::123456789012:role"
VPC = {
    "vpcId": "vpc-0123456789abcdef0",
    "privateSubnetId": "subnet-0123456789abcdef0",
    "securityGroupIds": ["sg-0123456789abcdef0"],
}
# Where SageMaker has UltraServers: a Local Zone of us-east-1, in which the VPC is.
DALLAS = {
    "region": "us-east-1",
    "availabilityZoneId": "",
    "network": {**VPC, "eksSubnetIds": ["subnet-0aaaaaaaaaaaaaaa1", "subnet-0aaaaaaaaaaaaaaa2"]},
}
DATABASE_SUBNETS = ["subnet-0bbbbbbbbbbbbbbb1", "subnet-0bbbbbbbbbbbbbbb2"]
WORKSPACE = "arn:aws:aps:us-west-2:123456789012:workspace/ws-01234567-89ab-cdef-0123-456789abcdef"
TOPIC = "arn:aws:sns:us-west-2:123456789012:pages"
DEPLOYMENTS = Path(__file__).parent / "deployments"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4M2V1Q3bP8yQ0hCq7rT9p0e1k2l3m4n5o6p7q8r9s0 me"

GOLDEN: dict[str, Golden] = {
    "dev": Golden("dev"),
    "slurm-gpu": Golden("slurm-gpu", base="dev"),
    "slurm-trainium": Golden("slurm-trainium", base="dev"),
    "eks-gpu": Golden("eks-gpu", base="dev"),
    "eks-trainium": Golden("eks-trainium", base="eks-gpu"),
    "slurm-closed": Golden(
        "slurm-gpu",
        {
            "network": {
                "egress": "vpc-only",
                "trusted": ["210987654321", "o-exampleorgid"],
                "cidr": "10.8.0.0/16",
                "secondaryCidr": "10.9.0.0/16",
            },
            "login": {"instanceType": "ml.m5.large", "count": 2},
            "controllerInstanceType": "ml.m5.4xlarge",
            "slurm": {
                "containers": True,
                "containerPackages": "tests/golden/containers",
                "accounting": {
                    "database": "rds",
                    "retentionMonths": 24,
                    "instanceClass": "db.m6g.large",
                    "storageGiB": 50,
                    "backupDays": 30,
                },
                "extraConf": "docs/slurm.conf.d",
                "typedGres": True,
                "accounts": [
                    {"name": "lab", "fairshare": 2, "maxGpus": 16},
                    {"name": "vision", "parent": "lab", "qos": ["normal", "urgent"], "users": ["research1"]},
                ],
                "qos": [
                    {
                        "name": "urgent",
                        "priority": 100,
                        "preempts": ["normal"],
                        "maxGpus": 16,
                        "maxGpusPerUser": 8,
                        "maxHours": 24,
                    }
                ],
            },
            "sshPublicKey": KEY,
            "users": [
                {"name": "research1", "uid": 2001, "gid": 3000, "sshKeys": [KEY]},
                {"name": "research2", "uid": 2002, "gid": 3000, "account": "lab", "sudo": True},
            ],
            "fsx": {
                "storageGiB": 4800,
                "throughput": 1000,
                "compression": "NONE",
                "efa": True,
                "linkedBucket": "training-data",
                "exportDeletes": True,
            },
            "benchmarks": True,
            "imdsV1": True,
            "lostNodeSeconds": 30,
            "healthPolicy": "report",
            "healthChecks": "docs/health-checks",
            "security": {
                "kmsKey": "create",
                "lifecycleWriters": ["arn:aws:iam::123456789012:user/rehearsal", f"{ROLE}/deployers/*"],
                "nodePermissions": "published",
                "workerSecrets": True,
                "accessLogBucket": "access-logs",
                "sessionLogs": True,
                "sessionRunAs": True,
                "sshOnlyWithJob": True,
            },
            "permissionsBoundaryArn": BOUNDARY,
            "nodeRecovery": "None",
            "observability": {
                "prometheus": "create",
                "grafana": "create",
                "grafanaAuthentication": ["SAML"],
                "detail": "advanced",
            },
            "alerts": {"email": "ops@example.com"},
            "tags": {"team": "research"},
        },
        base="slurm-gpu",
    ),
    "slurm-existing": Golden(
        "slurm-gpu",
        {
            "network": VPC,
            "existingRoleArn": f"{ROLE}/team/hyperpod",
            "nodeProvisioning": "",
            "availabilityZoneId": "",
            "slurm": {"sharedQueue": True, "accounting": {"database": "rds", "subnetIds": DATABASE_SUBNETS}},
            "usersFile": "docs/people.yaml",
            "fsx": {"retainOnDelete": True, "backupDays": 7, "homeFileSystemId": "fs-0123456789abcdef0"},
            "workers": [
                {
                    "name": "reserved",
                    "instanceType": "ml.p5.48xlarge",
                    "count": 4,
                    "volumeGiB": 800,
                    "threadsPerCore": 2,
                    "trainingPlanArn": "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p5-week",
                }
            ],
            "observability": {"prometheus": WORKSPACE, "grafana": "g-0123456789", "mlflow": True},
            "alerts": {"topicArn": TOPIC},
            "validation": False,
            "protect": True,
        },
        base="slurm-gpu",
    ),
    "slurm-image": Golden(
        "slurm-gpu",
        {
            "slurm": {"setup": "image", "accounting": {"database": "rds"}},
            "fsx": {"homeStorageGiB": 64},
            "observability": {"mlflow": True},
        },
        base="slurm-gpu",
    ),
    "slurm-govcloud": Golden(
        "dev",
        {
            "region": "us-gov-west-1",
            "availabilityZoneId": "usgw1-az1",
            "clusterName": "federal",
            "workers": [],
            "size": "medium",
            "security": {"kmsKey": GOVCLOUD_KEY},
            "fsx": {"homeStorageGiB": 1024, "homeThroughput": 128},
        },
        base="dev",
    ),
    "eks-closed": Golden(
        "eks-gpu",
        {
            "network": {
                "egress": "vpc-only",
                "secondaryCidr": "",
                "imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mirror",
            },
            "kubernetesVersion": "1.36",
            "authenticationMode": "API_AND_CONFIG_MAP",
            "fsx": {"efa": True, "storageGiB": 4800, "throughput": 1000, "linkedBucket": "training-data"},
            "workers": [
                {"name": "Fast", "instanceType": "ml.p5.48xlarge"},
                {
                    "name": "old",
                    "instanceType": "ml.p4d.24xlarge",
                    "fallbackTypes": ["ml.p4de.24xlarge", "ml.p5en.48xlarge"],
                    "count": 3,
                    "taints": [{"key": "example.com/old", "value": "yes", "effect": "NoSchedule"}],
                },
            ],
            "teams": [{"name": "vision", "accelerators": 24}, {"name": "speech"}],
            "charts": {"strictNetworkPolicies": True, "topology": True},
            "benchmarks": True,
        },
        base="eks-gpu",
    ),
    "eks-teams": Golden(
        "eks-gpu",
        {
            "network": {**VPC, "eksSubnetIds": ["subnet-0aaaaaaaaaaaaaaa1", "subnet-0aaaaaaaaaaaaaaa2"]},
            "kubernetesApiCidrs": ["52.95.110.0/24"],
            "administratorRoleArns": [f"{ROLE}/admin", f"{ROLE}/platform"],
            "permissionsBoundaryArn": BOUNDARY,
            "fsx": {"fileSystemId": "fs-0123456789abcdef2"},
            "teams": [
                {
                    "name": "vision",
                    "roleArns": [f"{ROLE}/vision", f"{ROLE}/guests"],
                    "accelerators": 24,
                    "buckets": [
                        {"name": "example-tokens", "prefix": "tokens/", "readOnly": True},
                        {"name": "example-results"},
                    ],
                },
                {"name": "speech", "fairShareWeight": 20},
            ],
            "charts": {
                "hyperpodTrainingOperator": True,
                "spaces": True,
                "queues": "task-governance",
                "checkpointMemoryPercent": 30,
            },
            "workers": [
                {
                    "name": "fast",
                    "instanceType": "ml.p5.48xlarge",
                    "deepHealthChecks": ["InstanceStress", "InstanceConnectivity"],
                    "labels": {"example.com/line": "fast"},
                    "autoPatch": "WhenIdle",
                },
                {
                    "name": "old",
                    "instanceType": "ml.p4d.24xlarge",
                    "count": 3,
                    "imageRelease": "2.1.0",
                    "taints": [{"key": "example.com/old", "value": "yes", "effect": "NoSchedule"}],
                },
                {
                    "name": "spare",
                    "instanceType": "ml.p5.48xlarge",
                    "count": 5,
                    "scaling": "demand",
                    "imageId": "ami-0123456789abcdef0",
                    "labels": {"example.com/line": "spare"},
                    "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
                },
            ],
            "autoscaling": {"enabled": True, "consolidateAfter": "30m", "disruptionBudget": "2"},
            "observability": {
                "prometheus": "create",
                "grafana": "create",
                "detail": "advanced",
                "logs": True,
                "scraper": "training",
                "mlflow": True,
            },
            "alerts": {"email": "ops@example.com"},
            "tags": {"team": "research", "cost-center": "7"},
        },
        base="eks-gpu",
        parts={"alerts": "slurm-closed", "observability": "slurm-closed"},
    ),
    "eks-spot": Golden(
        "eks-trainium",
        {
            "workers": [
                {
                    "name": "spot",
                    "instanceType": "ml.trn1.32xlarge",
                    "count": 4,
                    "capacity": "spot",
                    "minCount": 1,
                }
            ],
            "charts": {
                "mpiOperator": False,
                "trainingOperator": False,
                "healthMonitoring": False,
                "deepHealthCheck": False,
                "jobAutoRestart": False,
                "neuronScheduler": True,
                "networkPolicies": False,
                "queues": "none",
                "checkpointMemoryPercent": 0,
            },
            "teams": [
                {"name": "vision", "accelerators": 48, "volumesGiB": 500, "fileSystemsGiB": 0},
                {"name": "speech"},
            ],
            "security": {"kmsKey": "create", "podSecurity": "restricted"},
            "observability": {"prometheus": "create"},
            "alerts": {"email": "ops@example.com"},
            "protect": True,
        },
        base="eks-trainium",
    ),
}


def on_the_day() -> AbstractContextManager[object]:
    """What a Kubernetes version costs and warns of changes with the date."""
    return patch("components.catalogue.kubernetes_versions.date", Mock(today=lambda: DAY, wraps=date))


def files_of(name: str) -> AbstractContextManager[object]:
    """The lifecycle files that a golden configuration is deployed with: all, or with a base the entry point alone."""
    return few_files() if GOLDEN[name].base else nullcontext()


@cache
def told(name: str) -> Normal:
    """A golden configuration's deployment in the form that is written down."""
    return normal(deployed(name), str(GOLDEN[name].settings))


def deployed(name: str) -> Deployment:
    """A golden configuration's deployment in an account of its own, made once."""
    return _made(name)[0]


def account_of(name: str) -> Account:
    """An account whose books have that deployment, to try things in. What moto plays is empty: use books alone."""
    account = Account(parse(project(GOLDEN[name].stack, **GOLDEN[name].settings).config).region.name)
    account.live = deepcopy(_made(name)[1])
    return account


def state_of(name: str) -> State:
    """What a golden configuration deploys, the ready stacks among them."""
    return deployed(name).state


@cache
def _made(name: str) -> tuple[Deployment, dict[tuple[str, str], Live]]:
    return made_once(f"golden {name}", lambda: _deploy(name))


def _deploy(name: str) -> tuple[Deployment, dict[tuple[str, str], Live]]:
    chosen = GOLDEN[name]
    loaded = project(chosen.stack, **chosen.settings)
    config = parse(loaded.config)
    with Account(config.region.name) as account, on_the_day(), files_of(name):
        prepare(account, config)
        deployment = up(loaded, account)
    assert not deployment.failure, deployment.failure
    return deployment, account.live
