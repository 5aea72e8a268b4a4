"""Kueue: jobs wait in their team's queue until all of their pods fit into the cluster's real capacity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, ResourceOptions

from ...catalogue.accelerators import EFA_RESOURCE
from ...workers.instance_groups import InstanceGroup
from ..charts import KUEUE
from ..network_policies import allow_all
from ..node_placement import GROUP_LABEL, NETWORK_LAYERS, system_group_names
from ..pod_resources import HUGE_PAGES_RESOURCE, device_resources, efa_interfaces, huge_pages_mib, node_cpus

RELEASE_NAME = "kueue"
NAMESPACE = "kueue-system"
LOCAL_QUEUE = "training"
# The labels of jobs (Kueue, pkg/controller/constants).
QUEUE_LABEL, PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
COHORT = "cluster"
# Groups without these labels have a topology of hosts alone: jobs need not ask for a topology in a queue whose flavors
# all have one (Kueue 0.14, pkg/scheduler/flavorassigner, isTASImplied).
TOPOLOGIES = {"network": (*NETWORK_LAYERS, "kubernetes.io/hostname"), "hosts": ("kubernetes.io/hostname",)}
API = "kueue.x-k8s.io/v1beta1"
# The value of each class and its purpose; a job without a class counts as 0.
PRIORITIES = {"high": (1000, "preempts the others"), "normal": (100, "training"), "low": (10, "may wait, may be cut")}
_IMAGE = "registry.k8s.io/kueue/kueue"
# A node pulls images of tens of GB before its first pod is ready.
_PODS_READY = "30m"
# A job that never comes up is deactivated after that many tries, for its owner to see.
_TRIES = 5
# The cluster is in service before its nodes exist (SageMaker API Reference, UpdateCluster, NodeProvisioningMode), and
# Kueue's pods need one. Twice the longest that users report until instances have come, and some minutes.
_TIMEOUT_SECONDS = 3600
# Share of nodes without accelerators; the rest is for the cluster's own pods.
_JOBS_SHARE_OF_SYSTEM_NODE = 0.5
_FRAMEWORKS = ("batch/job", "kubeflow.org/mpijob", "kubeflow.org/pytorchjob")
# SageMaker Developer Guide, "Installing the training operator", Kueue: the operator itself makes the workloads. The
# kind is spelled as the operator's own (aws/sagemaker-hyperpod-cli, its template) and in "Task governance setup".
_HYPERPOD_JOBS = "HyperPodPyTorchJob.v1.sagemaker.amazonaws.com"


@dataclass(frozen=True, kw_only=True)
class QueuesArgs:
    """Inputs of the queues. ``shares`` is each namespace's part of the cluster; the sum is 1.

    ``ready`` is what Kueue's pods need before they can run: the HyperPod cluster. ``hyperpod_jobs``: SageMaker's
    training operator is installed. ``topology``: jobs are placed by EC2's network.
    """

    groups: Sequence[InstanceGroup]
    shares: Mapping[str, float]
    ready: Sequence[pulumi.Resource]
    image_registry: str | None = None
    strict_network_policies: bool = False
    hyperpod_jobs: bool = False
    topology: bool = False


class Queues(ComponentResource):
    """Owns Kueue, a flavor for each worker group, a queue for each namespace, and the priorities.

    Kueue's webhooks check its own objects, so its release waits for its pods, and everything here comes after the
    nodes. A queue borrows what other queues leave idle and returns it when they need it.

    A ClusterQueue goes only once no job holds any of it (Kueue, clusterqueue_controller.go): its namespace comes later,
    so that Pulumi deletes the namespace first, with its jobs. ``cluster_queues`` are by namespace.
    """

    cluster_queues: Mapping[str, pulumi.Resource]

    def __init__(self, name: str, args: QueuesArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Queues", name, None, opts)
        self._name = name
        # Helm could create the namespace too, but would leave it behind.
        home = kubernetes.core.v1.Namespace(
            f"{name}-namespace",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=NAMESPACE),
            opts=ResourceOptions(parent=self),
        )
        ready = [home, *args.ready]
        if args.strict_network_policies:
            inside = ResourceOptions(parent=self, depends_on=[home], deleted_with=home)
            ready.append(allow_all(f"{name}-open", NAMESPACE, inside))
        self._release = kubernetes.helm.v3.Release(
            f"{name}-kueue",
            name=RELEASE_NAME,
            namespace=NAMESPACE,
            chart=f"./{KUEUE.path}",
            values=kueue_values(args.image_registry, args.groups, hyperpod_jobs=args.hyperpod_jobs),
            timeout=_TIMEOUT_SECONDS,
            opts=ResourceOptions(parent=self, depends_on=ready),
        )
        # No webhook checks these: while they are created, the API server learns where Kueue's webhooks answer.
        self._first = [
            self._declare(
                f"priority-{priority}",
                "WorkloadPriorityClass",
                {"name": priority},
                value=value,
                description=description,
            )
            for priority, (value, description) in PRIORITIES.items()
        ]
        # Kueue keeps a topology until no flavor names it.
        named = {topology_of(group) for group in args.groups} if args.topology else ()
        topologies = [
            self._declare(
                f"topology-{name}",
                "Topology",
                {"name": name},
                *self._first,
                spec={"levels": [{"nodeLabel": label} for label in labels]},
            )
            for name, labels in TOPOLOGIES.items()
            if name in named
        ]
        flavors = []
        for group in args.groups:
            metadata, spec = {"name": flavor_name(group, args.topology)}, flavor(group, args.topology)
            after = (*self._first, *topologies)
            flavors.append(self._declare(f"flavor-{group.name}", "ResourceFlavor", metadata, *after, spec=spec))
        # Kueue keeps a flavor until no queue names it. Flavors that wait for a topology may come after the queues.
        named_flavors = flavors if args.topology else ()
        before, queues = 0.0, {}
        for namespace, share in args.shares.items():
            queue = cluster_queue(namespace, args.groups, share, before, topology=args.topology)
            before += share
            metadata = {"name": namespace}
            after = (*self._first, *named_flavors)
            queues[namespace] = self._declare(f"queue-{namespace}", "ClusterQueue", metadata, *after, spec=queue)
        self.cluster_queues = queues

    def admit_jobs(self, homes: Mapping[str, pulumi.Resource]) -> None:
        """Admit the jobs of these existing namespaces to their queues. Nothing comes after these."""
        for namespace, home in homes.items():
            metadata, spec = {"name": LOCAL_QUEUE, "namespace": namespace}, {"clusterQueue": namespace}
            self._declare(f"local-{namespace}", "LocalQueue", metadata, *self._first, home, spec=spec)
        self.register_outputs({})

    def _declare(
        self, which: str, kind: str, metadata: Mapping[str, str], *after: pulumi.Resource, **fields: Any
    ) -> pulumi.Resource:
        # The SDK's class for custom resources has only spec; a priority class has none.
        return pulumi.CustomResource(
            f"kubernetes:{API}:{kind}",
            f"{self._name}-{which}",
            {"apiVersion": API, "kind": kind, "metadata": metadata, **fields},
            ResourceOptions(parent=self, depends_on=[self._release, *after]),
        )


def kueue_values(
    image_registry: str | None, groups: Sequence[InstanceGroup] = (), *, hyperpod_jobs: bool = False
) -> dict[str, Any]:
    """Return the chart's values: the released image, the frameworks, gang scheduling, and Kueue's placement."""
    integrations = {"frameworks": list(_FRAMEWORKS)}
    if hyperpod_jobs:
        integrations["externalFrameworks"] = [_HYPERPOD_JOBS]
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {"groupKindConcurrency": {"Job.batch": 5, "Workload.kueue.x-k8s.io": 5}},
        "clientConnection": {"qps": 50, "burst": 100},
        # A job with only some of its pods running returns everything and queues again.
        "waitForPodsReady": {
            "enable": True,
            "timeout": _PODS_READY,
            "recoveryTimeout": _PODS_READY,
            # Quotas match the nodes, so no job needs to wait until another team's images are pulled.
            "blockAdmission": False,
            "requeuingStrategy": {"backoffLimitCount": _TRIES},
        },
        "integrations": integrations,
    }
    image = {
        "repository": f"{image_registry}/kueue" if image_registry else _IMAGE,
        "tag": f"v{KUEUE.version}",
        "pullPolicy": "IfNotPresent",
    }
    manager: dict[str, Any] = {"replicas": 1, "manager": {"image": image}}
    if names := system_group_names(groups):
        # The chart has no value for affinity, and a selector allows only one value for a label.
        manager["nodeSelector"] = {GROUP_LABEL: names[0]}
    return {
        "controllerManager": manager,
        # JSON is valid YAML; the chart takes the file as text.
        "managerConfig": {"controllerManagerConfigYaml": json.dumps(configuration, indent=2)},
    }


def topology_of(group: InstanceGroup) -> str:
    """Return the name of the topology that a worker group's flavor has."""
    return "network" if group.type.network_labels else "hosts"


def flavor_name(group: InstanceGroup, topology: bool = False) -> str:
    """Return the name of a worker group's flavor.

    Kueue accepts no change of a flavor that has a topology (its CRD's rules), so a changed one needs another name.
    """
    if not topology:
        return group.name.lower()
    digest = hashlib.sha256(json.dumps(flavor(group, topology), sort_keys=True).encode()).hexdigest()
    return f"{group.name.lower()}-{digest[:6]}"


def flavor(group: InstanceGroup, topology: bool = False) -> dict[str, Any]:
    """Return the nodes of a worker group, for Kueue."""
    spec: dict[str, Any] = {"nodeLabels": {GROUP_LABEL: group.name}}
    if topology:
        spec["topologyName"] = topology_of(group)
    # Kubernetes makes pods tolerate a taint named after a device they request; their job does not show it.
    implied = [taint for taint in group.taints if taint.key in device_resources([group])]
    if implied:
        spec["tolerations"] = [{"key": taint.key, "operator": "Exists", "effect": taint.effect} for taint in implied]
    if others := [taint for taint in group.taints if taint not in implied]:
        # Only jobs that tolerate the taints use this flavor.
        spec["nodeTaints"] = [taint.model_dump() for taint in others]
    return spec


def cluster_queue(
    namespace: str, groups: Sequence[InstanceGroup], share: float, before: float = 0.0, *, topology: bool = False
) -> dict[str, Any]:
    """Return a namespace's queue: its share of every worker group, and what the others do not use.

    ``before`` is the share of all earlier queues, so that rounding leaves no device out.
    """
    devices = device_resources(groups)
    covered = ["cpu", "memory", HUGE_PAGES_RESOURCE, EFA_RESOURCE, *devices]
    flavors = [
        {"name": flavor_name(group, topology), "resources": [{"name": r, "nominalQuota": q} for r, q in quota.items()]}
        # Kueue takes the first flavor that fits: jobs without accelerators should not use up nodes that have some.
        for group in sorted(groups, key=lambda group: group.type.accelerators > 0)
        for quota in [_quota(group, share, before, devices)]
    ]
    return {
        "cohort": COHORT,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {
            "reclaimWithinCohort": "Any",
            "withinClusterQueue": "LowerPriority",
            # Without it a job that borrows preempts nothing, not even its own team's jobs (Kueue, "Cluster Queue",
            # Preemption). Of the other teams' it preempts what they borrow for jobs of the lowest priority.
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": PRIORITIES["low"][0]},
        },
        "resourceGroups": [{"coveredResources": covered, "flavors": flavors}],
    }


def _quota(group: InstanceGroup, share: float, before: float, devices: Sequence[str]) -> dict[str, str]:
    """Return a share of all nodes of a group, in whole devices. A flavor must name every resource of any other flavor.

    Quantities are spelled as the API server returns them: otherwise every later preview would show a change.
    """

    part_of_node = 1.0 if group.type.accelerator else _JOBS_SHARE_OF_SYSTEM_NODE

    def whole(each: float) -> int:
        return whole_part(each * group.count * part_of_node, share, before)

    def part(each: float) -> str:
        return str(whole(each))

    own = device_resources([group])
    return {
        "cpu": part(node_cpus(group)),
        "memory": binary_quantity(whole(group.type.memory_gib) << 30),
        HUGE_PAGES_RESOURCE: binary_quantity(whole(huge_pages_mib(group)) << 20),
        EFA_RESOURCE: part(efa_interfaces(group)),
        **{device: part(group.type.accelerators) if device in own else "0" for device in devices},
    }


def whole_part(total: float, share: float, before: float) -> int:
    """Return a share of ``total`` in whole units; with ``before`` as in ``cluster_queue``."""
    return int(total * (before + share) + 1e-9) - int(total * before + 1e-9)


def binary_quantity(amount: int) -> str:
    """Format bytes as Kubernetes' canonical quantities: the largest unit that needs no fraction."""
    units = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
    power = 0
    while amount and amount % 1024 == 0 and power < len(units) - 1:
        amount, power = amount // 1024, power + 1
    return f"{amount}{units[power]}"


def shares(promised: Mapping[str, int | None], total: int) -> dict[str, float]:
    """Return each namespace's part of ``total`` devices: its guaranteed count, or an equal part of the rest."""
    if not total:
        # Groups without accelerators are shared too.
        return dict.fromkeys(promised, 1 / len(promised))
    open_ones = [name for name, count in promised.items() if count is None]
    rest = total - sum(count or 0 for count in promised.values())
    equal = rest / len(open_ones) if open_ones else 0.0
    return {name: (equal if count is None else count) / total for name, count in promised.items()}
