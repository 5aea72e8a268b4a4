"""Tests between pairs of workers, and which node, link or switch they show to be slow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hyperpod_commands import pairs
from hyperpod_commands.pairs import Findings, Pair

from components.kubernetes.node_placement import NETWORK_LAYERS

from ..failures import Failure, bad_input
from ..jobs import pair_tests
from ..jobs import run as job_run
from ..target import Target
from . import network_tests
from . import nodes as cluster_nodes

JOB = "find-slow-node"
_PROGRAM = "hyperpod-find-slow-node"
_REPLICA = "training.kubeflow.org/replica-index"


@dataclass(frozen=True, kw_only=True)
class Result:
    """The pairs that were tested, what is slow, and what a slow node is called in the verbs, by its host name."""

    pairs: tuple[Pair, ...]
    findings: Findings
    names: Mapping[str, str]

    @property
    def passed(self) -> bool:
        """Whether nothing is slow."""
        return self.findings.good


def check(target: Target, nodes: int | None) -> int:
    """The number of workers to test. Raises Failure for a number that the first worker group does not have."""
    group = target.config.training_groups[0]
    if group.count < 2:
        raise bad_input(f"{group.name} has {group.count} nodes", "a pair needs two")
    if nodes is not None and not 2 <= nodes <= group.count:
        raise bad_input(f"{nodes} nodes", f"from 2 to {group.count}, the nodes of {group.name}")
    return nodes or group.count


def run(target: Target, nodes: int | None, timeout: float, on_phase: job_run.OnPhase = lambda phase: None) -> Result:
    """Test pairs of the first group's workers, by default of all, which must be idle. Raises Failure.

    ``timeout`` is in seconds, for one pair on Slurm, for all of them on Kubernetes.
    """
    number = check(target, nodes)
    tested, findings = (
        _in_pods(target, number, timeout, on_phase) if target.on_eks else _on_slurm(target, number, timeout)
    )
    key = "instance_id" if target.on_eks else "hostname"
    names = {getattr(node, key): node.name for node in cluster_nodes.list_nodes(target)}
    return Result(pairs=tuple(tested), findings=findings, names=names)


def _on_slurm(target: Target, nodes: int, timeout: float) -> tuple[list[Pair], Findings]:
    found = network_tests.on_controller(target, _PROGRAM, str(nodes), timeout, waits=_longest(nodes, timeout))
    tested = [Pair((one["nodes"][0], one["nodes"][1]), one["busbw"], one["reason"]) for one in found["pairs"]]
    findings = Findings(
        limit=found["limit"],
        fastest=found["fastest"],
        nodes=tuple(found["nodes"]),
        links=_ends(found["links"]),
        switches=_ends(found["switches"]),
        common=found["common"],
    )
    return tested, findings


def _ends(found: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((one, other) for one, other in found)


def _longest(nodes: int, timeout: float) -> float:
    return timeout * len(pairs.rounds([str(place) for place in range(nodes)]))


def _in_pods(target: Target, nodes: int, timeout: float, on_phase: job_run.OnPhase) -> tuple[list[Pair], Findings]:
    places: dict[int, str] = {}

    def on_pods(found: Sequence[dict[str, Any]]) -> None:
        for pod in found:
            place = pod["metadata"].get("labels", {}).get(_REPLICA, "")
            if place and "launcher" not in pod["metadata"]["name"] and pod.get("spec", {}).get("nodeName"):
                places[int(place)] = str(pod["spec"]["nodeName"]).removeprefix("hyperpod-")

    succeeded, lines = network_tests.in_pods(target, JOB, nodes, timeout, on_phase, on_pods)
    names = {place: places.get(place, f"worker-{place}") for place in range(nodes)}
    group = target.config.training_groups[0]
    tested = pair_tests.read(group, lines, names)
    if not tested:
        why = "the job ended without testing a pair" if succeeded else job_run.why_failed(lines)
        raise Failure(why, f"hyperpod job run {target.stack} {JOB} --nodes {nodes} --keep")
    blocks = {
        cluster_nodes.instance_id(node): str(node["metadata"]["labels"].get(NETWORK_LAYERS[-1], ""))
        for node in cluster_nodes.kubernetes(target).nodes()
    }
    return tested, pairs.judge(tested, pair_tests.threshold(group), blocks)


def in_the_verbs_terms(result: Result) -> Result:
    """The same with the nodes' names as ``node list`` has them."""

    def ends(found: tuple[str, str]) -> tuple[str, str]:
        return result.names.get(found[0], found[0]), result.names.get(found[1], found[1])

    found = result.findings
    return replace(
        result,
        pairs=tuple(replace(pair, nodes=ends(pair.nodes)) for pair in result.pairs),
        findings=replace(
            found,
            nodes=tuple(result.names.get(node, node) for node in found.nodes),
            links=tuple(map(ends, found.links)),
        ),
    )
