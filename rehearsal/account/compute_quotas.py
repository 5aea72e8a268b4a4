"""SageMaker's compute quotas, the teams' parts of a cluster with task governance, as records."""

from typing import Any

from operations.engine.state import HYPERPOD_CLUSTER

from .books import Books, Inputs, Refused
from .kinds import register
from .provisioning import types_of
from .records import record

TOKEN = "aws-native:sagemaker:ComputeQuota"
_ADDON = {"addonName": "amazon-sagemaker-hyperpod-taskgovernance"}


def _create(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    """CreateComputeQuota: the name is unique in the cluster; SageMaker Developer Guide, "Task governance setup": the
    add-on comes first. Its team's namespace may be there already."""
    cluster = next(account.find(HYPERPOD_CLUSTER, by=account.now), None)
    if cluster is None or cluster.outputs["clusterArn"] != i["clusterArn"]:
        raise Refused("ResourceNotFound", f"cluster {i['clusterArn']} is not there")
    if not (cluster.inputs.get("orchestrator") or {}).get("eks"):
        raise Refused("ValidationException", "compute quotas are for clusters on EKS")
    if not any(account.find("aws:eks/addon:Addon", by=account.now, **_ADDON)):
        raise Refused("CreateFailed", "the cluster does not have the add-on of task governance")
    for other in account.find(TOKEN, clusterArn=i["clusterArn"]):
        team = i["computeQuotaTarget"]["teamName"]
        if other.inputs["name"] == i["name"] or other.inputs["computeQuotaTarget"]["teamName"] == team:
            raise Refused("ConflictException", f"compute quota {other.inputs['name']} is there already")
    _check_types(cluster.inputs, i)
    quota = account.new_id("q")[2:14]
    arn = account.arn("sagemaker", f"compute-quota/{quota}")
    return arn, {"computeQuotaArn": arn, "computeQuotaId": quota, "computeQuotaVersion": 1, "status": "Created"}


def _check_types(cluster: Inputs, i: Inputs) -> None:
    """ComputeQuotaResourceConfig: the instance type of an instance group of the cluster."""
    here = {name for group in cluster["instanceGroups"] for name in types_of(group)}
    for one in i["computeQuotaConfig"]["computeQuotaResources"]:
        if one["instanceType"] not in here:
            raise Refused("ValidationException", f"the cluster has no instance group of {one['instanceType']}")


register(record(TOKEN, "AWS::SageMaker::ComputeQuota", _create))
