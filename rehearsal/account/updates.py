"""Changes in place that AWS refuses, from its API references and guides."""

from collections.abc import Mapping
from typing import Any

from .books import Inputs, Live, Refused
from .provisioning import arriving, types_of

# FSx for Lustre User Guide, "Managing storage capacity", "Time between increases".
_LUSTRE_REST_SECONDS = 6 * 3600


def check_lustre(live: Live, i: Inputs, now: float) -> None:
    """UpdateFileSystem, StorageCapacity: it only grows, and not soon after the last increase.

    The caller checks that the capacity is valid. ``now`` is the account's virtual second.
    """
    before, after = int(live.inputs["storageCapacity"]), int(i["storageCapacity"])
    if after < before:
        raise Refused("BadRequest", f"{after} GiB is less than the file system's {before} GiB: it can only grow")
    if after == before:
        return
    if now - float(live.notes.get("grownAt", "-inf")) < _LUSTRE_REST_SECONDS:
        raise Refused("BadRequest", "storage capacity can grow again 6 hours after the last increase was requested")
    live.notes["grownAt"] = str(now)


# CreateFileSystemOpenZFSConfiguration, ThroughputCapacity, MB/s.
_OPENZFS_THROUGHPUT = {"SINGLE_AZ_1": (64, 128, 256, 512, 1024, 2048, 3072, 4096)}


def check_openzfs(i: Inputs) -> None:
    """CreateFileSystem, StorageCapacity of OpenZFS: 64 to 524,288 GiB. What each deployment type takes."""
    if not 64 <= int(i["storageCapacity"]) <= 524288:
        raise Refused("BadRequest", f"{i['storageCapacity']} GiB is not a capacity of OpenZFS: 64 to 524288")
    speed, kind = int(i["throughputCapacity"]), str(i["deploymentType"])
    if speed not in _OPENZFS_THROUGHPUT.get(kind, ()):
        raise Refused("BadRequest", f"{speed} MB/s is not a throughput capacity of {kind}")


def check_openzfs_update(live: Live, i: Inputs, now: float) -> None:
    """UpdateFileSystem: storage grows by 10 percent at least, and increases are 6 hours apart (FSx for OpenZFS User
    Guide, "Managing SSD storage capacity and provisioned IOPS")."""
    check_openzfs(i)
    before, after = int(live.inputs["storageCapacity"]), int(i["storageCapacity"])
    if before < after < before * 1.1:
        raise Refused("BadRequest", f"{after} GiB is not at least 10 percent more than the file system's {before} GiB")
    check_lustre(live, i, now)


# Amazon RDS User Guide, "gp3 storage": from this size on MariaDB's volumes have other IOPS. The provider sends those of
# before (hashicorp/terraform-provider-aws, issue 28382).
_LARGE_GIB, _SMALL_IOPS, _LARGE_IOPS = 400, 3000, 12000


def check_database(live: Live, i: Inputs) -> int:
    """ModifyDBInstance, AllocatedStorage. What it comes to in GiB: RDS makes a tenth of any smaller growth."""
    before, after = int(live.notes.get("gib") or live.inputs["allocatedStorage"]), int(i["allocatedStorage"])
    if after < before:
        raise Refused(
            "InvalidParameterCombination", f"Invalid storage size for engine: {before} GiB cannot become {after}"
        )
    iops = int(i.get("iops") or _SMALL_IOPS)
    if before < _LARGE_GIB <= after and iops < _LARGE_IOPS:
        raise Refused(
            "InvalidParameterCombination", f"Invalid iops value for engine name mariadb and storage type gp3: {iops}"
        )
    if after > before:
        live.notes["gib"] = str(after := max(after, -(-before * 11 // 10)))
    return after


def check_control_plane(live: Live, i: Inputs) -> None:
    """Amazon EKS User Guide: "Update existing cluster to new Kubernetes version", "Rollback cluster to previous
    Kubernetes version", "Change authentication mode to use access entries"; API reference, UpdateClusterConfig."""
    before, after = str(live.inputs["version"]), str(i["version"])
    step = _minor(after) - _minor(before)
    if step == -1 and live.notes.get("versionBefore") == after:
        del live.notes["versionBefore"]
    elif step == 1:
        live.notes["versionBefore"] = before
    elif step != 0:
        raise Refused(
            "InvalidParameterException", f"Unsupported Kubernetes minor version update from {before} to {after}"
        )
    modes = ["CONFIG_MAP", "API_AND_CONFIG_MAP", "API"]
    was, now = (modes.index(_authentication_mode(one)) for one in (live.inputs, i))
    if now < was:
        raise Refused(
            "InvalidParameterException", f"Unsupported authentication mode update from {modes[was]} to {modes[now]}"
        )


def _authentication_mode(cluster: Inputs) -> str:
    return str((cluster.get("accessConfig") or {}).get("authenticationMode") or "CONFIG_MAP")


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def check_groups(live: Live, i: Inputs) -> None:
    """SageMaker Developer Guide, "Updating SageMaker HyperPod cluster configuration": an instance group keeps its
    InstanceType, whatever the page's overview says, its ExecutionRole and its ThreadsPerCore; of InstanceRequirements
    only types without nodes can be removed, and neither switches to the other; "Spot instances in Amazon
    SageMaker HyperPod": its CapacityRequirements. BatchDeleteClusterNodes: "you cannot remove instances that are
    configured as Slurm controller nodes". UpdateCluster has no subnets and no name."""
    before, after = _by_name(live.inputs), _by_name(i)
    if not after:
        raise Refused("ValidationException", "a cluster has at least one instance group")
    for name, group in after.items():
        was, given = (one.get("instanceType") for one in (before.get(name, group), group))
        if bool(was) != bool(given):
            raise Refused(
                "ValidationException",
                f"instance group {name} cannot switch between InstanceType and InstanceRequirements",
            )
        if was != given:
            raise Refused(
                "ValidationException",
                f"the instance type of instance group {name} must match the instance type that was initially specified "
                f"to the group, {was}, and {given} was given",
            )
        if name in before and not given and (used := arriving(live, before[name])) and used not in types_of(group):
            raise Refused("ValidationException", f"{used} cannot be removed from {name}: nodes of it are active")
        for kept in ("executionRole", "threadsPerCore", "capacityRequirements"):
            if before.get(name, group).get(kept) != group.get(kept):
                raise Refused("ValidationException", f"{kept} of instance group {name} cannot be changed")
        if name in before and _volume_keys(before[name]) != _volume_keys(group):
            raise Refused("ValidationException", f"the KMS key of instance group {name} cannot be changed")
    for name in before.keys() - after.keys():
        if (before[name].get("slurmConfig") or {}).get("nodeType") == "Controller":
            raise Refused("ValidationException", f"instance group {name} is the Slurm controller and cannot be deleted")


def _volume_keys(group: Mapping[str, Any]) -> list[tuple[bool, str | None]]:
    """SageMaker Developer Guide, "Customer managed AWS KMS key encryption for SageMaker HyperPod": keys do not
    change."""
    configs = group.get("instanceStorageConfigs") or []
    volumes = [one["ebsVolumeConfig"] for one in configs if one.get("ebsVolumeConfig")]
    keys = [(bool(volume.get("rootVolume")), volume.get("volumeKmsKeyId")) for volume in volumes]
    return sorted((root, key) for root, key in keys if key)


def _by_name(cluster: Inputs) -> dict[str, Mapping[str, Any]]:
    return {group["instanceGroupName"]: group for group in cluster.get("instanceGroups") or []}
