"""Reads hyperpod_parameters.json, which the stack's program renders next to these scripts."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping

from .errors import StepError
from .model import CLUSTER_ID_TAG, ROLES, Group, Node, Parameters

FILE_NAME = "hyperpod_parameters.json"


def run(node: Node) -> str:
    """Step ``parameters``."""
    path = node.host.settings.source / FILE_NAME
    node.parameters_ = parse(load(node), str(path))
    return f"cluster {node.parameters.cluster_id}, groups {', '.join(node.parameters.groups)}"


def load(node: Node) -> Mapping[str, Any]:
    """The document as it is. Raises StepError when it is missing or no JSON object."""
    path = node.host.settings.source / FILE_NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StepError(f"{path} is missing; the lifecycle bucket should have it next to on_create.sh") from None
    except (OSError, ValueError) as error:
        raise StepError(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise StepError(f"{path} is no JSON object")
    return document


def parse(document: Mapping[str, Any], path: str) -> Parameters:
    """Check the document. Raises StepError naming the key that is missing or wrong."""
    try:
        groups = [_group(record) for record in document["instance_groups"]]
        fsx = document.get("fsx") or {}
        cluster_id = str(document["cluster_id"])
        return Parameters(
            cluster_id=cluster_id,
            cluster_name=str(document["cluster_name"]),
            region=str(document["region"]),
            orchestrator=str(document.get("orchestrator", "slurm")),
            accelerator=str(document.get("accelerator", "")),
            groups={group.name: group for group in groups},
            fsx_mount=str(fsx.get("mount_point", "/fsx")),
            fsx_tag=_tag(fsx, cluster_id),
            fsx_efa=bool(fsx.get("efa", False)),
            home_fsx_id=(document.get("home") or {}).get("file_system_id"),
            ssh_public_key_parameter=document.get("ssh_public_key_parameter"),
            imds_v1=bool(document.get("imds_v1", False)),
            cidrs=tuple(document.get("cidrs", ())),
            lost_after_seconds=_lost_after(document),
        )
    except KeyError as error:
        raise StepError(f"{path} lacks the key {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise StepError(f"{path} is malformed: {error}") from None


def _lost_after(document: Mapping[str, Any]) -> float:
    """Seconds of silence after which a node is lost; HYPERPOD_LOST_AFTER in the environment overrides."""
    return float(
        os.environ.get("HYPERPOD_LOST_AFTER") or document.get("lost_after_seconds", Parameters.lost_after_seconds)
    )


def _tag(fsx: Mapping[str, Any], cluster_id: str) -> "tuple[str, str]":
    tag: Dict[str, str] = fsx.get("tag") or {CLUSTER_ID_TAG: cluster_id}
    ((key, value),) = tag.items()
    return key, value


def _group(record: Mapping[str, Any]) -> Group:
    role = str(record["role"])
    if role not in ROLES:
        raise ValueError(f"group {record['name']} has the role {role}, which is none of {', '.join(ROLES)}")
    return Group(
        name=str(record["name"]),
        role=role,
        instance_type=str(record["instance_type"]),
        count=int(record.get("count", 0)),
        accelerator=str(record.get("accelerator", "")),
        accelerator_model=str(record.get("accelerator_model", "")),
        accelerators=int(record.get("accelerators", 0)),
        neuron_cores=int(record.get("neuron_cores", 0)),
        gres=str(record.get("gres", "")),
        efa=str(record.get("efa", "no")),
        efa_interfaces=int(record.get("efa_interfaces", 0)),
        lustre_efa_interfaces=int(record.get("lustre_efa_interfaces", 0)),
        rdma_read=bool(record.get("rdma_read", False)),
        network_gbps=float(record.get("network_gbps", 0)),
        nvme_disks=int(record.get("nvme_disks", 0)),
        partition=str(record.get("partition", "")),
    )
