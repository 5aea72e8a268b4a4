"""The stack's people: who has an account on which node, and the same list applied to all of them."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hyperpod_node.facts import parameters
from hyperpod_node.people.apply import digest

from components.nodes import provisioning
from components.nodes.lifecycle_bucket import PREFIX

from ..failures import Exit, Failure, bad_input
from ..outcome import Outcome
from ..target import Target
from . import every_node
from .node import Node
from .nodes import list_nodes
from .sessions import Remote

COMMAND = "/opt/hyperpod/bin/hyperpod-users"
_SECONDS = 360.0


@dataclass(frozen=True, kw_only=True)
class NodePeople:
    """One node. ``missing`` and ``extra`` are names, by the configuration; ``current``: whether its list is the one of
    the configuration, applied without trouble. ``trouble`` says why nothing is known."""

    node: str
    people: int = 0
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    current: bool = False
    warnings: tuple[str, ...] = ()
    trouble: str = ""
    found: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def good(self) -> bool:
        """Whether this node is as the configuration says."""
        return self.current and not (self.missing or self.extra or self.warnings or self.trouble)


def require_slurm(target: Target) -> None:
    """Raises Failure for an EKS stack."""
    if target.on_eks:
        raise bad_input("pods have no accounts on nodes", "hyperpod:teams says who may use a namespace")


def running(target: Target) -> list[Node]:
    """The nodes that have accounts. Raises Failure for an EKS stack."""
    require_slurm(target)
    return [node for node in list_nodes(target) if node.status == "Running"]


def apply(target: Target, dry_run: bool) -> Outcome:
    """Apply the deployed list to every running node. Raises Failure where a node is not as configured afterwards."""
    found = ask(target, running(target), apply=not dry_run)
    notes = [f"{one.node}: {line}" for one in found for line in (*one.warnings, *filter(None, [one.trouble]))]
    behind = [one for one in found if not (one.trouble or one.good or one.warnings)]
    if dry_run and behind:
        locked = sorted({who for one in found for who in one.extra})
        return Outcome(changes=[_difference(one) for one in behind], notes=notes, locked=locked)
    if behind:
        names = ", ".join(one.node for one in behind)
        said = f"{names}: the lifecycle bucket's list differs from Pulumi.{target.stack}.yaml"
        raise Failure(said, f"hyperpod deploy {target.stack}, then hyperpod apply {target.stack}")
    if notes:
        unknown = all(one.good or one.trouble for one in found)
        raise Failure("\n".join(notes), f"hyperpod errors {target.stack}", Exit.CANNOT_KNOW if unknown else Exit.FAILED)
    return Outcome(changes=[] if dry_run else [f"{len(found)} nodes have the list"])


def _difference(one: NodePeople) -> str:
    """A change of one node's accounts, in words."""
    parts = (("add", one.missing), ("lock", one.extra))
    told = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
    return f"{one.node}: {told or 'change keys, groups or rights'}"


def ask(target: Target, nodes: Sequence[Node], *, apply: bool) -> list[NodePeople]:
    """Every node's answer, in their order. With ``apply`` each first applies the list in the lifecycle bucket."""
    command = f"sudo -n {COMMAND}" + (f" {shlex.join(_asked(target))}" if apply else "")
    found = every_node.answers(target, nodes, nodes, command, _SECONDS)
    return [_one(target, node, answer) for node, answer in zip(nodes, found, strict=True)]


def _asked(target: Target) -> list[str]:
    if not target.config.settings.users:
        return ["--nobody"]
    uri = f"s3://{target.names.bucket}/{PREFIX}/{provisioning.PEOPLE_FILE}"
    return [uri, "--region", target.aws.region]


def _one(target: Target, node: Node, ran: Remote | Failure) -> NodePeople:
    if isinstance(ran, Failure):
        return NodePeople(node=node.name, trouble=ran.message)
    last = (ran.output.strip().splitlines() or ["no output"])[-1]
    if ran.code:
        # sudo and the shell say "command not found" where the scripts of the node's boot did not have it.
        old = f"{COMMAND}: command not found" in ran.output
        return NodePeople(
            node=node.name,
            trouble=f"its scripts predate the list of people: hyperpod node run-scripts {target.stack} {node.name}"
            if old
            else last,
        )
    try:
        return read(target, node.name, json.loads(last))
    except (ValueError, KeyError, TypeError, AttributeError):
        return NodePeople(node=node.name, trouble=f"not understood: {last}")


def read(target: Target, name: str, document: dict[str, Any]) -> NodePeople:
    """What a node says, compared with the configuration. Raises KeyError and others for another document."""
    text = provisioning.people_text(target.config, target.names)
    wanted = parameters.parse_people(json.loads(text), "the configuration")
    here = {who: one for who, one in document["people"].items() if one["enabled"]}
    numbers = {who: (one["uid"], one["gid"]) for who, one in here.items()}
    people = {person.name: (person.uid, person.gid) for person in wanted.people}
    # A node that never had a list has nobody, as a configuration without people says.
    same = document["digest"] == digest(wanted) or not (people or here)
    return NodePeople(
        node=name,
        people=len(here),
        missing=tuple(sorted(who for who, ids in people.items() if numbers.get(who) != ids)),
        extra=tuple(sorted(here.keys() - people.keys())),
        current=same,
        warnings=tuple(map(str, document.get("warnings", []))),
        found=document["people"],
    )
