"""File systems as FSx describes them to nodes."""

from dataclasses import dataclass, field
from typing import Any

from ..account import Account

OPENZFS = "aws:fsx/openZfsFileSystem:OpenZfsFileSystem"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"


@dataclass
class FileSystem:
    """One of them; ``mount_name`` is empty for OpenZFS.

    ``ready_after``: virtual seconds until it is AVAILABLE, None: never.
    """

    id: str
    dns_name: str
    mount_name: str
    tags: dict[str, str]
    capacity_gib: int = 1200
    ready_after: float | None = 0.0
    read_only: bool = False
    # Whether every client's first attempt to mount it hangs.
    hangs_once: bool = False
    hung: set[str] = field(default_factory=set)
    arn: str = ""
    vpc_id: str = ""
    subnet_ids: list[str] = field(default_factory=list)

    def lifecycle(self, now: float) -> str:
        """The file system's state at a virtual second."""
        return "AVAILABLE" if self.ready_after is not None and now >= self.ready_after else "CREATING"

    @property
    def source(self) -> str:
        """What clients mount (FSx for Lustre and FSx for OpenZFS User Guides, "Mounting")."""
        return f"{self.dns_name}@tcp:/{self.mount_name}" if self.mount_name else f"{self.dns_name}:/fsx"

    def description(self, now: float) -> dict[str, Any]:
        """The file system in DescribeFileSystems' form."""
        return {
            "FileSystemId": self.id,
            "FileSystemType": "LUSTRE" if self.mount_name else "OPENZFS",
            "Lifecycle": self.lifecycle(now),
            "StorageCapacity": self.capacity_gib,
            "StorageType": "SSD",
            "DNSName": self.dns_name,
            "ResourceARN": self.arn,
            "VpcId": self.vpc_id,
            "SubnetIds": self.subnet_ids,
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(self.tags.items())],
            **self._of_its_type(),
        }

    def _of_its_type(self) -> dict[str, Any]:
        if not self.mount_name:
            return {"OpenZFSConfiguration": {"DeploymentType": "SINGLE_AZ_1"}}
        return {
            "LustreConfiguration": {"MountName": self.mount_name, "DeploymentType": "PERSISTENT_2"},
            "FileSystemTypeVersion": "2.15",
        }


def file_systems_of(account: Account) -> list[FileSystem]:
    """The file systems that the stack created."""
    return [
        FileSystem(
            id=live.id,
            dns_name=live.outputs["dnsName"],
            mount_name=live.outputs.get("mountName", ""),
            tags=dict(live.inputs.get("tags") or {}),
            capacity_gib=int(live.inputs["storageCapacity"]),
            arn=live.outputs["arn"],
            vpc_id=live.outputs["vpcId"],
            subnet_ids=[live.inputs["subnetIds"]]
            if isinstance(live.inputs["subnetIds"], str)
            else live.inputs["subnetIds"],
        )
        for kind in (LUSTRE, OPENZFS)
        for live in account.find(kind)
    ]
