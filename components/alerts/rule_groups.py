"""Chooses the rules for a stack's Prometheus: those of its orchestrator and accelerator, limited to its cluster.

The files in this folder hold them, with ``$cluster`` for the cluster's name: several clusters may write to one
workspace. One namespace holds all of a stack's groups, because a workspace can have only ten.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ..common.documents import dump, load
from ..workers.instance_groups import InstanceGroup
from . import eks_labels

Group: TypeAlias = dict[str, Any]

# Amazon Managed Service for Prometheus User Guide, "Service quotas": rules per rule group, by default; characters of a
# rule groups namespace's definition.
RULES_PER_GROUP = 20
NAMESPACE_BYTES = 1_000_000
_EVERYWHERE = ("nodes", "network", "storage", "training")


def names(orchestrator: str, accelerator: str) -> tuple[str, ...]:
    """Return the names of the rule files of a variant, without their extension."""
    return (*_EVERYWHERE, orchestrator, accelerator)


def namespace(
    cluster: str, orchestrator: str, accelerator: str, workers: Sequence[InstanceGroup], bandwidth: int
) -> str:
    """Return the stack's only rule groups namespace, as YAML with every group.

    ``bandwidth`` is its file system's, in bytes per second.
    """
    on_eks = workers if orchestrator == "eks" else ()
    groups = [*_shipped(cluster, names(orchestrator, accelerator)), *_facts(cluster, on_eks, bandwidth)]
    if orchestrator == "eks":
        groups += _batches("labels", eks_labels.rules(cluster, accelerator))
    return dump({"groups": groups}, width=120)


def _shipped(cluster: str, files: Sequence[str]) -> Iterator[Group]:
    for name in files:
        text = Path(__file__).with_name(f"{name}.yaml").read_text()
        yield from load(text.replace('"$cluster"', f'"{cluster}"'))["groups"]


def _facts(cluster: str, on_eks: Sequence[InstanceGroup], bandwidth: int) -> Iterator[Group]:
    """Record the values that rules compare with. Slurm's nodes report themselves what their type should have."""
    rules: list[eks_labels.Rule] = [
        {
            "record": "hyperpod:storage_throughput_bytes",
            "expr": f"vector({bandwidth})",
            "labels": {"cluster": cluster},
        }
    ]
    for group, row in ((one, row) for one in on_eks for row in one.types):
        only = f', instance_type="{row.name}"' if len(group.types) > 1 else ""
        node = f'max by (cluster, node, group) (hyperpod_node_info{{cluster="{cluster}", group="{group.name}"{only}}})'
        rules += [
            {"record": f"hyperpod_{what}_expected", "expr": f"{node} * {number}"}
            for what in ("accelerators", "efa_interfaces")
            if (number := getattr(row, what))
        ]
    yield from _batches("facts", rules)


def _batches(name: str, rules: Sequence[eks_labels.Rule]) -> Iterator[Group]:
    for start in range(0, len(rules), RULES_PER_GROUP):
        yield {"name": f"{name}-{start}", "rules": list(rules[start : start + RULES_PER_GROUP])}
