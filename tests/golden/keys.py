"""What a change of each key does: the keys that an update changes, and updates that change each of them."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from components.common.documents import load
from components.config import Settings
from components.config.keys import keys
from components.schema.fields import Model
from tests.golden.stacks import BOUNDARY, DATABASE_SUBNETS, GOLDEN, KEY, ROLE
from tests.support import ROOT

_SCHEMA = load((ROOT / "Pulumi.yaml").read_text())["config"]
_KEYS = [one for key in keys(_SCHEMA) for one in (key, *key.below())]
KINDS = {key.path: key.kind for key in _KEYS if key.kind}
# Those that hold a value, and not keys of their own.
LEAVES = {key.path for key in _KEYS if not key.parts}
# Those that only hold others, which say what a change does.
_HOLDERS = {key.path for key in _KEYS} - KINDS.keys()
P5 = {"name": "workers", "instanceType": "ml.p5.48xlarge"}
FAST, OLD, SPARE = GOLDEN["eks-teams"].settings["workers"]
CLOSED, SEVERAL = GOLDEN["eks-closed"].settings["workers"]
VISION, SPEECH = GOLDEN["eks-teams"].settings["teams"]
TOKENS, RESULTS = VISION["buckets"]
RESERVED = GOLDEN["slurm-existing"].settings["workers"][0]
PERSON = GOLDEN["slurm-closed"].settings["users"][0]
LAB, VISION_ACCOUNT = GOLDEN["slurm-closed"].settings["slurm"]["accounts"]
(URGENT,) = GOLDEN["slurm-closed"].settings["slurm"]["qos"]
RDS = GOLDEN["slurm-closed"].settings["slurm"]["accounting"]
OTHER = "subnet-0bbbbbbbbbbbbbbb3"
PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/other"

_GONE = object()

# By golden stack: updates, each a path of keys with its value. Keys beside the first are what the first one needs.
UPDATES: Mapping[str, list[dict[str, Any]]] = {
    "slurm-gpu": [
        {"orchestrator": "eks"},
        {"accelerator": "trainium", "workers": [{"name": "new", "instanceType": "ml.trn1.32xlarge"}]},
        {"accelerator": "trainium", "workers": [{"name": "workers", "instanceType": "ml.trn1.32xlarge"}]},
        {"size": "medium"},
        {"workers": [P5 | {"name": "others"}]},
        {"workers": [P5 | {"instanceType": "ml.p5e.48xlarge"}]},
        {"workers": [P5 | {"minCount": 1}]},
        {"workers": [P5 | {"volumeGiB": 700}]},
        {"workers": [P5 | {"threadsPerCore": 2}]},
        {"workers": [P5 | {"capacity": "spot"}]},
        {"fsx.throughput": 500},
        {"fsx.compression": "NONE"},
        {"fsx.linkedBucket": "training-data"},
        {"network.secondaryCidr": "10.9.0.0/16"},
        {"network.egress": "open-all"},
        {"network.egress": "vpc-only"},
        {"existingRoleArn": f"{ROLE}/team/hyperpod"},
        {"permissionsBoundaryArn": BOUNDARY},
        {"sshPublicKey": KEY},
        {"users": [PERSON]},
        {"usersFile": "docs/people.yaml"},
        {"validation": False},
        {"benchmarks": True},
        {"imdsV1": True},
        {"lostNodeSeconds": 30},
        {"healthPolicy": "report"},
        {"healthChecks": "docs/health-checks"},
        {"nodeRecovery": "None"},
        {"slurm": {"accounting": {"database": "rds"}}},
        {"slurm": {"extraConf": "docs/slurm.conf.d"}},
        {"slurm": {"typedGres": True}},
        {"slurm": {"sharedQueue": True}},
        {"slurm": {"setup": "image"}},
        {"nodeProvisioning": ""},
        {"tags": {"team": "research"}},
    ],
    "slurm-closed": [
        {"observability.detail": "basic"},
        {"alerts.email": "others@example.com"},
        {"observability.grafanaAuthentication": ["AWS_SSO", "SAML"]},
        {"login.instanceType": "ml.m5.xlarge"},
        {"users": [PERSON | {"uid": 2009}]},
        {"users": [PERSON | {"gid": 3001}]},
        {"users": [PERSON | {"sshKeys": []}]},
        {"users": [PERSON | {"sudo": True}]},
        {"users": [PERSON | {"account": "vision"}]},
        {"network.trusted": []},
        {"login.count": 3},
        {"slurm.accounting": RDS | {"retentionMonths": 12}},
        {"slurm.accounting": {"database": "local", "retentionMonths": 24}},
        {"slurm.accounting": RDS | {"instanceClass": "db.m6g.xlarge"}},
        {"slurm.accounting": RDS | {"storageGiB": 100}},
        {"slurm.accounting": RDS | {"storageGiB": 20}},
        {"slurm.accounting": RDS | {"backupDays": 0}},
        {"slurm.accounts": [LAB | {"fairshare": 1, "maxGpus": 8}, VISION_ACCOUNT]},
        {"slurm.accounts": [LAB, VISION_ACCOUNT | {"parent": "root", "qos": ["normal"], "users": ["bob"]}]},
        {"slurm.accounts": [LAB]},
        {"slurm.extraConf": None},
        {"slurm.qos": [{"name": "urgent"}]},
        {"slurm.containers": False, "slurm.containerPackages": None},
        {"slurm.containerPackages": None},
        {"slurm.qos": [URGENT, {"name": "late"}]},
        {"fsx.efa": False},
        {"fsx.throughput": 500, "fsx.storageGiB": 9600},
        {"fsx.exportDeletes": False},
        {"security.nodePermissions": "narrow"},
        {"security.workerSecrets": False},
        {"security.accessLogBucket": "other-logs"},
        {"security.sessionLogs": False, "security.sessionRunAs": False},
        {"security.sessionRunAs": False},
        {"security.sshOnlyWithJob": False},
        {"security.lifecycleWriters": [f"{ROLE}/other"]},
        {"security.lifecycleWriters": ["arn:aws:iam::123456789012:user/rehearsal"]},
    ],
    "slurm-existing": [
        {"workers": [RESERVED | {"trainingPlanArn": PLAN}]},
        {"fsx.retainOnDelete": False},
        {"alerts.topicArn": "arn:aws:sns:us-west-2:123456789012:others"},
        {
            "slurm": {
                "sharedQueue": True,
                "accounting": {"database": "rds", "subnetIds": [*DATABASE_SUBNETS[1:], OTHER]},
            }
        },
        {"fsx.homeFileSystemId": "fs-0123456789abcdef1"},
        {"network.vpcId": "vpc-0123456789abcdef1"},
        {"network.privateSubnetId": "subnet-0123456789abcdef1"},
        {"network.securityGroupIds": ["sg-0123456789abcdef1"]},
    ],
    "eks-gpu": [
        {"kubernetesVersion": "1.36"},
        {"kubernetesApiCidrs": ["52.95.110.0/24"]},
        {"authenticationMode": "API_AND_CONFIG_MAP"},
        {"charts.mpiOperator": False},
        {"charts.trainingOperator": False},
        {"charts.hyperpodTrainingOperator": True},
        {"charts.spaces": True},
        {"charts.queues": "task-governance"},
        {"charts.healthMonitoring": False},
        {"charts.healthMonitoring": False, "charts.jobAutoRestart": False, "charts.deepHealthCheck": False},
        {"charts.jobAutoRestart": False},
        {"charts.networkPolicies": False},
        {"charts.queues": "none"},
        {"charts.topology": True},
        {"charts.strictNetworkPolicies": True},
        {"charts.checkpointMemoryPercent": 30},
        {"security.podSecurity": "restricted"},
    ],
    "slurm-govcloud": [
        {"security.kmsKey": "create"},
        {"fsx.homeStorageGiB": 2048},
        {"fsx.homeStorageGiB": 512},
        {"fsx.homeThroughput": 256},
    ],
    "eks-trainium": [{"charts.neuronScheduler": True}],
    "eks-closed": [
        {"authenticationMode": "API"},
        {"teams": [{"name": "vision", "accelerators": 16}, {"name": "speech"}]},
        {"network.imageRegistry": "123456789012.dkr.ecr.us-west-2.amazonaws.com/other"},
        {"workers": [CLOSED, SEVERAL | {"fallbackTypes": [*SEVERAL["fallbackTypes"], "ml.p5.48xlarge"]}]},
        {"workers": [CLOSED, {key: SEVERAL[key] for key in SEVERAL if key != "fallbackTypes"}]},
    ],
    "eks-teams": [
        {"workers": [{key: FAST[key] for key in FAST if key != "deepHealthChecks"}, OLD, SPARE]},
        {"workers": [FAST | {"labels": {"example.com/line": "slow"}}, OLD, SPARE]},
        {"workers": [FAST | {"autoPatch": "WhenAllIdle"}, OLD, SPARE]},
        {"workers": [FAST, OLD, SPARE | {"imageId": "ami-0123456789abcdef1"}]},
        {"workers": [FAST, OLD | {"imageRelease": "2.1.1"}, SPARE]},
        {"workers": [FAST, OLD | {"taints": [OLD["taints"][0] | {"key": "example.com/older"}]}, SPARE]},
        {"workers": [FAST, OLD | {"taints": [OLD["taints"][0] | {"value": "no"}]}, SPARE]},
        {"workers": [FAST, OLD | {"taints": [OLD["taints"][0] | {"effect": "NoExecute"}]}, SPARE]},
        {"workers": [FAST, OLD, SPARE | {"count": 8}]},
        {"workers": [FAST, OLD, SPARE | {"scaling": "fixed"}], "autoscaling.enabled": False},
        {"workers": [FAST, OLD], "autoscaling": {"enabled": False}},
        {"workers": [FAST, OLD], "autoscaling": {}},
        {"autoscaling.consolidation": "WhenEmptyOrUnderutilized"},
        {"autoscaling.consolidateAfter": "5m"},
        {"charts.checkpointMemoryPercent": None},
        {"charts.checkpointMemoryPercent": 0},
        {"autoscaling.disruptionBudget": "50%"},
        {"administratorRoleArns": [f"{ROLE}/admin"]},
        {"observability.logs": False},
        {"observability.scraper": "none"},
        {"observability.mlflow": False},
        {"teams": [VISION | {"roleArns": [f"{ROLE}/vision"]}, SPEECH]},
        {"teams": [VISION | {"volumesGiB": 100}, SPEECH]},
        {"teams": [VISION | {"fairShareWeight": 20}, SPEECH]},
        {"teams": [VISION | {"fileSystemsGiB": 3600}, SPEECH]},
        {"teams": [VISION | {"buckets": [TOKENS | {"name": "example-words"}]}, SPEECH]},
        {"teams": [VISION | {"buckets": [TOKENS | {"prefix": "tokens/v2/"}, RESULTS]}, SPEECH]},
        {"teams": [VISION | {"buckets": [TOKENS | {"readOnly": False}, RESULTS]}, SPEECH]},
        {"fsx.fileSystemId": "fs-0123456789abcdef3"},
        {"network.eksSubnetIds": ["subnet-0aaaaaaaaaaaaaaa3", "subnet-0aaaaaaaaaaaaaaa2"]},
    ],
}


def laid(settings: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the keys of an update over them, which may name a part of an object."""
    found = deepcopy(dict(settings))
    for path, value in update.items():
        key, _, below = path.partition(".")
        found[key] = {**found.get(key, {}), below: value} if below else value
    return found


def changed(before: Settings, after: Settings) -> set[str]:
    """The keys with another value, as KINDS names them. A member that comes or goes is a change of its name."""
    was, now = dict(_flat(before)), dict(_flat(after))
    found = {path for path in was.keys() | now.keys() if was.get(path, _GONE) != now.get(path, _GONE)}
    before_members, after_members = (
        {path[:2] for path in side if path[1:2] and path[1][0] == "#"} for side in (was, now)
    )
    paths = set()
    for path in found:
        if path[:1] in found:
            path = path[:1]
        elif path[:2] in before_members ^ after_members:
            path = (*path[:2], "name")
        paths.add(".".join(part for part in path if part[0] != "#"))
    return paths - _HOLDERS


def _flat(model: Model, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in ((field.alias or name, getattr(model, name)) for name, field in type(model).model_fields.items()):
        if isinstance(value, Model):
            yield from _flat(value, (*path, key))
        elif isinstance(value, tuple) and any(isinstance(one, Model) for one in value):
            for number, one in enumerate(value):
                yield from _flat(one, (*path, key, f"#{getattr(one, 'name', number)}"))
        else:
            yield (*path, key), value
