"""A team's place on the Kubernetes cluster: namespace, limits, network, permissions, environment and storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ...catalogue.accelerators import EFA_RESOURCE
from ...common.context import Tracking
from ...security.keys import PodSecurity
from ...storage.file_systems import LINK_PATH
from ...workers.instance_groups import InstanceGroup
from ..access import team_group
from ..keys import Team
from ..network_policies import team_policy
from ..pod_environment import TRACKING_MAP, config_map_name, pod_variables
from ..pod_resources import device_limits, efa_interfaces
from ..storage import DATA_CLAIM, LUSTRE_CLASS, VOLUME_CLASS
from .admission import TEAM_LABEL
from .directories import TEAMS, FileSystem, Mount, declare
from .queues import binary_quantity

core, rbac = kubernetes.core.v1, kubernetes.rbac.v1

# Kubernetes, "Guaranteed Scheduling For Critical Add-On Pods".
_SYSTEM_PRIORITIES = ("system-node-critical", "system-cluster-critical")
# A member's permissions, by API group; none reaches beyond the namespace.
_EVERYTHING = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_READ = ("get", "list", "watch")
_RIGHTS = (
    # Of namespaces its own, which is all that a Role in it gives.
    ("", ("namespaces",), ("get",)),
    ("", ("pods", "services", "configmaps", "secrets", "persistentvolumeclaims"), _EVERYTHING),
    ("", ("pods/exec", "pods/portforward"), ("create", "get")),
    ("", ("pods/log", "events", "resourcequotas", "limitranges"), _READ),
    ("apps", ("deployments", "statefulsets"), _EVERYTHING),
    ("batch", ("jobs", "cronjobs"), _EVERYTHING),
    ("kubeflow.org", ("mpijobs", "pytorchjobs"), _EVERYTHING),
    ("sagemaker.amazonaws.com", ("hyperpodpytorchjobs",), _EVERYTHING),
    ("kueue.x-k8s.io", ("localqueues", "workloads"), _READ),
)


@dataclass(frozen=True, kw_only=True)
class TrainingNamespaceArgs:
    """Inputs of a namespace.

    ``share`` limits the devices of all its pods together, as a part of all devices; ``governed``: task governance
    queues its jobs. ``separate``: the team sees only its own directory of the file system, and with ``linked_data`` the
    linked bucket's, read-only. ``scraped_from``, ``operated`` and ``memory_checkpoints``: as in ``team_policy``.
    ``tracking``: the app that jobs log to. ``after``: resources that the namespace waits for, and that are deleted only
    after it.
    """

    namespace: str
    team: Team
    groups: Sequence[InstanceGroup]
    share: float
    governed: bool = False
    file_system: FileSystem
    separate: bool
    linked_data: bool
    network_policy: bool = True
    scraped_from: Sequence[str] | None = None
    operated: bool = False
    memory_checkpoints: bool = False
    pod_security: PodSecurity
    tracking: Tracking | None = None
    after: Sequence[pulumi.Resource] = ()


class TrainingNamespace(ComponentResource):
    """Owns a namespace and its contents.

    Its pods may reach each other, DNS and HTTPS, and accept connections only from each other. EFA traffic bypasses
    network policies; the security group limits it. Deliberately absent: service accounts with permissions (jobs need
    none) and secrets (each team creates its own).
    """

    namespace: kubernetes.core.v1.Namespace

    def __init__(self, name: str, args: TrainingNamespaceArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:TrainingNamespace", name, None, opts)
        self._name, self._args = name, args
        labels = {"app.kubernetes.io/managed-by": "pulumi", TEAM_LABEL: args.team.name}
        for mode, level in (("enforce", args.pod_security), ("warn", "restricted"), ("audit", "restricted")):
            labels[f"pod-security.kubernetes.io/{mode}"] = level
        self.namespace = core.Namespace(
            f"{name}-namespace",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=args.namespace, labels=labels),
            opts=ResourceOptions(parent=self, depends_on=list(args.after)),
        )
        # A name alone would not tell Pulumi that the namespace comes first. Deleting the namespace deletes everything
        # in it; deleted one by one, the claim of a running job would never end.
        self._inside = ResourceOptions(parent=self, depends_on=[self.namespace], deleted_with=self.namespace)
        self._limits()
        if args.network_policy:
            team_policy(
                f"{name}-network",
                args.namespace,
                args.scraped_from,
                self._inside,
                operated=args.operated,
                memory_checkpoints=args.memory_checkpoints,
            )
        self._rights()
        self._environment()
        self._storage()
        self.register_outputs({"namespace": args.namespace})

    def _meta(self, name: str) -> kubernetes.meta.v1.ObjectMetaArgs:
        return kubernetes.meta.v1.ObjectMetaArgs(name=name, namespace=self._args.namespace)

    def _limits(self) -> None:
        args = self._args
        total = sum(group.count * group.type.accelerators for group in args.groups)
        interfaces = sum(efa_interfaces(group) * group.count for group in args.groups)
        devices = device_limits(args.groups, _part(total, args.share), governed=args.governed)
        hard: dict[str, Input[str]] = {f"requests.{device}": str(most) for device, most in devices.items()}
        hard[f"requests.{EFA_RESOURCE}"] = str(_part(interfaces, args.share))
        # Nothing here serves clients outside of the cluster.
        hard |= {"services.loadbalancers": "0", "services.nodeports": "0", "persistentvolumeclaims": "20"}
        own, given = args.file_system.capacity_gib, args.team.file_systems_gib
        limits = {VOLUME_CLASS: args.team.volumes_gib, LUSTRE_CLASS: own if given is None else given}
        for storage_class, limit in limits.items():
            key = f"{storage_class}.storageclass.storage.k8s.io/requests.storage"
            hard[key] = Output.from_input(limit).apply(lambda gib: binary_quantity(gib << 30))
        core.ResourceQuota(
            f"{self._name}-quota",
            metadata=self._meta("quota"),
            spec=core.ResourceQuotaSpecArgs(hard=hard),
            opts=self._inside,
        )
        # They preempt any other pod, those of queues too, and no right is asked for them.
        critical = core.ScopedResourceSelectorRequirementArgs(
            scope_name="PriorityClass", operator="In", values=list(_SYSTEM_PRIORITIES)
        )
        core.ResourceQuota(
            f"{self._name}-priorities",
            metadata=self._meta("no-system-priorities"),
            spec=core.ResourceQuotaSpecArgs(
                hard={"pods": "0"}, scope_selector=core.ScopeSelectorArgs(match_expressions=[critical])
            ),
            opts=self._inside,
        )
        core.LimitRange(
            f"{self._name}-limits",
            metadata=self._meta("limits"),
            spec=core.LimitRangeSpecArgs(
                limits=[
                    core.LimitRangeItemArgs(
                        type="Container",
                        default={"memory": "1Gi"},
                        default_request={"cpu": "100m", "memory": "256Mi"},
                    )
                ]
            ),
            opts=self._inside,
        )

    def _rights(self) -> None:
        rbac.Role(
            f"{self._name}-role",
            metadata=self._meta("member"),
            rules=[
                rbac.PolicyRuleArgs(api_groups=[group], resources=list(resources), verbs=list(verbs))
                for group, resources, verbs in _RIGHTS
            ],
            opts=self._inside,
        )
        rbac.RoleBinding(
            f"{self._name}-members",
            metadata=self._meta("members"),
            role_ref=rbac.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="Role", name="member"),
            subjects=[
                rbac.SubjectArgs(
                    api_group="rbac.authorization.k8s.io", kind="Group", name=team_group(self._args.team.name)
                )
            ],
            opts=self._inside,
        )

    def _environment(self) -> None:
        if self._args.tracking:
            # By itself: a map is replaced when it changes, and every pod waits for that of its group.
            core.ConfigMap(
                f"{self._name}-mlflow",
                metadata=self._meta(TRACKING_MAP),
                data={"MLFLOW_TRACKING_URI": self._args.tracking.arn},
                opts=self._inside,
            )
        for group in self._args.groups:
            core.ConfigMap(
                f"{self._name}-environment-{group.name}",
                metadata=self._meta(config_map_name(group.name)),
                data=pod_variables(group),
                opts=self._inside,
            )

    def _storage(self) -> None:
        """Create the volumes: each serves one claim, so every namespace has its own of the same file system."""
        args, team, system = self._args, self._args.team, self._args.file_system
        if not args.separate:
            # As stacks have had it from the start: another handle would make another volume.
            mount = Mount(namespace=args.namespace, volume=f"fsx-{args.namespace}", gid=team.uid, shared_handle=True)
            declare(f"{self._name}-fsx", system, mount, self, self._inside)
            return
        # Each source has its own names: another source makes another volume, and the previous one is deleted after its
        # claim.
        mine = Mount(
            namespace=args.namespace,
            volume=f"team-{args.namespace}",
            directory=f"{TEAMS}/{team.name}",
            gid=team.uid,
        )
        declare(f"{self._name}-fsx", system, mine, self, self._inside)
        if args.linked_data:
            data = Mount(
                namespace=args.namespace,
                volume=f"data-{args.namespace}",
                claim=DATA_CLAIM,
                directory=LINK_PATH.strip("/"),
                read_only=True,
            )
            declare(f"{self._name}-data", system, data, self, self._inside)


def _part(total: int, share: float) -> int:
    """Return a share in whole devices."""
    return int(total * share + 1e-9)
