"""EKS's own add-ons, and the IAM roles of those that call AWS."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import ComponentResource, CustomTimeouts, Input, Output, Resource, ResourceOptions

from ..catalogue.kubernetes_versions import addon_version
from ..common.context import Context
from ..common.names import CLUSTER_ID_TAG, RoleKind
from ..common.policies import Statement, allow, deny, document
from ..observability.keys import Observability
from ..security.encryption import use_through, workspace_statements
from ..storage.keys import Fsx
from ..workers.instance_groups import InstanceGroup
from . import metrics_addon
from .keys import Charts, KubernetesKeys
from .network_policies import OPERATOR_NAMESPACE
from .node_placement import preferred_nodes
from .pod_identity import pod_role
from .storage import VOLUMES_TAG, bucket_rights

# These run as DaemonSets on every node; EKS reports them active without any.
NODE_ADDONS = ("eks-pod-identity-agent", "vpc-cni", "kube-proxy")
# Mountpoint for Amazon S3 runs a pod in this namespace for each mounted bucket (its driver's chart,
# mountpointPod.namespace).
S3_DRIVER, S3_NAMESPACE = "aws-mountpoint-s3-csi-driver", "mount-s3"
# These have Deployments, so EKS calls them active only once HyperPod's nodes exist.
POD_ADDONS = (
    "coredns",
    "aws-ebs-csi-driver",
    "aws-fsx-csi-driver",
    S3_DRIVER,
    "metrics-server",
)
# SageMaker's add-ons, each behind its switch.
TRAINING_OPERATOR, TASK_GOVERNANCE = (
    "amazon-sagemaker-hyperpod-training-operator",
    "amazon-sagemaker-hyperpod-taskgovernance",
)
SPACES = "amazon-sagemaker-spaces"
# SageMaker Developer Guide, "Using the HyperPod training operator", supported versions: 1.28 to 1.33. AWS's own module
# for Terraform, newer, says of the add-on's default build that 1.28 to 1.35 have it (awslabs/awsome-distributed-ai,
# hyperpod-eks-tf, hyperpod_training_operator).
_OPERATORS_NEWEST = (1, 35)
# SageMaker Developer Guide, "Setting up the SageMaker HyperPod observability add-on": a 4xlarge, which has 16 vCPUs.
_METRICS_VCPUS = 16
_EBS: RoleKind = "ebs-csi"
_FSX_TAG = "CSIVolumeName"
# HyperPod itself gives up on nodes after three hours (CreateCluster, MinInstanceCount); the cluster waits for 3.5, and
# starts once the HyperPod chart is installed.
_POD_ADDON_TIMEOUT = CustomTimeouts(create="4h")
_CONFIGURATION: Mapping[str, Mapping[str, object]] = {
    # On tainted nodes too, where the other add-ons' DaemonSets run by default (containers-roadmap, 2261;
    # Mountpoint for Amazon S3 CSI driver, installation).
    "eks-pod-identity-agent": {"tolerations": [{"operator": "Exists"}]},
    S3_DRIVER: {"node": {"tolerateAllTaints": True}},
    # SageMaker Developer Guide, "Install SageMaker AI Spaces Add-on", without its parts for web browsers, which need a
    # domain, a certificate and a load balancer.
    SPACES: {"jupyter-k8s": {"workspacePodWatching": {"enable": True}}},
}
# Add-ons whose published schema has an affinity (coredns: AWS CLI Reference, describe-addon-configuration; the EBS
# driver: values.schema.json of its chart): the key, and the label by which its pods avoid each other's nodes, which our
# affinity has to repeat. Only taints keep the other add-ons off accelerators.
_AFFINITY = {
    "coredns": ((), {"key": "k8s-app", "operator": "In", "values": ["kube-dns"]}),
    "aws-ebs-csi-driver": (("controller",), {"key": "app", "operator": "In", "values": ["ebs-csi-controller"]}),
}


@dataclass(frozen=True, kw_only=True)
class EksAddonsArgs:
    """Inputs of the add-ons. ``release`` is the HyperPod chart's release, whose namespace and cert-manager SageMaker's
    add-ons need.
    """

    context: Context
    settings: KubernetesKeys
    groups: Sequence[InstanceGroup]
    observability: Observability
    fsx: Fsx
    cluster_name: Input[str]
    release: Resource


@dataclass(frozen=True, kw_only=True)
class _Identity:
    """The service account of an add-on and its role's permissions: a managed policy, statements, or both.

    ``encrypts`` is the service that encrypts the add-on's data, with a customer key. ``namespace`` is set if the
    association is a separate resource: CreateAddon accepts one only for versions that ask for permissions.
    """

    kind: RoleKind
    service_account: str
    managed_policy: str | None = None
    statements: Input[Sequence[Statement]] | None = None
    encrypts: str | None = None
    namespace: str | None = None


class EksAddons(ComponentResource):
    """Owns the add-ons, each pinned to a version for the cluster's Kubernetes version, and their Pod Identity roles.

    The cluster waits for no add-on that needs pods. ``of_sagemaker`` creates SageMaker's after the nodes. Deliberately
    absent: roles for add-ons that do not call AWS, access to any bucket but the stack's own linked one, and the EBS
    driver's permissions on the nodes, which ``HyperPod`` owns because they need the cluster's ARN.

    ``empties`` are the add-ons that a namespace needs until it is empty: a pod stays Terminating without the driver
    that unmounts its volumes (spiffe/helm-charts, pull request 437), a volume without the driver that deletes it (AWS
    samples, sample-aws-eks-auto-mode, cleanup playbook), and a Workload without Kueue, which owns its finalizer.
    Drivers need AWS's DNS and credentials. ``of_nodes`` need no pods, and nodes need them to the end: AWS's guide wants
    them deleted after HyperPod's own resources ("Deleting a SageMaker HyperPod cluster").
    """

    ebs_role: Output[str]
    s3_driver: Resource
    of_nodes: list[Resource]
    empties: list[Resource]

    def __init__(self, name: str, args: EksAddonsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:EksAddons", name, None, opts)
        self._name, self._args, self._child = name, args, ResourceOptions(parent=self)
        self._known = self._identities()
        self.of_nodes = [self._install(addon) for addon in NODE_ADDONS]
        of_pods = {addon: self._install(addon) for addon in POD_ADDONS}
        self.s3_driver = of_pods[S3_DRIVER]
        self.empties = [*self.of_nodes, *of_pods.values()]

    def of_sagemaker(self, cluster: Resource) -> None:
        """Install the selected add-ons of SageMaker, last of all.

        They need the chart's cert-manager and namespace, and a node of the HyperPod cluster (SageMaker Developer Guide,
        "Task governance setup", "Setting up the SageMaker HyperPod observability add-on", "Installing the training
        operator": prerequisites).
        """
        args, charts = self._args, self._args.settings.charts
        switched = {
            TRAINING_OPERATOR: charts.hyperpod_training_operator,
            TASK_GOVERNANCE: charts.queues == "task-governance",
            SPACES: charts.spaces,
            metrics_addon.ADDON: metrics_addon.workspace(args.context, args.observability) is not None,
        }
        wanted = [addon for addon, on in switched.items() if on]
        for warning in _missing_prerequisites(args.settings.kubernetes_version, args.groups, wanted):
            pulumi.log.warn(warning, self)
        for addon in wanted:
            installed = self._install(addon, self._args.release, cluster)
            # The controller owns the finalizers of notebooks.
            if addon in (TASK_GOVERNANCE, SPACES):
                self.empties.append(installed)
        self.register_outputs({})

    def _install(self, addon: str, *before: Resource) -> Resource:
        args, identity, after = self._args, self._known.get(addon), list(before)
        if identity and identity.namespace:
            # An operator that starts without credentials would not get any until it starts again.
            after.append(self._own_association(addon, identity, identity.namespace))
            identity = None
        return aws.eks.Addon(
            f"{self._name}-{addon}",
            cluster_name=args.cluster_name,
            addon_name=addon,
            addon_version=addon_version(addon, args.settings.kubernetes_version),
            configuration_values=self._configuration(addon),
            # EKS installs unmanaged copies on a new cluster; the add-on takes them over.
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            pod_identity_associations=[self._association(identity)] if identity else None,
            opts=ResourceOptions(
                parent=self,
                depends_on=after or None,
                custom_timeouts=None if addon in NODE_ADDONS else _POD_ADDON_TIMEOUT,
            ),
        )

    def _configuration(self, addon: str) -> Input[str] | None:
        args, prometheus = self._args, self._args.context.prometheus
        if addon == metrics_addon.ADDON and prometheus:
            where = Output.all(prometheus.arn, prometheus.endpoint)
            governed = args.settings.charts.queues == "task-governance"
            return where.apply(
                lambda both: metrics_addon.configuration(args.observability, args.groups, governed, *both)
            )
        settings = configuration(addon, args.groups, args.settings.charts)
        return json.dumps(settings) if settings else None

    def _identities(self) -> dict[str, _Identity]:
        """Return service accounts and managed policies as the EKS User Guide names them ("AWS add-ons")."""
        context = self._args.context
        file_systems, given = context.arn("fsx", "file-system/*"), self._args.fsx.file_system_id
        identities = {
            "vpc-cni": _Identity(
                kind="vpc-cni",
                service_account="aws-node",
                managed_policy="AmazonEKS_CNI_Policy",
                # Newer versions have SageMaker attach interfaces to its instances (SageMaker API Reference,
                # AttachClusterNodeNetworkInterface), while the cluster, whose id is not known yet, is still being
                # created.
                statements=[
                    allow(["sagemaker:AttachClusterNodeNetworkInterface"], [context.arn("sagemaker", "cluster/*")])
                ],
            ),
            "aws-ebs-csi-driver": _Identity(
                kind=_EBS,
                service_account="ebs-csi-controller-sa",
                managed_policy="AmazonEBSCSIDriverPolicyV2",
                encrypts="ec2",
                statements=[allow(["eks:DescribeCluster"], [context.arn("eks", f"cluster/{context.names.cluster}")])],
            ),
            "aws-fsx-csi-driver": _Identity(
                kind="fsx-csi",
                service_account="fsx-csi-controller-sa",
                encrypts="fsx",
                statements=[
                    allow(["fsx:CreateFileSystem"], [file_systems]),
                    # The tag that it writes by itself (pkg/cloud/cloud.go), and the one that the storage class adds.
                    allow(
                        ["fsx:TagResource"],
                        [file_systems],
                        {"ForAllValues:StringEquals": {"aws:TagKeys": [_FSX_TAG, VOLUMES_TAG]}},
                    ),
                    # This action has no resource type: an ARN would match nothing (Service Authorization Reference,
                    # Amazon FSx).
                    allow(["fsx:DescribeFileSystems"], ["*"]),
                    # Only resources that the driver itself created, and so never the stack's own file system.
                    allow(
                        ["fsx:DeleteFileSystem", "fsx:UpdateFileSystem"],
                        [file_systems],
                        {"Null": {f"aws:ResourceTag/{_FSX_TAG}": "false"}},
                    ),
                    # Whoever has this role could tag a stack's own file system, and then delete it.
                    deny(["fsx:*"], [file_systems], {"Null": {f"aws:ResourceTag/{CLUSTER_ID_TAG}": "false"}}),
                    # An existing one need not have the tag.
                    *([deny(["fsx:*"], [context.arn("fsx", f"file-system/{given}")])] if given else []),
                ],
            ),
        }
        identities[TRAINING_OPERATOR] = _Identity(
            kind="operator",
            service_account="hp-training-operator-controller-manager",
            managed_policy="AmazonSageMakerHyperPodTrainingOperatorAccess",
            # Amazon SageMaker Developer Guide, "Installing the training operator". EKS says of its version 1.2.1 that
            # it needs no permissions, and so refuses an association with it (awslabs/awsome-distributed-ai, 1075).
            namespace=OPERATOR_NAMESPACE,
        )
        # SageMaker Developer Guide, "Set up permissions" (of Spaces): the role that is always required.
        identities[SPACES] = _Identity(
            kind="spaces",
            service_account="jupyter-k8s-controller-manager",
            managed_policy="AmazonSageMakerSpacesControllerPolicy",
        )
        if prometheus := context.prometheus:
            identities[metrics_addon.ADDON] = _Identity(
                kind="metrics",
                service_account=metrics_addon.SERVICE_ACCOUNT,
                statements=Output.all(prometheus.arn, context.key).apply(
                    lambda both: [
                        *metrics_addon.statements(context, both[0], logs=self._args.observability.logs),
                        *workspace_statements(context, both[1]),
                    ]
                ),
            )
        if linked := self._args.fsx.linked_bucket:
            identities[S3_DRIVER] = _Identity(
                kind="s3-csi",
                service_account="s3-csi-driver-sa",
                statements=bucket_rights(context.partition, linked),
            )
        return identities

    def _association(self, identity: _Identity) -> aws.eks.AddonPodIdentityAssociationArgs:
        return aws.eks.AddonPodIdentityAssociationArgs(
            role_arn=self._role(identity), service_account=identity.service_account
        )

    def _own_association(self, addon: str, identity: _Identity, namespace: str) -> Resource:
        return aws.eks.PodIdentityAssociation(
            f"{self._name}-{addon}",
            cluster_name=self._args.cluster_name,
            namespace=namespace,
            service_account=identity.service_account,
            role_arn=self._role(identity),
            opts=self._child,
        )

    def _role(self, identity: _Identity) -> Output[str]:
        context, name = self._args.context, f"{self._name}-{identity.kind}"
        role = pod_role(name, context.names.role(identity.kind), context, self._child)
        if identity.kind == _EBS:
            self.ebs_role = role.name
        policies: list[Output[str]] = []
        if identity.managed_policy:
            attached = aws.iam.RolePolicyAttachment(
                name,
                role=role.name,
                policy_arn=f"arn:{context.partition}:iam::aws:policy/{identity.managed_policy}",
                opts=self._child,
            )
            policies.append(attached.id)
        if identity.statements is not None:
            inline = aws.iam.RolePolicy(
                name,
                role=role.name,
                policy=self._policy(identity),
                opts=self._child,
            )
            policies.append(inline.id)
        # An add-on must not start before its role has permissions.
        return Output.all(role.arn, *policies).apply(lambda all_of_it: str(all_of_it[0]))

    def _policy(self, identity: _Identity) -> Input[str]:
        context, service = self._args.context, identity.encrypts
        key = context.key if service else None
        return Output.all(identity.statements, key).apply(
            lambda both: document([*both[0], *(use_through(context, both[1], service or "") if both[1] else ())])
        )


def _missing_prerequisites(version: str, groups: Sequence[InstanceGroup], addons: Sequence[str]) -> Iterator[str]:
    """Report what SageMaker's guide requires and the stack lacks. EKS itself may still accept the add-ons."""
    if TRAINING_OPERATOR in addons and tuple(map(int, version.split("."))) > _OPERATORS_NEWEST:
        newest = ".".join(map(str, _OPERATORS_NEWEST))
        yield (
            f"SageMaker's guide and AWS's samples name Kubernetes up to {newest} for its training operator, and the "
            f"stack has {version}: EKS may not have the add-on for it"
        )
    if metrics_addon.ADDON in addons:
        here = [g.type for g in groups if g.count and not any(taint.repels for taint in g.taints)]
        known = all(one.catalogued for one in here)
        if here and known and (largest := max(here, key=lambda one: one.vcpus)).vcpus < _METRICS_VCPUS:
            yield (
                "SageMaker's guide asks for a node of 4xlarge or larger with room for all pods of its metrics add-on; "
                f"the largest here that takes any pod is {largest.name}"
            )


def configuration(addon: str, groups: Sequence[InstanceGroup], charts: Charts) -> dict[str, Any]:
    """Return the add-on's configuration values; empty if its defaults are right."""
    settings: dict[str, Any] = dict(_CONFIGURATION.get(addon, {}))
    if addon == "vpc-cni" and charts.network_policies:
        # Without it the CNI accepts NetworkPolicies and enforces none (EKS User Guide, "Limit Pod traffic").
        settings["enableNetworkPolicy"] = "true"
    if addon == "vpc-cni" and charts.strict_network_policies:
        settings["env"] = {"NETWORK_POLICY_ENFORCING_MODE": "strict"}
    nodes = preferred_nodes(groups)
    if nodes and addon in _AFFINITY:
        path, own_pods = _AFFINITY[addon]
        apart = {"labelSelector": {"matchExpressions": [own_pods]}, "topologyKey": "kubernetes.io/hostname"}
        anti = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]}
        value: dict[str, Any] = {"affinity": {"nodeAffinity": nodes, "podAntiAffinity": anti}}
        for part in reversed(path):
            value = {part: value}
        settings |= value
    return settings
