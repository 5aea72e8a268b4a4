"""The directories of the stack's file system: their owners, and the claims that mount them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ..keys import KubernetesKeys, Team
from ..network_policies import deny_all
from ..static_volumes import StaticVolume
from ..storage import CLAIM_NAME, FSX_DRIVER

core, meta = kubernetes.core.v1, kubernetes.meta.v1

NAMESPACE = "hyperpod-storage"
LABELS = {"app.kubernetes.io/name": "directory"}
# Where jobs write without teams, and below what with them.
SHARED, TEAMS = "checkpoints", "teams"
# The digest of the index with every platform, which seven public repositories name; one of them asked both registries
# for it on 2026-10-05.
_IMAGE = (
    "public.ecr.aws/docker/library/busybox:1.37.0"
    "@sha256:bdf57e528e45e4433820e045b29b4597825a1c9e38353532d90a01445013f82e"
)
_MIRRORED = "busybox:1.37.0"
# The directory comes last: after an interruption it has the old owner, and the next try begins again. Nothing follows
# links, which a team could plant in its own folders.
_SCRIPT = """mkdir -p "$1"
test "$(stat -c %u:%g "$1")" = "$2:$2" || find "$1" -depth -exec chown -h "$2:$2" {} +
chmod 770 "$1"
"""


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """The stack's Lustre file system, as pods mount it. ``capacity_gib`` is its size at creation."""

    file_system_id: Input[str]
    dns_name: Input[str]
    mount_name: Input[str]
    capacity_gib: Input[int]


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A directory of the file system for one claim of one namespace. The empty one is the root.

    ``gid`` is a group of every pod with the claim (Kubernetes, "Configure a Pod to Use a PersistentVolume for Storage",
    access control). ``shared_handle``: as CSI knows the whole file system.
    """

    namespace: str
    volume: str
    claim: str = CLAIM_NAME
    directory: str = ""
    shared_handle: bool = False
    gid: int | None = None
    read_only: bool = False


def directory_of(settings: KubernetesKeys, team: Team) -> str:
    """Return the directory that belongs to a team's user."""
    return f"{TEAMS}/{team.name}" if settings.teams else SHARED


def declare(
    name: str, system: FileSystem, mount: Mount, parent: pulumi.Resource, inside: ResourceOptions
) -> kubernetes.core.v1.PersistentVolumeClaim:
    """Create a volume of the file system that no other claim can bind, and the claim, which is created with ``inside``.

    FSx for Lustre User Guide, "Mounting specific filesets": the client sees only a directory behind the mount name; the
    CSI driver puts the mount name into that place unchanged (its pkg/driver/node.go). Every volume has a separate
    handle: a pod with two volumes of one handle never starts (kubernetes issue 132921).
    """
    below, handle = mount.directory, system.file_system_id
    volume = StaticVolume(
        namespace=mount.namespace,
        volume=mount.volume,
        claim=mount.claim,
        annotations={"pv.beta.kubernetes.io/gid": str(mount.gid)} if mount.gid is not None else None,
        capacity={"storage": Output.concat(Output.from_input(system.capacity_gib).apply(str), "Gi")},
        modes=["ReadOnlyMany" if mount.read_only else "ReadWriteMany"],
        # Of a claim alone, "read-only" does not reach the driver.
        mount_options=["flock", "noatime", *(["ro"] if mount.read_only else [])],
        source=core.CSIPersistentVolumeSourceArgs(
            driver=FSX_DRIVER,
            volume_handle=handle if mount.shared_handle else Output.concat(handle, "/", mount.volume),
            volume_attributes={
                "dnsname": system.dns_name,
                "mountname": Output.concat(system.mount_name, "/", below) if below else system.mount_name,
            },
        ),
    )
    # A bound claim cannot grow unless a storage class created its volume. When the file system grows, the volume
    # shows it; the claim stays as it was created.
    return volume.create(
        name, parent, ResourceOptions.merge(inside, ResourceOptions(ignore_changes=["spec.resources"]))
    )


@dataclass(frozen=True, kw_only=True)
class DirectoriesArgs:
    """Inputs of the directories. ``cluster`` is the HyperPod cluster, whose nodes run the jobs; ``empties`` as in
    ``EksAddons``: administrators run pods here that mount the file system.

    The jobs wait for it: until task governance's Kueue has a node, its webhooks refuse every job (Kueue's chart,
    webhook/manifests.yaml, failurePolicy).
    """

    settings: KubernetesKeys
    image_registry: str | None
    file_system: FileSystem
    cluster: pulumi.Resource
    empties: Sequence[pulumi.Resource]


class Directories(ComponentResource):
    """Owns a namespace for administrators only, which has the root of the file system, and a job for each directory.

    A job creates its directory, gives it to the team's user, and changes the owner of its contents if another user
    owned it. Pods of a team wait for a missing directory. Deliberately absent: deleting a directory, ever.
    """

    def __init__(self, name: str, args: DirectoriesArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Directories", name, None, opts)
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        home = core.Namespace(
            f"{name}-namespace",
            metadata=meta.ObjectMetaArgs(name=NAMESPACE, labels=labels),
            opts=ResourceOptions(parent=self, depends_on=[args.cluster, *args.empties]),
        )
        inside = ResourceOptions(parent=self, depends_on=[home], deleted_with=home)
        if args.settings.charts.network_policies:
            deny_all(f"{name}-network", NAMESPACE, inside)
        root = declare(f"{name}-fsx", args.file_system, Mount(namespace=NAMESPACE, volume="fsx-root"), self, inside)
        after = ResourceOptions.merge(inside, ResourceOptions(depends_on=[root]))
        for team in args.settings.namespaces:
            self._job(f"{name}-{team.name}", team, args, after)
        self.register_outputs({})

    @staticmethod
    def _job(name: str, team: Team, args: DirectoriesArgs, opts: ResourceOptions) -> None:
        registry = args.image_registry
        container: dict[str, Any] = {
            "name": "directory",
            "image": f"{registry}/{_MIRRORED}" if registry else _IMAGE,
            "command": ["sh", "-ceu", _SCRIPT, "sh", f"/fsx/{directory_of(args.settings, team)}", str(team.uid)],
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]},
            },
            "volumeMounts": [{"name": "fsx", "mountPath": "/fsx"}],
        }
        pod: dict[str, Any] = {
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": False,
            "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "fsx", "persistentVolumeClaim": {"claimName": CLAIM_NAME}}],
            "containers": [container],
        }
        # There may be no node for hours.
        notes = {"pulumi.com/skipAwait": "true"}
        spec: Any = {"backoffLimit": 20, "template": {"metadata": {"labels": LABELS}, "spec": pod}}
        kubernetes.batch.v1.Job(
            name,
            metadata=meta.ObjectMetaArgs(name=team.name, namespace=NAMESPACE, annotations=notes),
            spec=spec,
            opts=opts,
        )
