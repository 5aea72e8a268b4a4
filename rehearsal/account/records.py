"""Resources that moto lacks or gets wrong, as records that must be valid by the published schema."""

import json
from collections.abc import Callable
from typing import Any

from .books import Books, Inputs, Live, Refused
from .ec2 import lacks_rule_to_itself
from .kinds import Check, Kind, register
from .schemas import check_shape, check_valid, replacing_properties, to_cloudformation, unordered_properties
from .updates import check_lustre, check_openzfs, check_openzfs_update

Outputs = Callable[["Books", Inputs], tuple[str, dict[str, Any]]]
Translate = Callable[[Inputs], dict[str, Any]]


def record(
    token: str,
    cfn_type: str,
    outputs: Outputs,
    *,
    translate: Translate | None = None,
    on_update: Callable[[Books, Live, Inputs], None] = lambda account, live, inputs: None,
    on_delete: Callable[[Books, Live], None] = lambda account, live: None,
    check: Check = lambda inputs: (),
) -> Kind:
    """A kind whose inputs must satisfy ``cfn_type``'s schema.

    ``translate`` turns the inputs into the schema's properties; by default only their spelling changes. For types of
    pulumi-aws-native, a change of a create-only property replaces the resource. ``check`` is the provider's own.
    """
    to_properties = translate or (
        lambda inputs: to_cloudformation(cfn_type, {key: value for key, value in inputs.items() if key != "tagsAll"})
    )

    def create(account: Books, inputs: Inputs) -> tuple[str, dict[str, Any]]:
        check_valid(cfn_type, to_properties(inputs))
        return outputs(account, inputs)

    def update(account: Books, live: Live, inputs: Inputs) -> dict[str, Any]:
        check_valid(cfn_type, to_properties(inputs))
        on_update(account, live, inputs)
        return {}

    fixed = _lower(replacing_properties(cfn_type)) if token.startswith("aws-native:") else None
    free = _lower(unordered_properties(cfn_type)) if token.startswith("aws-native:") else frozenset()
    return Kind(token, create, on_delete, update, fixed=fixed, check=check, unordered=free)


def _lower(properties: frozenset[str]) -> frozenset[str]:
    return frozenset("/".join(name[0].lower() + name[1:] for name in path.split("/")) for path in properties)


def _tag_list(inputs: Inputs) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in (inputs.get("tagsAll") or inputs.get("tags") or {}).items()]


def _lustre_properties(i: Inputs) -> dict[str, Any]:
    lustre = {
        "DeploymentType": i.get("deploymentType"),
        "PerUnitStorageThroughput": _int(i.get("perUnitStorageThroughput")),
        "DataCompressionType": i.get("dataCompressionType"),
        "AutomaticBackupRetentionDays": _int(i.get("automaticBackupRetentionDays")),
        "CopyTagsToBackups": i.get("copyTagsToBackups"),
        "EfaEnabled": i.get("efaEnabled"),
    }
    if metadata := i.get("metadataConfiguration"):
        given = {"Mode": metadata.get("mode"), "Iops": _int(metadata.get("iops"))}
        lustre["MetadataConfiguration"] = {key: value for key, value in given.items() if value is not None}
    return _file_system_properties(i, "LUSTRE", "LustreConfiguration", lustre)


def _file_system_properties(i: Inputs, kind: str, key: str, own: dict[str, Any]) -> dict[str, Any]:
    """What file systems of every type have, and ``own`` under its ``key``."""
    properties = {
        "FileSystemType": kind,
        "FileSystemTypeVersion": i.get("fileSystemTypeVersion"),
        "StorageCapacity": _int(i.get("storageCapacity")),
        "StorageType": i.get("storageType"),
        # pulumi-aws takes the only subnet as a string.
        "SubnetIds": [i["subnetIds"]] if isinstance(i["subnetIds"], str) else i["subnetIds"],
        "SecurityGroupIds": i.get("securityGroupIds"),
        "KmsKeyId": i.get("kmsKeyId"),
        "Tags": _tag_list(i),
        key: {name: value for name, value in own.items() if value is not None},
    }
    return {name: value for name, value in properties.items() if value is not None}


def _lustre(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    # The registry's schema of FSx has no enumerations.
    check_shape("fsx", "CreateFileSystemRequest", _lustre_properties(i))
    _check_capacity(i)
    if i.get("efaEnabled"):
        _check_efa(account, i)
    system, made = _file_system(account, i)
    return system, {**made, "mountName": system[-8:]}


def _file_system(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    """What a new file system of either kind answers."""
    system = account.new_id("fs")
    return system, {
        "arn": account.arn("fsx", f"file-system/{system}"),
        "dnsName": f"{system}.fsx.{account.region}.amazonaws.com",
        "vpcId": next(s.inputs["vpcId"] for s in account.find("aws:ec2/subnet:Subnet") if s.id == _subnet_of(i)),
    }


def _home_properties(i: Inputs) -> dict[str, Any]:
    clients = [
        {"Clients": one["clients"], "Options": one["options"]}
        for one in i["rootVolumeConfiguration"]["nfsExports"]["clientConfigurations"]
    ]
    root = {"DataCompressionType": i["rootVolumeConfiguration"].get("dataCompressionType")}
    zfs = {
        "DeploymentType": i.get("deploymentType"),
        "ThroughputCapacity": _int(i.get("throughputCapacity")),
        "AutomaticBackupRetentionDays": _int(i.get("automaticBackupRetentionDays")),
        "CopyTagsToBackups": i.get("copyTagsToBackups"),
        "RootVolumeConfiguration": {**root, "NfsExports": [{"ClientConfigurations": clients}]},
    }
    return _file_system_properties(i, "OPENZFS", "OpenZFSConfiguration", zfs)


def _home(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    check_shape("fsx", "CreateFileSystemRequest", _home_properties(i))
    check_openzfs(i)
    system, made = _file_system(account, i)
    return system, {**made, "rootVolumeId": account.new_id("fsvol")}


def _check_capacity(i: Inputs) -> None:
    """Rules that the schema lacks: CreateFileSystem, StorageCapacity; with EFA, the FSx for Lustre User Guide."""
    capacity, step = int(i["storageCapacity"]), 2400
    if i.get("efaEnabled"):
        # 4800 GiB at 1000 MB/s per TiB, and proportionally more at less: a file server has 4800 MB/s.
        step = 4_800_000 // int(i["perUnitStorageThroughput"])
        if capacity <= 0 or capacity % step:
            raise Refused("BadRequest", f"{capacity} GiB is not a capacity with EFA: a multiple of {step}")
    elif capacity != 1200 and (capacity <= 0 or capacity % step):
        raise Refused(
            "BadRequest", f"{capacity} GiB is not a capacity of PERSISTENT_2 SSD: 1200 or a multiple of {step}"
        )


def _check_efa(account: Books, i: Inputs) -> None:
    """FSx for Lustre User Guide, "Working with EFA-enabled file systems" and "Creating a file system fails"."""
    if i["deploymentType"] != "PERSISTENT_2" or not i.get("metadataConfiguration"):
        raise Refused("BadRequest", "EFA is only supported for PERSISTENT_2 file systems with metadata configuration")
    if direction := lacks_rule_to_itself(account, i.get("securityGroupIds") or []):
        raise Refused(
            "InvalidNetworkSettings",
            "Insufficient security group permissions to create an EFA-enabled file system: no "
            f"{direction} rule for all traffic of the group to itself",
        )


def _update_lustre(account: Books, live: Live, i: Inputs) -> None:
    _check_capacity(i)
    throughput = "perUnitStorageThroughput"
    if live.inputs.get("efaEnabled") and _int(live.inputs.get(throughput)) != _int(i.get(throughput)):
        raise Refused("BadRequest", "the throughput of an EFA-enabled file system cannot be changed")
    # Last, because it records when the file system grew.
    check_lustre(live, i, account.now)


def _subnet_of(i: Inputs) -> str:
    return str(i["subnetIds"] if isinstance(i["subnetIds"], str) else i["subnetIds"][0])


def _link_properties(i: Inputs) -> dict[str, Any]:
    policies = {
        name: {"Events": i["s3"][key]["events"]}
        for name, key in (("AutoImportPolicy", "autoImportPolicy"), ("AutoExportPolicy", "autoExportPolicy"))
        if i.get("s3", {}).get(key)
    }
    return {
        "FileSystemId": i["fileSystemId"],
        "FileSystemPath": i["fileSystemPath"],
        "DataRepositoryPath": i["dataRepositoryPath"],
        "BatchImportMetaDataOnCreate": bool(i.get("batchImportMetaDataOnCreate")),
        "S3": policies,
    }


def _link(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    association = account.new_id("dra")
    arn = account.arn("fsx", f"association/{i['fileSystemId']}/{association}")
    return association, {"associationId": association, "arn": arn}


def _grafana(account: Books, i: Inputs) -> tuple[str, dict[str, Any]]:
    workspace = account.new_id("g")
    endpoint = f"{workspace}.grafana-workspace.{account.region}.amazonaws.com"
    return workspace, {"arn": account.arn("grafana", f"/workspaces/{workspace}"), "endpoint": endpoint}


def _grafana_properties(i: Inputs) -> dict[str, Any]:
    """CloudFormation lacks the key and the configuration, which the API and the provider have.

    Amazon Managed Grafana User Guide, "Workspace configuration": two switches.
    """
    switches = json.loads(i.get("configuration") or "{}")
    known = {"plugins": {"pluginAdminEnabled"}, "unifiedAlerting": {"enabled"}}
    if any(part not in known or not given.keys() <= known[part] for part, given in switches.items()):
        raise Refused("ValidationException", f"configuration: {i['configuration']} has unknown keys")
    properties = to_cloudformation(
        "AWS::Grafana::Workspace", {key: i[key] for key in i.keys() - {"kmsKeyId", "configuration"}}
    )
    return {key: value for key, value in properties.items() if key not in ("Tags", "tagsAll")}


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


register(
    record(
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        "AWS::FSx::FileSystem",
        _lustre,
        translate=_lustre_properties,
        on_update=_update_lustre,
    )
)
register(
    record(
        "aws:fsx/openZfsFileSystem:OpenZfsFileSystem",
        "AWS::FSx::FileSystem",
        _home,
        translate=_home_properties,
        on_update=lambda account, live, inputs: check_openzfs_update(live, inputs, account.now),
    )
)
register(
    record(
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
        "AWS::FSx::DataRepositoryAssociation",
        _link,
        translate=_link_properties,
    )
)
register(record("aws:grafana/workspace:Workspace", "AWS::Grafana::Workspace", _grafana, translate=_grafana_properties))
