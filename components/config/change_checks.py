"""Records what a stack was deployed with, and refuses changes that a deployed stack cannot make.

Pulumi knows only resources: it would replace a file system whose capacity is lowered, and find out half-way that AWS
cannot move a subnet. So every deployment records its fixed values in an output, and the next one compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
import pulumi_aws as aws

from ..accounting.keys import Accounting
from ..common.names import BUCKET, CLUSTER_ID_TAG, DEPLOYED_WITH, Names
from ..network.endpoint_zones import zone_problems
from ..observability.existing_workspaces import existing_problems
from ..schema.fields import REFUSED, Change, Model
from ..security import bucket_writers
from ..security.encryption import KEY, key_problems
from ..storage.existing_buckets import bucket_problems
from ..workers.keys import OF_A_NEW_GROUP, WorkerGroup
from . import Config, ConfigError, Problem

_ELSEWHERE = "destroy this stack first, or make another one beside it (pulumi stack init NAME)"
# The function that a stack reference calls (github.com/pulumi/pulumi, pkg/resource/deploy/builtins.go).
_READ = "pulumi:pulumi:readStackOutputs"
# Keys of groups that records of before do not have, with their defaults.
_LATER_KEYS = {"scaling": "fixed", "imageId": ""}


def require_possible(config: Config, names: Names, account: str, deployer: str) -> Mapping[str, Any]:
    """Return the outputs of the last deployment, empty for the first one.

    Raises ConfigError with every value of ``config`` that the deployed stack cannot change to, or if ``deployer`` may
    not deploy it.
    """
    left = _last_outputs()
    before = left.get(DEPLOYED_WITH) or {}
    problems = list(impossible(before, config)) if before else []
    problems += [] if problems else rename_problems(left, names)
    problems += bucket_writers.require_writer(config.settings.security.lifecycle_writers, before, deployer)
    problems += key_problems(config.settings.security.kms_key, account)
    problems += existing_problems(config.settings.observability, config.settings.alerts.topic_arn, account)
    problems += existing_bucket_problems(config)
    # A deployed stack has its endpoints.
    problems += [] if before else zone_problems(config.region, config.zone_id, config.settings.interface_services)
    if problems := problems + list(_zone(config, names)):
        raise ConfigError(problems)
    return before


def existing_bucket_problems(config: Config) -> Iterator[Problem]:
    """Report buckets that the configuration names and that are not there, or not where they must be."""
    settings, here = config.settings, config.region.name
    if linked := settings.fsx.linked_bucket:
        yield from bucket_problems("hyperpod:fsx.linkedBucket", linked, here, imported=True)
    for number, team in enumerate(settings.teams):
        for bucket in team.buckets:
            yield from bucket_problems(f"hyperpod:teams[{number}].buckets", bucket.name, here, imported=False)


def deployed_with(config: Config) -> dict[str, Any]:
    """Return the record for later deployments: strings, numbers and lists, none of which is null."""
    settings = config.settings
    net = settings.network
    several = {group.name: list(group.fallback_types) for group in settings.groups if group.fallback_types}
    return {
        "region": config.region.name,
        "orchestrator": settings.orchestrator,
        "clusterName": settings.cluster_name,
        # An existing VPC has its own blocks.
        "network": _fixed_values(net) | ({"cidr": "", "secondaryCidr": ""} if net.vpc_id else {}),
        "fsx": {
            "storageGiB": 0 if settings.fsx.file_system_id else config.fsx_gib,
            "efa": settings.fsx.efa,
            "throughput": settings.fsx.throughput,
            **({"fileSystemId": settings.fsx.file_system_id} if settings.fsx.file_system_id else {}),
        },
        **({"homeStorageGiB": settings.fsx.home_storage_gib} if settings.fsx.home_storage_gib else {}),
        **_accounting_of(settings.slurm.accounting),
        **({"setup": settings.slurm.setup} if settings.slurm.by_image else {}),
        **({"kmsKey": settings.security.kms_key} if settings.security.kms_key else {}),
        "instanceTypes": {group.name: group.type.name for group in config.instance_groups},
        **({"severalTypes": several} if several else {}),
        "workers": {group.name: _fixed_of_group(group) for group in settings.groups},
        "roleArn": settings.existing_role_arn or "",
        "kubernetesVersion": settings.kubernetes_version if settings.orchestrator == "eks" else "",
        "authenticationMode": settings.authentication_mode if settings.orchestrator == "eks" else "",
        **({"queues": settings.charts.queues} if settings.orchestrator == "eks" else {}),
        **({"autoscaling": True} if settings.autoscaling else {}),
        **({"checkpointMemory": True} if settings.charts.checkpoint_memory_percent else {}),
    }


def _fixed_values(part: Model, change: Change = REFUSED, *without: str) -> dict[str, Any]:
    """Return the values of a part's keys that cannot change, by their names."""
    values = {
        key: getattr(part, name)
        for key, (name, field) in zip(type(part).keys(), type(part).model_fields.items(), strict=True)
        if change in field.metadata and key not in without
    }
    return {key: list(one) if isinstance(one, tuple) else one or "" for key, one in values.items()}


def _fixed_of_group(group: WorkerGroup) -> dict[str, Any]:
    """Leave out the defaults of keys that came in November 2026, so that records of before remain what they are."""
    values = _fixed_values(group, OF_A_NEW_GROUP, "instanceType")
    return {key: value for key, value in values.items() if _LATER_KEYS.get(key) != value}


def last_arn() -> str:
    """Return the ARN of the deployed cluster; empty where none is known."""
    return str(_last_outputs().get("clusterArn") or "")


def rename_problems(left: Mapping[str, Any], names: Names) -> Iterator[Problem]:
    """Report another name of the stack, its project or account, although nothing in its file has changed.

    A renamed stack keeps its outputs (`pulumi stack rename`). Names on AWS have a hash of its name.
    """
    bucket = left.get(BUCKET)
    if bucket and bucket != names.bucket:
        yield Problem(
            key="pulumi stack",
            what=f"this stack is deployed under another name, project or account: its bucket is {bucket} and would "
            f"become {names.bucket}; nearly every resource would be replaced, nodes and file system among them",
            fix="give it its old name back (`pulumi stack rename OLD`); for a new name, deploy a second stack, move "
            "the data, and destroy this one",
        )


def _last_outputs() -> Mapping[str, Any]:
    """Return the outputs of the last deployment; empty before the first one, and if the backend does not answer."""
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    try:
        answer = pulumi.runtime.invoke(_READ, {"name": name}).value
    except Exception as unreadable:  # A precaution: this must never stop a deployment.
        pulumi.log.debug(f"the outputs of {name} cannot be read: {unreadable}")
        return {}
    return (answer or {}).get("outputs") or {}


def impossible(before: Mapping[str, Any], config: Config) -> Iterator[Problem]:
    """Yield every value of ``config`` that a stack deployed with ``before`` cannot change to."""
    after = deployed_with(config)
    if (before["region"], before["orchestrator"]) != (after["region"], after["orchestrator"]):
        for key, name in (("aws:region", "region"), ("hyperpod:orchestrator", "orchestrator")):
            if before[name] != after[name]:
                yield Problem(key=key, what=f"this stack is deployed with {before[name]}", fix=_ELSEWHERE)
        # Everything else differs with it.
        return
    if before["clusterName"] != after["clusterName"]:
        yield Problem(
            key="hyperpod:clusterName",
            what=f'the cluster is called "{before["clusterName"]}", '
            "and a new name would create a new cluster and delete every node",
            fix=f"keep the name; otherwise {_ELSEWHERE}",
        )
    if (key := before.get("kmsKey", "")) != after.get("kmsKey", ""):
        yield Problem(
            key=KEY,
            what=f"this stack is encrypted with {_key_in_words(key)}, and file systems and volumes "
            "cannot change their key: replacements would be new and empty",
            fix=f"keep it; otherwise {_ELSEWHERE}",
        )
    if (setup := before.get("setup", "scripts")) != after.get("setup", "scripts"):
        yield Problem(
            key="hyperpod:slurm.setup",
            what=f"the nodes of this stack are set up by the {setup}, and a change would reach only new nodes: AWS "
            "replaces no controller",
            fix=f"keep {setup}; otherwise {_ELSEWHERE}",
        )
    yield from _accounting(before.get("accounting"), after.get("accounting"))
    yield from _network(before["network"], after["network"])
    yield from _file_system(before["fsx"], after["fsx"])
    home = int(before.get("homeStorageGiB", 0)), after.get("homeStorageGiB", 0)
    if all(home):
        yield from _check_growth("hyperpod:fsx.homeStorageGiB", "the file system for /home", *home)
    yield from _instance_types(before["instanceTypes"], after["instanceTypes"])
    yield from _several_types(before, after)
    yield from _workers(before.get("workers", {}), after["workers"])
    if before.get("roleArn", after["roleArn"]) != after["roleArn"]:
        yield Problem(
            key="hyperpod:existingRoleArn",
            what=f"the nodes have {before['roleArn'] or 'roles of the stack'}, and existing groups keep their role",
            fix=f"keep it; otherwise {_ELSEWHERE}",
        )
    yield from _kubernetes(before, after)
    if before.get("autoscaling") and not after.get("autoscaling"):
        # SageMaker API Reference, UpdateCluster, AutoScaling: only Mode Disable turns it off.
        yield Problem(
            key="hyperpod:autoscaling",
            what="the cluster has Karpenter, and AWS would keep it with a role that is gone",
            fix="enabled false turns it off",
        )
    if before.get("checkpointMemory") and config.settings.charts.checkpoint_memory_percent is None:
        # No page says what an update without TieredStorageConfig does; it may change nothing.
        yield Problem(
            key="hyperpod:charts.checkpointMemoryPercent",
            what="the cluster's nodes keep checkpoints in memory, and may go on without the key",
            fix="0 turns it off",
        )
    if {before.get("queues"), after.get("queues")} == {"kueue", "task-governance"}:
        # Amazon SageMaker Developer Guide, "Task governance setup", "Kueue settings": the add-on installs Kueue, too.
        # Pulumi deletes last: what both call alike, such as Kueue's definitions, would go with the old one.
        yield Problem(
            key="hyperpod:charts.queues",
            what=f"this stack is deployed with {before['queues']}, which brings a Kueue of its own, as does the other: "
            "one update would install the new one and then delete what both have in common",
            fix="deploy with none first, and then with this",
        )


def _accounting_of(accounting: Accounting | None) -> dict[str, Any]:
    """Return the accounting's fixed values: only a database on RDS is a resource of the stack."""
    if accounting is None or accounting.database == "local":
        return {}
    return {"accounting": {"storageGiB": accounting.storage_gib, "subnetIds": sorted(accounting.subnet_ids)}}


def _accounting(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Iterator[Problem]:
    """ModifyDBInstance, AllocatedStorage: at least a tenth more. RDS rounds less up by itself, and the next deployment
    would then ask for a smaller one. A subnet group in use keeps its zones.
    """
    key = "hyperpod:slurm.accounting"
    if before is None:
        return
    if after is None:
        yield Problem(
            key=f"{key}.database",
            what="the history of jobs is in a database on RDS, which would be deleted under the controller",
            fix=f"keep rds; otherwise save it (mariadb-dump) and {_ELSEWHERE}",
        )
        return
    yield from _check_growth(f"{key}.storageGiB", "the database", int(before["storageGiB"]), after["storageGiB"])
    if after["subnetIds"] != before["subnetIds"]:
        yield Problem(
            key=f"{key}.subnetIds",
            what=f"the database is in {', '.join(before['subnetIds'])}",
            fix=f"keep them; otherwise {_ELSEWHERE}",
        )


def _key_in_words(key: str) -> str:
    return {"": "keys of AWS's", "create": "a key that it created"}.get(key, key)


def _zone(config: Config, names: Names) -> Iterator[Problem]:
    """Report a zone other than that of the nodes' subnet, which is found by the stack's tag.

    A new subnet would have the same addresses, and AWS refuses it while the old one exists. The file system stays in
    one zone for life, so it would be replaced by an empty one. This asks the account and not the output, because a
    failed first deployment has no output, and people then try a zone with capacity. In an existing VPC nothing moves.
    """
    if config.settings.network.vpc_id:
        return
    found = aws.ec2.get_subnets(
        filters=[
            {"name": f"tag:{CLUSTER_ID_TAG}", "values": [names.cluster_id]},
            {"name": "tag:Name", "values": [f"{names.cluster}-private"]},
        ]
    )
    for subnet in found.ids:
        zone = aws.ec2.get_subnet(id=subnet).availability_zone_id
        if zone != config.zone_id:
            yield Problem(
                key="hyperpod:availabilityZoneId",
                what=f"this stack is in {zone}, and its network and file system cannot move to {config.zone_id}",
                fix=f"keep {zone}; or go there as docs/data.md says (Follow capacity into another zone)",
            )


def _network(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Problem]:
    """Another block, subnet or group replaces the file system and the cluster (AWS::EC2::Subnet,
    AWS::SageMaker::Cluster).
    """
    for key in after:
        if before[key] != after[key]:
            yield Problem(
                key=f"hyperpod:network.{key}",
                what=f"this stack is deployed with {before[key] or 'none'}; "
                "a different value would replace the file system and the cluster",
                fix=f"keep it; otherwise {_ELSEWHERE}",
            )


def _check_growth(key: str, name: str, has: int, wanted: int) -> Iterator[Problem]:
    """Storage that only grows, by at least a tenth. OpenZFS: UpdateFileSystem, StorageCapacity."""
    if wanted != has and wanted * 10 < has * 11:
        yield Problem(
            key=key,
            what=f"{wanted} GiB, and {name} has {has} GiB: it can only grow, by a tenth at least",
            fix=f"{has}, or at least {-(-has * 11 // 10)}",
        )


def _file_system(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Problem]:
    """UpdateFileSystem, and FSx for Lustre User Guide, "Managing storage capacity" and "Working with EFA"."""
    has, mounted = int(before["storageGiB"]), before.get("fileSystemId", "")
    if mounted != after.get("fileSystemId", ""):
        yield Problem(
            key="hyperpod:fsx.fileSystemId",
            what=f"/fsx is {mounted or 'a file system of the stack'}, with which its nodes and jobs run",
            fix=f"keep it; otherwise {_ELSEWHERE}",
        )
        return
    if after["storageGiB"] < has:
        yield Problem(
            key="hyperpod:fsx.storageGiB",
            what=f"{after['storageGiB']} GiB, and the file system has {has} GiB: "
            "it can only grow, and a smaller one would be new and empty",
            fix=f"at least {has}; for less, save what is on it and {_ELSEWHERE}",
        )
    if before["efa"] != after["efa"]:
        yield Problem(
            key="hyperpod:fsx.efa",
            what=f"the file system was created {'with' if before['efa'] else 'without'} EFA, which cannot change: "
            "a replacement would be new and empty",
            fix=f"keep it {'true' if before['efa'] else 'false'}; otherwise {_ELSEWHERE}",
        )
    elif before["efa"] and before["throughput"] != after["throughput"]:
        yield Problem(
            key="hyperpod:fsx.throughput",
            what="the throughput of a file system with EFA cannot be changed",
            fix=f"keep {before['throughput']:g}",
        )


def _instance_types(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Problem]:
    """SageMaker Developer Guide, "Updating SageMaker HyperPod cluster configuration": to update an instance group, its
    InstanceType must be the one it has. (The same page's overview says that it can be changed; the safe side is no.)"""
    for name, kind in after.items():
        if before.get(name, kind) == kind:
            continue
        if name == "controller":
            key, fix = "controllerInstanceType", f"keep it, as a controller cannot be removed; otherwise {_ELSEWHERE}"
        elif name == "login":
            key, fix = "login", "remove the login nodes with one update (login={}) and add new ones with the next"
        else:
            key, fix = "workers", "add a group with another name, and remove this one once no job needs it"
        yield Problem(
            key=f"hyperpod:{key}",
            what=f'group "{name}" runs on {before[name]}, and an existing group cannot change to {kind}',
            fix=fix,
        )


def _several_types(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Problem]:
    """The same page: a group does not switch between InstanceType and InstanceRequirements, and keeps the types of
    which nodes run. Which these are is not known here, and AWS would refuse after the nodes' charts have changed.
    """
    had, has = before.get("severalTypes", {}), after.get("severalTypes", {})
    for name in sorted(before["instanceTypes"].keys() & after["instanceTypes"].keys()):
        if bool(had.get(name)) != bool(has.get(name)):
            also = f"cannot change to {'one type' if had.get(name) else 'several types'}"
        elif gone := [kind for kind in had.get(name, ()) if kind not in (after["instanceTypes"][name], *has[name])]:
            also = f"keeps {', '.join(gone)}: nodes of it may run"
        else:
            continue
        yield Problem(
            key="hyperpod:workers",
            what=f'group "{name}" is deployed, and an existing group {also}',
            fix="add a group with another name, and remove this one once no job needs it",
        )


def _workers(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """SageMaker Developer Guide, "Updating SageMaker HyperPod cluster configuration": an existing group keeps its
    ThreadsPerCore, as its role; "Spot instances in Amazon SageMaker HyperPod": and its CapacityRequirements; "Create a
    NodeClass": a group of Karpenter's starts without nodes."""
    for name, wanted in after.items():
        had = before.get(name, wanted)
        for field in {**had, **wanted}:
            default = _LATER_KEYS.get(field)
            if (has := had.get(field, default)) != (value := wanted.get(field, default)):
                yield Problem(
                    key="hyperpod:workers",
                    what=f'group "{name}" has {field} {has or "of AWS"}, and an existing group cannot change to '
                    f"{value or 'that of AWS'}",
                    fix="add a group with another name, and remove this one once no job needs it",
                )


def _kubernetes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Problem]:
    """Amazon EKS User Guide, "Update existing cluster to new Kubernetes version", "Rollback cluster to previous
    Kubernetes version", and "Change authentication mode to use access entries"."""
    if not after["kubernetesVersion"]:
        return
    has, wanted = (int(version["kubernetesVersion"].split(".")[1]) for version in (before, after))
    if wanted > has + 1:
        yield Problem(
            key="hyperpod:kubernetesVersion",
            what=f"the control plane runs {before['kubernetesVersion']}, and EKS updates one minor version at a time",
            fix=f"update to 1.{has + 1} first",
        )
    elif wanted < has:
        yield Problem(
            key="hyperpod:kubernetesVersion",
            what=f"the control plane runs {before['kubernetesVersion']}, and EKS rolls back only one version, "
            "within 7 days of an update, after the add-ons",
            fix=f"keep {before['kubernetesVersion']}; or roll back with `aws eks update-cluster-version`, then "
            "`pulumi refresh`",
        )
    if (before["authenticationMode"], after["authenticationMode"]) == ("API", "API_AND_CONFIG_MAP"):
        yield Problem(
            key="hyperpod:authenticationMode",
            what="only access entries are in use, and EKS cannot switch back",
            fix="keep API",
        )
