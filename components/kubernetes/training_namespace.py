"""A team's place on the Kubernetes cluster: namespace, limits, network, permissions, environment and storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, Input, ResourceOptions

from ..catalogue.accelerators import EFA_RESOURCE
from ..config import InstanceGroup
from ..security import HTTPS, LUSTRE_PORTS
from .access import team_group
from .pod_environment import config_map_name, pod_variables
from .pod_resources import device_resources, efa_interfaces
from .storage import CLAIM_NAME, FSX_DRIVER

core, rbac, network = kubernetes.core.v1, kubernetes.rbac.v1, kubernetes.networking.v1

# Amazon EKS User Guide, "Understand how EKS Pod Identity works": the agent's address on every node.
_POD_IDENTITY = "169.254.170.23/32"
_DNS, _HTTP = 53, 80
# Kubernetes, "Pod Security Standards". Baseline refuses host access, and training needs none: EFA devices come from
# their plugin, shared memory and scratch are emptyDir.
_ENFORCED, _WARNED = "baseline", "restricted"
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
class FileSystem:
    """The stack's Lustre file system, as pods mount it. ``capacity_gib`` is its size at creation."""

    file_system_id: Input[str]
    dns_name: Input[str]
    mount_name: Input[str]
    capacity_gib: int


@dataclass(frozen=True, kw_only=True)
class TrainingNamespaceArgs:
    """What a namespace is made from.

    ``accelerators`` limits the devices of all its pods together. ``network_cidrs`` contain the file system; none where
    its network is unknown.
    """

    namespace: str
    team: str
    groups: Sequence[InstanceGroup]
    accelerators: int
    file_system: FileSystem
    network_cidrs: Sequence[str] = ()
    network_policy: bool = True


class TrainingNamespace(ComponentResource):
    """Owns a namespace and what is in it.

    Its pods may reach each other, DNS, the file system and HTTPS, and accept connections only from each other. EFA
    traffic bypasses network policies; the security group limits it. Deliberately absent: service accounts with
    permissions (jobs need none) and secrets (each team creates its own).
    """

    namespace: kubernetes.core.v1.Namespace

    def __init__(self, name: str, args: TrainingNamespaceArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:TrainingNamespace", name, None, opts)
        self._name, self._args = name, args
        labels = {"app.kubernetes.io/managed-by": "pulumi", "hyperpod/team": args.team}
        for level, mode in ((_ENFORCED, "enforce"), (_WARNED, "warn"), (_WARNED, "audit")):
            labels[f"pod-security.kubernetes.io/{mode}"] = level
        self.namespace = core.Namespace(
            f"{name}-namespace",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=args.namespace, labels=labels),
            opts=ResourceOptions(parent=self),
        )
        # A name alone would not tell Pulumi that the namespace comes first. Deleting the namespace deletes everything
        # in it; deleted one by one, the claim of a running job would never end.
        self._inside = ResourceOptions(parent=self, depends_on=[self.namespace], deleted_with=self.namespace)
        self._limits()
        if args.network_policy:
            self._network_policy()
        self._rights()
        self._environment()
        self._storage()
        self.register_outputs({"namespace": args.namespace})

    def _meta(self, name: str) -> kubernetes.meta.v1.ObjectMetaArgs:
        return kubernetes.meta.v1.ObjectMetaArgs(name=name, namespace=self._args.namespace)

    def _limits(self) -> None:
        args = self._args
        devices = device_resources(args.groups)
        hard: dict[str, str] = {f"requests.{device}": str(args.accelerators) for device in devices}
        hard[f"requests.{EFA_RESOURCE}"] = str(sum(efa_interfaces(group) * group.count for group in args.groups))
        # Nothing here serves clients outside of the cluster.
        hard |= {"services.loadbalancers": "0", "services.nodeports": "0", "persistentvolumeclaims": "20"}
        core.ResourceQuota(
            f"{self._name}-quota",
            metadata=self._meta("quota"),
            spec=core.ResourceQuotaSpecArgs(hard=hard),
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

    def _network_policy(self) -> None:
        args = self._args
        everyone_here = network.NetworkPolicyPeerArgs(pod_selector=kubernetes.meta.v1.LabelSelectorArgs())
        dns = network.NetworkPolicyPeerArgs(
            namespace_selector=kubernetes.meta.v1.LabelSelectorArgs(
                match_labels={"kubernetes.io/metadata.name": "kube-system"}
            )
        )
        lustre = [
            network.NetworkPolicyPortArgs(protocol="TCP", port=first, end_port=last if last > first else None)
            for first, last in LUSTRE_PORTS
        ]
        egress = [
            network.NetworkPolicyEgressRuleArgs(to=[everyone_here]),
            network.NetworkPolicyEgressRuleArgs(to=[dns], ports=[_port("UDP", _DNS), _port("TCP", _DNS)]),
            network.NetworkPolicyEgressRuleArgs(to=[_block(cidr) for cidr in args.network_cidrs] or None, ports=lustre),
            # AWS's endpoints, registries and model hubs.
            network.NetworkPolicyEgressRuleArgs(ports=[_port("TCP", HTTPS)]),
            network.NetworkPolicyEgressRuleArgs(to=[_block(_POD_IDENTITY)], ports=[_port("TCP", _HTTP)]),
        ]
        network.NetworkPolicy(
            f"{self._name}-network",
            metadata=self._meta("training"),
            spec=network.NetworkPolicySpecArgs(
                pod_selector=kubernetes.meta.v1.LabelSelectorArgs(),
                policy_types=["Ingress", "Egress"],
                ingress=[network.NetworkPolicyIngressRuleArgs(from_=[everyone_here])],
                egress=egress,
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
                rbac.SubjectArgs(api_group="rbac.authorization.k8s.io", kind="Group", name=team_group(self._args.team))
            ],
            opts=self._inside,
        )

    def _environment(self) -> None:
        for group in self._args.groups:
            core.ConfigMap(
                f"{self._name}-environment-{group.name}",
                metadata=self._meta(config_map_name(group.name)),
                data=pod_variables(group),
                opts=self._inside,
            )

    def _storage(self) -> None:
        """A volume serves one claim, so every namespace has its own volume of the same file system.

        The volume is not in the namespace and waits for nothing: it is deleted when its claim is, with the namespace.
        """
        args, system = self._args, self._args.file_system
        capacity: Mapping[str, str] = {"storage": f"{system.capacity_gib}Gi"}
        modes, volume_name = ["ReadWriteMany"], f"fsx-{args.namespace}"
        volume = core.PersistentVolume(
            f"{self._name}-fsx",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=volume_name),
            spec=core.PersistentVolumeSpecArgs(
                capacity=capacity,
                access_modes=modes,
                mount_options=["flock", "noatime"],
                # The file system belongs to the stack: deleting a claim must not delete it.
                persistent_volume_reclaim_policy="Retain",
                storage_class_name="",
                claim_ref=core.ObjectReferenceArgs(namespace=args.namespace, name=CLAIM_NAME),
                csi=core.CSIPersistentVolumeSourceArgs(
                    driver=FSX_DRIVER,
                    volume_handle=system.file_system_id,
                    volume_attributes={"dnsname": system.dns_name, "mountname": system.mount_name},
                ),
            ),
            opts=ResourceOptions(parent=self),
        )
        core.PersistentVolumeClaim(
            f"{self._name}-fsx-claim",
            metadata=self._meta(CLAIM_NAME),
            spec=core.PersistentVolumeClaimSpecArgs(
                access_modes=modes,
                storage_class_name="",
                volume_name=volume_name,
                resources=core.VolumeResourceRequirementsArgs(requests=capacity),
            ),
            # Only the size of a bound claim can change, and only if a storage class created the volume. When the file
            # system grows, the volume shows it; the claim stays as it was created.
            opts=ResourceOptions.merge(self._inside, ResourceOptions(depends_on=[volume], ignore_changes=["spec"])),
        )


def _port(protocol: str, port: int) -> kubernetes.networking.v1.NetworkPolicyPortArgs:
    return network.NetworkPolicyPortArgs(protocol=protocol, port=port)


def _block(cidr: str) -> kubernetes.networking.v1.NetworkPolicyPeerArgs:
    return network.NetworkPolicyPeerArgs(ip_block=network.IPBlockArgs(cidr=cidr))
