"""What AWS answers about what the account has as records, by service and operation as botocore models them.

moto answers everything else. A node runs nothing here, and neither does a cluster of Kubernetes: what asks them gets a
sentence that names the rehearsal that boots one.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from components.config import Config
from components.estimates.quotas import needed

from ..account import Account, Live, Refused
from ..account.eks import CLUSTER
from ..account.provisioning import awaited
from ..account.quotas import COUNTED
from ..account.schemas import to_cloudformation
from ..nodes.lustre import file_systems_of
from .fleet import Fleet, Instance

Request = Mapping[str, Any]
Answer = dict[str, Any]

# What AWS gives without MaxResults is not documented; a client must follow the pages in any case.
_PAGE = 10
_GRAFANA = "aws:grafana/workspace:Workspace"
# Of the quotas that the account counts: AWS's codes (Service Quotas console).
_CODES = {
    "L-F678F1CE": "aws:ec2/vpc:Vpc",
    "L-0263D0A3": "aws:ec2/eip:Eip",
    "L-A4707A72": "aws:ec2/internetGateway:InternetGateway",
    "L-FE5A380F": "aws:ec2/natGateway:NatGateway",
    "L-FD6F2F22": "aws:fsx/lustreFileSystem:LustreFileSystem",
    "L-1194D53C": CLUSTER,
    "L-8873DB23": "aws:amp/workspace:Workspace",
    "L-2C2D5119": _GRAFANA,
}
# What others use of it counts too (Amazon VPC User Guide, "Amazon VPC quotas": network interfaces per Region).
_DEFAULTS = {"L-DF5E4CA3": 5000}


class Answers:
    """The answers about one account, for a stack. ``address`` is where the API listens."""

    def __init__(self, account: Account, config: Config, stack: str, address: str) -> None:
        self._account, self._config, self._stack, self._address = account, config, stack, address
        self._fleet = Fleet(account)
        self.table: Mapping[tuple[str, str], Callable[[Request], Answer]] = {
            ("sagemaker", "ListClusters"): lambda asked: self._clusters(),
            ("sagemaker", "DescribeCluster"): lambda asked: self._described(self._cluster(asked)),
            ("sagemaker", "ListClusterNodes"): self._nodes,
            ("sagemaker", "ListClusterEvents"): lambda asked: {"Events": self._events(asked)},
            ("sagemaker", "DescribeClusterEvent"): self._event,
            ("sagemaker", "BatchReplaceClusterNodes"): self._replace,
            ("sagemaker", "BatchRebootClusterNodes"): lambda asked: self._each(asked, lambda one: None),
            ("sagemaker", "BatchDeleteClusterNodes"): self._delete,
            ("sagemaker", "UpdateClusterSoftware"): lambda asked: {"ClusterArn": self._cluster(asked).id},
            ("sagemaker", "ListTags"): self._tags,
            ("sagemaker", "SearchTrainingPlanOfferings"): lambda asked: {"TrainingPlanOfferings": []},
            ("sagemaker", "ListClusterSchedulerConfigs"): lambda asked: {"ClusterSchedulerConfigSummaries": []},
            ("sagemaker", "ListComputeQuotas"): lambda asked: {"ComputeQuotaSummaries": []},
            ("ssm", "StartSession"): lambda asked: self._session(),
            ("fsx", "DescribeFileSystems"): self._file_systems,
            ("fsx", "DescribeDataRepositoryAssociations"): lambda asked: {"Associations": []},
            ("eks", "ListClusters"): lambda asked: {"clusters": [one.id for one in account.find(CLUSTER)]},
            ("eks", "DescribeCluster"): self._control_plane,
            ("grafana", "ListWorkspaces"): lambda asked: self._workspaces(),
            ("service-quotas", "ListServiceQuotas"): self._quotas,
            ("service-quotas", "ListAWSDefaultServiceQuotas"): lambda asked: {"Quotas": []},
            ("cloudtrail", "LookupEvents"): lambda asked: {"Events": []},
        }

    def _cluster(self, asked: Request) -> Live:
        return self._fleet.cluster(asked["ClusterName"])

    def _clusters(self) -> Answer:
        keys = ("ClusterArn", "ClusterName", "ClusterStatus", "CreationTime")
        return {
            "ClusterSummaries": [{key: self._described(one)[key] for key in keys} for one in self._fleet.clusters()]
        }

    def _described(self, cluster: Live) -> Answer:
        """DescribeCluster's answer: what was asked for, and how much of it is there."""
        properties = to_cloudformation("AWS::SageMaker::Cluster", cluster.inputs)
        properties.pop("Tags", None)
        instances = self._fleet.of(cluster)
        groups, there = [], Counter(one.group for one in instances)
        for group in properties.pop("InstanceGroups"):
            asked = group.pop("KubernetesConfig", {})
            config = {f"{when}{key}": value for key, value in asked.items() for when in ("Current", "Desired")}
            counts = {"TargetCount": group.pop("InstanceCount")}
            counts["CurrentCount"] = there[group["InstanceGroupName"]]
            if several := group.get("InstanceRequirements"):
                group |= self._by_type(
                    several["InstanceTypes"], [one for one in instances if one.group == group["InstanceGroupName"]]
                )
            groups.append(group | counts | {"Status": "InService"} | ({"KubernetesConfig": config} if config else {}))
        return {
            # New clusters have it unasked (SageMaker Developer Guide, "Continuous provisioning").
            "NodeProvisioningMode": "Continuous",
            **properties,
            "InstanceGroups": groups,
            "ClusterArn": cluster.id,
            "ClusterStatus": cluster.outputs["clusterStatus"],
            "CreationTime": min((one.launched.timestamp() for one in instances), default=0.0),
        }

    def _by_type(self, types: Sequence[str], instances: Sequence[Instance]) -> Answer:
        """What DescribeCluster adds of a flexible group (ClusterInstanceGroupDetails)."""
        there = Counter(one.type for one in instances)
        details = [{"InstanceType": name, "CurrentCount": there[name], "ThreadsPerCore": 1} for name in types]
        return {
            "InstanceRequirements": {"CurrentInstanceTypes": types, "DesiredInstanceTypes": types},
            "InstanceTypeDetails": details,
        }

    def _tags(self, asked: Request) -> Answer:
        tags = self._fleet.cluster(asked["ResourceArn"]).outputs.get("tags") or []
        return {"Tags": [{"Key": one["key"], "Value": one["value"]} for one in tags]}

    def _nodes(self, asked: Request) -> Answer:
        """A page of them (SageMaker API Reference, ListClusterNodes, MaxResults: at most 100)."""
        found, start = self._fleet.of(self._cluster(asked)), int(asked.get("NextToken", 0))
        end = start + int(asked.get("MaxResults", _PAGE))
        more = {"NextToken": str(end)} if end < len(found) else {}
        return {"ClusterNodeSummaries": [self._summary(one) for one in found[start:end]], **more}

    def _summary(self, one: Instance) -> Answer:
        return {
            "InstanceGroupName": one.group,
            "InstanceId": one.id,
            "InstanceType": one.type,
            "LaunchTime": one.launched.timestamp(),
            "InstanceStatus": {"Status": "Running"},
            "PrivateDnsHostname": f"ip-{one.address.replace('.', '-')}.{self._account.region}.compute.internal",
        }

    def _events(self, asked: Request) -> list[Answer]:
        """What HyperPod tells of instances that do not come."""
        cluster = self._cluster(asked)
        about = {"ClusterArn": cluster.id, "ClusterName": cluster.inputs["clusterName"], "ResourceType": "Cluster"}
        time = self._described(cluster)["CreationTime"]
        return [
            about | {"EventId": f"event-{place}", "EventTime": time, "EventLevel": "Error", "Description": told}
            for place, told in enumerate(awaited(self._account))
        ]

    def _event(self, asked: Request) -> Answer:
        for one in self._events(asked):
            if one["EventId"] == asked["EventId"]:
                return {"EventDetails": {key: value for key, value in one.items() if key != "EventLevel"}}
        raise Refused("ResourceNotFound", f"there is no event {asked['EventId']}")

    def _each(self, asked: Request, act: Callable[[Instance], None], *, code: str = "ErrorCode") -> Answer:
        """Do it to each instance that is asked for; an id that is not there fails alone."""
        known = {one.id: one for one in self._fleet.of(self._cluster(asked))}
        for name in asked["NodeIds"]:
            if name in known:
                act(known[name])
        unknown = "InstanceIdNotFound" if code == "ErrorCode" else "NodeIdNotFound"
        done = [name for name in asked["NodeIds"] if name in known]
        failed = [
            {"NodeId": name, code: unknown, "Message": f"there is no node {name}"}
            for name in asked["NodeIds"]
            if name not in known
        ]
        # The lists are not empty where they are there.
        return {key: found for key, found in (("Successful", done), ("Failed", failed)) if found}

    def _replace(self, asked: Request) -> Answer:
        return self._each(asked, self._fleet.replace)

    def _delete(self, asked: Request) -> Answer:
        cluster = self._cluster(asked)
        return self._each(asked, lambda one: self._fleet.delete(cluster, one), code="Code")

    def _session(self) -> Answer:
        raise Refused(
            "NotRehearsed",
            f"nothing runs on a node of the embedded account: `hyperpod rehearse nodes {self._stack}` boots such nodes",
        )

    def _file_systems(self, asked: Request) -> Answer:
        wanted = asked.get("FileSystemIds")
        found = [one.description(math.inf) for one in file_systems_of(self._account) if one.id in (wanted or [one.id])]
        if wanted and len(found) < len(wanted):
            raise Refused("FileSystemNotFound", f"one of {', '.join(wanted)} does not exist")
        return {"FileSystems": found}

    def _control_plane(self, asked: Request) -> Answer:
        """EKS's description. Its endpoint is this API, which answers as Kubernetes would that is not there."""
        live = self._account.live.get((CLUSTER, asked["name"]))
        if live is None:
            raise Refused("ResourceNotFoundException", f"No cluster found for name: {asked['name']}.")
        keys = ("name", "arn", "status", "version", "roleArn", "certificateAuthority")
        return {"cluster": {**{key: live.outputs[key] for key in keys}, "endpoint": self._address}}

    def _workspaces(self) -> Answer:
        """Of Grafana; moto has those of Prometheus."""
        return {
            "workspaces": [
                {"id": one.id, "name": one.inputs.get("name", ""), "tags": dict(one.inputs.get("tags") or {})}
                for one in self._account.find(_GRAFANA)
            ]
        }

    def _quotas(self, asked: Request) -> Answer:
        """The account's limits where it has any; of everything else it grants what the stack needs."""
        return {
            "Quotas": [
                {"ServiceCode": quota.service, "QuotaCode": quota.code, "QuotaName": quota.name}
                | {"Value": self._limit(quota.code, quota.name, quota.needed)}
                for quota in needed(self._config)
                if quota.service == asked["ServiceCode"]
            ]
        }

    def _limit(self, code: str, name: str, granted: float) -> float:
        quotas = self._account.quotas
        if code in _CODES:
            counted = COUNTED[_CODES[code]]
            return float(quotas.get(counted.name, counted.default))
        return float(next((quotas[word] for word in name.split() if word in quotas), _DEFAULTS.get(code, granted)))


def no_kubernetes(stack: str) -> bytes:
    """What a request for Kubernetes gets (Kubernetes API, Status v1)."""
    told = f"the embedded account runs no Kubernetes: `hyperpod rehearse eks {stack}` starts one on this machine"
    return json.dumps(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": told, "code": 503}
    ).encode()
