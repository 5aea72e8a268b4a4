"""The keys of ``hyperpod:fsx``."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from ..schema.fields import AT_BOOT, IN_PLACE, REFUSED, BucketName, Change, FileSystemId, Model


class Fsx(Model):
    """The FSx for Lustre file system: PERSISTENT_2 on SSD, with the values of the Amazon FSx for Lustre User Guide."""

    storage_gib: Annotated[StrictInt | None, Change("in part", "grows in place, every 6 hours; less is refused")] = (
        Field(None, alias="storageGiB")
    )
    """Capacity in GiB: 1200 or a multiple of 2400. With `efa` a multiple of 38400, 19200, 9600 or 4800, for a
    throughput of 125, 250, 500 or 1000. Default: from `size`."""
    throughput: Annotated[Literal[125, 250, 500, 1000], Change("in part", "in place; refused with `efa`")] = 250
    """Throughput in MB/s per TiB."""
    compression: Annotated[Literal["LZ4", "NONE"], IN_PLACE] = "LZ4"
    """Compression of new data."""
    efa: Annotated[StrictBool, REFUSED] = False
    """Use EFA between the file system and workers whose instance type supports it."""
    linked_bucket: Annotated[BucketName | None, IN_PLACE] = None
    """S3 bucket that appears under /fsx/data; new and changed files are exported to it."""
    export_deletes: Annotated[StrictBool, IN_PLACE] = False
    """Also delete an object in that bucket when its file is deleted."""
    backup_days: Annotated[StrictInt, IN_PLACE] = Field(0, ge=0, le=90)
    """Retention of automatic backups in days; 0 turns them off. Must be 0 with `linkedBucket`."""
    retain_on_delete: Annotated[StrictBool, IN_PLACE] = False
    """Keep the file system when the stack is destroyed. Needs `network.vpcId`."""
    file_system_id: Annotated[FileSystemId | None, REFUSED] = None
    """Existing FSx for Lustre file system for /fsx, such as one that a stack has kept. The stack does not change or
    delete it, and takes its size from it. It must be PERSISTENT_1 or PERSISTENT_2 with Lustre 2.12 or 2.15, in
    `network.vpcId` and the stack's zone, and `efa` must say whether it has EFA."""
    home_file_system_id: Annotated[FileSystemId | None, AT_BOOT] = None
    """Existing FSx file system, Lustre or OpenZFS, that the nodes mount at /home. It must be in `network.vpcId`, and
    its security groups must admit the nodes on TCP 988 and 1018-1023 for Lustre, or 2049 for OpenZFS. Slurm only."""
    home_storage_gib: Annotated[
        StrictInt | None, Change("in part", "grows in place, by a tenth at least and every 6 hours; less is refused")
    ] = Field(None, alias="homeStorageGiB", ge=64, le=524288)
    """Capacity in GiB of an FSx for OpenZFS file system that the stack makes and the nodes mount at /home, 64 to
    524288. Default: none. `backupDays`, `retainOnDelete` and the stack's key hold for it too. Slurm only."""
    home_throughput: Annotated[Literal[64, 128, 256, 512, 1024, 2048, 3072, 4096], IN_PLACE] = 64
    """Throughput of that file system in MB/s. While a change is made it does not answer for minutes."""

    @property
    def own_home(self) -> bool:
        """Whether /home is a separate file system."""
        return bool(self.home_file_system_id or self.home_storage_gib)
