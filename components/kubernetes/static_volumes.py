"""Volumes of data that were there before them, each with the one claim that may bind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import Input, ResourceOptions

core, meta = kubernetes.core.v1, kubernetes.meta.v1


@dataclass(frozen=True, kw_only=True)
class StaticVolume:
    """A volume and its claim. ``source`` is how the CSI driver finds the data; deleting a claim deletes no data."""

    namespace: str
    volume: str
    claim: str
    capacity: Mapping[str, Input[str]]
    modes: Sequence[str]
    mount_options: Sequence[str]
    source: kubernetes.core.v1.CSIPersistentVolumeSourceArgs
    annotations: Mapping[str, str] | None = None

    def create(
        self, name: str, parent: pulumi.Resource, inside: ResourceOptions
    ) -> kubernetes.core.v1.PersistentVolumeClaim:
        """Create the volume, and the claim with ``inside``.

        The volume is not in the namespace and waits for nothing: it is deleted when its claim is, with the namespace.
        """
        volume = core.PersistentVolume(
            name,
            metadata=meta.ObjectMetaArgs(name=self.volume, annotations=self.annotations),
            spec=core.PersistentVolumeSpecArgs(
                capacity=self.capacity,
                access_modes=list(self.modes),
                mount_options=list(self.mount_options),
                persistent_volume_reclaim_policy="Retain",
                storage_class_name="",
                claim_ref=core.ObjectReferenceArgs(namespace=self.namespace, name=self.claim),
                csi=self.source,
            ),
            opts=ResourceOptions(parent=parent),
        )
        return core.PersistentVolumeClaim(
            f"{name}-claim",
            metadata=meta.ObjectMetaArgs(name=self.claim, namespace=self.namespace),
            spec=core.PersistentVolumeClaimSpecArgs(
                access_modes=list(self.modes),
                storage_class_name="",
                volume_name=self.volume,
                resources=core.VolumeResourceRequirementsArgs(requests=self.capacity),
            ),
            opts=ResourceOptions.merge(inside, ResourceOptions(depends_on=[volume])),
        )
