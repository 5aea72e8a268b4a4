"""The shared file systems, which nodes find through an exact tag: FSx for Lustre, and FSx for OpenZFS for homes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_aws_native as aws_native
from pulumi import ComponentResource, Input, Output, ResourceOptions

from ..common.context import Context
from ..common.names import CLUSTER_ID_TAG
from .keys import Fsx

# The newest Lustre server version that PERSISTENT_2 offers and HyperPod's client supports (FSx for Lustre User Guide).
LUSTRE_VERSION = "2.15"
DEPLOYMENT_TYPE = "PERSISTENT_2"
LINK_PATH = "/data"
# Where the nodes mount it.
MOUNT_POINT = "/fsx"
# Of FSx for OpenZFS's single-zone types the one that every region with OpenZFS has (FSx for OpenZFS User Guide,
# "Availability by AWS Region"), if not in each of its zones (assumption aws-openzfs-zone). It repairs itself within
# about 30 minutes ("Availability and durability").
HOME_DEPLOYMENT_TYPE = "SINGLE_AZ_1"
# Root of the nodes makes the people's folders. "crossmnt" shows snapshots, and with "sync", FSx's default as well,
# written data is on disk (Amazon FSx API Reference, OpenZFSClientConfiguration; exports(5)). The security groups decide
# who reaches it.
HOME_OPTIONS = ("rw", "crossmnt", "sync", "no_root_squash")


@dataclass(frozen=True, kw_only=True)
class StorageArgs:
    """Inputs of the file systems: their keys, and the capacity of the one for /fsx.

    ``ready`` are the rules of the security groups: FSx checks them, and refuses groups that do not allow its traffic.
    """

    context: Context
    fsx: Fsx
    capacity_gib: int
    subnet_id: Input[str]
    security_group_ids: Sequence[Input[str]]
    ready: Sequence[pulumi.Resource] = ()


class Storage(ComponentResource):
    """Owns the Lustre file system and, with a linked bucket, its data repository association under ``/data``.

    The cluster does not wait for it: it takes about ten minutes, as instances do, and nodes look for the one file
    system whose tag is exactly this stack's cluster id. FSx always encrypts, by default with a key that AWS owns. EFA
    is fixed at creation, and with it the throughput. New and changed files are written back to the bucket. An object is
    deleted with its file only with ``export_deletes``, so that a job's ``rm`` does not delete a data set. If the
    configuration gives homes a size, it owns a second file system for them, on OpenZFS, which the nodes also mount
    themselves. ``mounts`` are what HyperPod itself would mount (SageMaker API Reference, ClusterInstanceStorageConfig):
    a cluster that has them waits for the file systems, and no page says what happens if a mount fails. It only looks up
    an existing file system, so that the stack never changes or deletes it; the link is the stack's own.
    ``capacity_gib`` and ``bandwidth``, in bytes per second, do not wait for the stack's own file system. Deliberately
    absent: the linked bucket (it is the user's, and outlives the stack).
    """

    capacity_gib: Output[int]
    bandwidth: Output[int]
    file_system_id: Output[str]
    dns_name: Output[str]
    mount_name: Output[str]
    mounts: list[aws_native.sagemaker.ClusterInstanceStorageConfigArgs]
    outputs: dict[str, Output[str]]

    def __init__(self, name: str, args: StorageArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("hyperpod:index:Storage", name, None, opts)
        fsx = args.fsx
        if fsx.file_system_id:
            file_system = aws.fsx.LustreFileSystem.get(
                f"{name}-existing", fsx.file_system_id, opts=ResourceOptions(parent=self)
            )
            self.capacity_gib = file_system.storage_capacity.apply(lambda gib: gib or 0)
            throughput = file_system.per_unit_storage_throughput
            # In a preview some CLIs do not know the id of a read resource, and would replace the link.
            self.file_system_id = Output.from_input(fsx.file_system_id)
        else:
            file_system = self._lustre(name, args)
            self.file_system_id = file_system.id
            self.capacity_gib = Output.from_input(args.capacity_gib)
            throughput = Output.from_input(fsx.throughput)
        self.bandwidth = Output.all(self.capacity_gib, throughput).apply(lambda found: bandwidth(*found))
        if fsx.linked_bucket:
            updates = ["NEW", "CHANGED"]
            exported = [*updates, "DELETED"] if fsx.export_deletes else updates
            aws.fsx.DataRepositoryAssociation(
                f"{name}-link",
                file_system_id=self.file_system_id,
                data_repository_path=f"s3://{fsx.linked_bucket}",
                file_system_path=LINK_PATH,
                batch_import_meta_data_on_create=True,
                s3=aws.fsx.DataRepositoryAssociationS3Args(
                    auto_import_policy=aws.fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(
                        events=[*updates, "DELETED"]
                    ),
                    auto_export_policy=aws.fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(events=exported),
                ),
                opts=ResourceOptions(parent=self),
            )
        self.dns_name, self.mount_name = file_system.dns_name, file_system.mount_name
        self.outputs = {"fsxId": self.file_system_id, "fsxDnsName": self.dns_name, "fsxMountName": self.mount_name}
        volume = aws_native.sagemaker.ClusterInstanceStorageConfigArgs
        lustre = aws_native.sagemaker.ClusterInstanceStorageFsxLustreConfigArgs(
            dns_name=self.dns_name, mount_name=self.mount_name, mount_path=MOUNT_POINT
        )
        self.mounts = [volume(fsx_lustre_config=lustre)]
        if fsx.home_storage_gib:
            home = self._home(name, args)
            self.outputs["homeFsxId"] = home.id
            zfs = aws_native.sagemaker.ClusterFsxOpenZfsConfigArgs(dns_name=home.dns_name, mount_path="/home")
            self.mounts.append(volume(fsx_open_zfs_config=zfs))
        self.register_outputs(self.outputs)

    def _lustre(self, name: str, args: StorageArgs) -> aws.fsx.LustreFileSystem:
        """Create the stack's own file system for /fsx."""
        context, fsx = args.context, args.fsx
        metadata = aws.fsx.LustreFileSystemMetadataConfigurationArgs(mode="AUTOMATIC") if fsx.efa else None
        return aws.fsx.LustreFileSystem(
            f"{name}-lustre",
            deployment_type=DEPLOYMENT_TYPE,
            storage_type="SSD",
            storage_capacity=args.capacity_gib,
            per_unit_storage_throughput=fsx.throughput,
            data_compression_type=fsx.compression,
            efa_enabled=True if fsx.efa else None,
            metadata_configuration=metadata,
            file_system_type_version=LUSTRE_VERSION,
            kms_key_id=context.key,
            automatic_backup_retention_days=fsx.backup_days,
            copy_tags_to_backups=True if fsx.backup_days else None,
            skip_final_backup=True,
            subnet_ids=args.subnet_id,
            security_group_ids=list(args.security_group_ids),
            tags={"Name": context.names.cluster, CLUSTER_ID_TAG: context.names.cluster_id},
            opts=ResourceOptions(
                parent=self,
                protect=context.protect,
                retain_on_delete=fsx.retain_on_delete,
                # FSx sets it once: turning backups on later would create a new, empty file system.
                ignore_changes=["copyTagsToBackups"],
                depends_on=list(args.ready),
            ),
        )

    def _home(self, name: str, args: StorageArgs) -> aws.fsx.OpenZfsFileSystem:
        """Create the file system for /home. Nodes distinguish it from the other one, which has the same tag, by its
        type.
        """
        context, fsx = args.context, args.fsx
        return aws.fsx.OpenZfsFileSystem(
            f"{name}-home",
            deployment_type=HOME_DEPLOYMENT_TYPE,
            storage_capacity=fsx.home_storage_gib,
            throughput_capacity=fsx.home_throughput,
            root_volume_configuration=aws.fsx.OpenZfsFileSystemRootVolumeConfigurationArgs(
                data_compression_type="LZ4",
                nfs_exports=aws.fsx.OpenZfsFileSystemRootVolumeConfigurationNfsExportsArgs(
                    client_configurations=[
                        aws.fsx.OpenZfsFileSystemRootVolumeConfigurationNfsExportsClientConfigurationArgs(
                            clients="*", options=list(HOME_OPTIONS)
                        )
                    ]
                ),
            ),
            kms_key_id=context.key,
            automatic_backup_retention_days=fsx.backup_days,
            copy_tags_to_backups=True if fsx.backup_days else None,
            skip_final_backup=True,
            # Snapshots that people have made do not keep it from being deleted.
            delete_options=["DELETE_CHILD_VOLUMES_AND_SNAPSHOTS"],
            subnet_ids=args.subnet_id,
            security_group_ids=list(args.security_group_ids),
            tags={"Name": f"{context.names.cluster}-home", CLUSTER_ID_TAG: context.names.cluster_id},
            opts=ResourceOptions(
                parent=self,
                protect=context.protect,
                retain_on_delete=fsx.retain_on_delete,
                # FSx sets it once, as with Lustre.
                ignore_changes=["copyTagsToBackups"],
                depends_on=list(args.ready),
            ),
        )


def bandwidth(gib: int, throughput: float) -> int:
    """Return the bytes per second of ``gib`` at ``throughput`` MB/s for each TiB (FSx for Lustre User Guide, "Managing
    throughput capacity").
    """
    return int(gib * throughput) * 1_000_000 // 1024
