"""Reads hyperpod_parameters.json, which the stack's program renders next to these scripts."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import math
import os
import re
from typing import Any, Dict, Mapping, Optional, TypeVar

from .errors import StepError
from .model import CLUSTER_ID_TAG, ROLES, Group, Node, Parameters

T = TypeVar("T")
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
    except (OSError, ValueError, RecursionError) as error:
        raise StepError(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise StepError(f"{path} is no JSON object")
    return document


def parse(document: Mapping[str, Any], path: str) -> Parameters:
    """Check the document. Raises StepError naming the key that is missing or wrong."""
    try:
        return _parameters(document)
    except KeyError as error:
        raise StepError(f"{path} lacks the key {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise StepError(f"{path} is malformed: {error}") from None


def _parameters(document: Mapping[str, Any]) -> Parameters:
    fsx, home = document.get("fsx") or {}, document.get("home") or {}
    groups = [_group(record) for record in document["instance_groups"]]
    if not groups:
        raise ValueError("instance_groups is empty")
    cluster_id = _word(document, "cluster_id")
    mount_point = _word(fsx, "mount_point", "/fsx")
    if not mount_point.startswith("/"):
        raise ValueError(f"mount_point is {mount_point}, and should begin with /")
    return Parameters(
        cluster_id=cluster_id,
        cluster_name=_word(document, "cluster_name"),
        region=_word(document, "region"),
        orchestrator=_word(document, "orchestrator", "slurm"),
        accelerator=_typed(document, "accelerator", ""),
        groups={group.name: group for group in groups},
        fsx_mount=mount_point,
        fsx_tag=_tag(fsx, cluster_id),
        fsx_efa=_typed(fsx, "efa", False),
        home_fsx_id=_word(home, "file_system_id") if home.get("file_system_id") else None,
        ssh_public_key_parameter=(
            _word(document, "ssh_public_key_parameter") if document.get("ssh_public_key_parameter") else None
        ),
        imds_v1=_typed(document, "imds_v1", False),
        cidrs=tuple(str(ipaddress.ip_network(str(cidr))) for cidr in _typed(document, "cidrs", [])),
        lost_after_seconds=_lost_after(document),
    )


def _typed(record: Mapping[str, Any], key: str, default: T) -> T:
    """A value of the default's type. Raises ValueError where it is of another."""
    value = record.get(key, default)
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if type(value) is not type(default) or value in (math.inf, -math.inf) or value != value:
        raise ValueError(f"{key} is {value!r}, and should be like {default!r}")
    return value


def _word(record: Mapping[str, Any], key: str, default: Optional[str] = None) -> str:
    """A name or a path: a word, which other files can have in a line. Raises KeyError where it has to be there."""
    value = record[key] if default is None else record.get(key, default)
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]+", value):
        raise ValueError(f"{key} is {value!r}, and should be one word")
    return value


def _lost_after(document: Mapping[str, Any]) -> float:
    """Seconds of silence after which a node is lost; HYPERPOD_LOST_AFTER in the environment overrides."""
    override = os.environ.get("HYPERPOD_LOST_AFTER")
    given = {"HYPERPOD_LOST_AFTER": float(override)} if override else document
    key = "HYPERPOD_LOST_AFTER" if override else "lost_after_seconds"
    seconds = _typed(given, key, Parameters.lost_after_seconds)
    if seconds <= 0:
        raise ValueError(f"{key} is {seconds:g}, and should be more than 0")
    return seconds


def _tag(fsx: Mapping[str, Any], cluster_id: str) -> "tuple[str, str]":
    tag: Dict[str, str] = fsx.get("tag") or {CLUSTER_ID_TAG: cluster_id}
    (key,) = tag
    return key, _typed(tag, key, "")


def _group(record: Mapping[str, Any]) -> Group:
    """A group; what it has no default for in ``Group`` must be there."""
    role = _word(record, "role")
    if role not in ROLES:
        raise ValueError(f"group {record['name']} has the role {role}, which is none of {', '.join(ROLES)}")
    given = {
        field.name: _typed(record, field.name, field.default)
        for field in dataclasses.fields(Group)
        if field.default is not dataclasses.MISSING
    }
    return Group(_word(record, "name"), role, _word(record, "instance_type"), **given)
