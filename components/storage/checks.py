"""Checks of the file systems, hyperpod:fsx."""

from collections.abc import Iterator

from ..catalogue.accelerators import CATALOGUE
from ..common.names import LIFECYCLE_BUCKET
from ..schema.problems import Problem
from ..workers.keys import ClusterKeys
from .keys import Fsx

# Amazon FSx for Lustre User Guide. "Increasing storage capacity": with EFA, GiB by MB/s per TiB. "Configuring EFA
# clients": connections.
FSX_EFA_STEPS_GIB = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}
FSX_EFA_MAX_CONNECTIONS = 1024
# GiB of a storage server of Lustre, with EFA times the throughput; GiB of a metadata server.
_SERVER_GIB, _EFA_SERVER, _METADATA_SERVER_GIB = 2400, 4_800_000, 24000
# Keys of a file system that the stack creates, and those of them that also hold for /home.
_OF_OWN = ("storageGiB", "throughput", "compression", "backupDays", "retainOnDelete")
_OF_HOMES_TOO = ("backupDays", "retainOnDelete")


def file_system_problems(fsx: Fsx, gib: int, settings: ClusterKeys, *, existing_vpc: bool) -> Iterator[Problem]:
    """Yield every problem of ``hyperpod:fsx``. ``gib``: the capacity, by the size if it is not given."""
    yield from _fsx(fsx, settings.orchestrator, existing_vpc=existing_vpc)
    yield from _fsx_efa(fsx, gib, settings)


def _fsx(fsx: Fsx, orchestrator: str, *, existing_vpc: bool) -> Iterator[Problem]:
    if fsx.storage_gib is not None and not (
        fsx.storage_gib == 1200 or (fsx.storage_gib > 0 and fsx.storage_gib % 2400 == 0)
    ):
        yield Problem(key="hyperpod:fsx.storageGiB", what=f"{fsx.storage_gib} GiB", fix="1200 or a multiple of 2400")
    if fsx.linked_bucket and LIFECYCLE_BUCKET.fullmatch(fsx.linked_bucket):
        yield Problem(
            key="hyperpod:fsx.linkedBucket",
            what=f'"{fsx.linked_bucket}" has a stack\'s lifecycle scripts, which every job could replace',
            fix="a separate bucket for data",
        )
    if fsx.file_system_id:
        yield from _existing_file_system(fsx, existing_vpc=existing_vpc)
    if fsx.linked_bucket is not None and fsx.backup_days:
        yield Problem(
            key="hyperpod:fsx.backupDays",
            what="FSx takes no backups of a file system linked to S3",
            fix="0 with linkedBucket",
        )
    if fsx.linked_bucket is None and fsx.export_deletes:
        yield Problem(
            key="hyperpod:fsx.exportDeletes",
            what="there is no bucket to delete objects from",
            fix="leave it out, or set linkedBucket",
        )
    if fsx.home_storage_gib and orchestrator == "eks":
        yield Problem(
            key="hyperpod:fsx.homeStorageGiB",
            what="pods have no home directories",
            fix="leave it out with orchestrator eks",
        )
    elif fsx.home_storage_gib and fsx.home_file_system_id:
        yield Problem(
            key="hyperpod:fsx.homeStorageGiB",
            what=f"/home is {fsx.home_file_system_id} already",
            fix="one of it and homeFileSystemId",
        )
    if fsx.home_storage_gib is None and fsx.home_throughput != 64:
        yield Problem(
            key="hyperpod:fsx.homeThroughput",
            what="the stack creates no file system for /home that it could apply to",
            fix="leave it out, or set homeStorageGiB",
        )
    if fsx.home_file_system_id and orchestrator == "eks":
        yield Problem(
            key="hyperpod:fsx.homeFileSystemId",
            what="pods have no home directories",
            fix="leave it out with orchestrator eks",
        )
    elif fsx.home_file_system_id and not existing_vpc:
        yield Problem(
            key="hyperpod:fsx.homeFileSystemId",
            what="it is in one of your VPCs, and the VPC that this stack creates cannot reach it",
            fix="name that VPC, a private subnet and security groups in it (hyperpod:network.vpcId)",
        )
    if fsx.retain_on_delete and not existing_vpc:
        yield Problem(
            key="hyperpod:fsx.retainOnDelete",
            what="a retained file system keeps interfaces in its subnet, so the stack's own VPC could not be deleted",
            fix="use an existing VPC (hyperpod:network.vpcId), or hyperpod:protect to keep the whole stack",
        )


def _existing_file_system(fsx: Fsx, *, existing_vpc: bool) -> Iterator[Problem]:
    key = "hyperpod:fsx.fileSystemId"
    if not existing_vpc:
        yield Problem(
            key=key,
            what="it is in one of your VPCs, and the VPC that this stack creates cannot reach it",
            fix="name that VPC, a private subnet and security groups in it (hyperpod:network.vpcId)",
        )
    if fsx.file_system_id == fsx.home_file_system_id:
        yield Problem(
            key=key, what="is the file system for /home too", fix="another one for /fsx, or no homeFileSystemId"
        )
    given = fsx.model_dump(by_alias=True, exclude_unset=True)
    for name in _OF_OWN:
        if name in given and not (fsx.home_storage_gib and name in _OF_HOMES_TOO):
            yield Problem(
                key=f"hyperpod:fsx.{name}",
                what=f"{fsx.file_system_id} exists already, and the stack does not change it",
                fix="leave it out with fileSystemId",
            )


def _fsx_efa(fsx: Fsx, gib: int, settings: ClusterKeys) -> Iterator[Problem]:
    """Check the requirements of EFA to the file system.

    The rules of existing security groups are not checked here. FSx itself refuses groups that do not allow all traffic
    to and from themselves.
    """
    if not fsx.efa:
        return
    step = None if fsx.file_system_id else FSX_EFA_STEPS_GIB.get(fsx.throughput)
    if step and gib % step:
        others = ", ".join(f"{size} at {speed}" for speed, size in FSX_EFA_STEPS_GIB.items() if size != step)
        yield Problem(
            key="hyperpod:fsx.storageGiB",
            what=f"{gib} GiB with EFA at {fsx.throughput} MB/s per TiB",
            fix=f"a multiple of {step}, or of {others}",
        )
    known = [(group, CATALOGUE[group.instance_type]) for group in settings.groups if group.instance_type in CATALOGUE]
    if len(known) == len(settings.groups) and not any(row.lustre_efa_interfaces for _, row in known):
        fits = [
            name
            for name, row in CATALOGUE.items()
            if row.accelerator == settings.accelerator and row.hyperpod and row.lustre_efa_interfaces
        ]
        names = ", ".join(dict.fromkeys(row.name for _, row in known))
        yield Problem(
            key="hyperpod:fsx.efa",
            what=f"a Lustre client cannot use EFA on {names}",
            fix=f"leave it out, or have a worker group of {', '.join(fits)}",
        )
    connections = sum(settings.count_of(group) * row.lustre_efa_interfaces for group, row in known)
    if connections > FSX_EFA_MAX_CONNECTIONS:
        yield Problem(
            key="hyperpod:fsx.efa",
            what=f"the workers would open {connections} EFA connections",
            fix=f"a file system takes {FSX_EFA_MAX_CONNECTIONS}: fewer nodes, or no EFA to the file system",
        )


def file_servers(fsx: Fsx, gib: int) -> int:
    """Count the addresses of new file systems: one for each storage server and each metadata server of Lustre, and one
    for homes.

    Amazon FSx for Lustre User Guide, "IP addresses for file systems": TiB for each storage server, and a metadata
    server for 12,000 IOPS; "File system metadata performance": IOPS of the automatic mode, which EFA uses.
    """
    homes = 1 if fsx.home_storage_gib else 0
    if fsx.file_system_id:
        return homes
    storage = -(-gib // (_EFA_SERVER // fsx.throughput if fsx.efa else _SERVER_GIB))
    metadata = max(1, gib // _METADATA_SERVER_GIB) if fsx.efa else 1
    return storage + metadata + homes
