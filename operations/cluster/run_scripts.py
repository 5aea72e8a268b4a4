"""Runs the stack's current lifecycle scripts again on existing nodes.

No call to AWS does it for a controller: BatchReplaceClusterNodes leaves controllers out, and UpdateClusterSoftware does
nothing without a newer image. What AWS names instead is this: "You can also run lifecycle scripts directly in the
HyperPod instances" (SageMaker Developer Guide, "Updating a cluster with new or updated lifecycle scripts").
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from components.common.names import ENTRY_POINT
from components.nodes.lifecycle_bucket import PREFIX

from ..failures import Failure, bad_input, described
from ..target import Target
from . import draining, sessions
from . import nodes as cluster_nodes
from .node import Node

# slurmctld's reason for a node that this verb has taken out; by it a later run knows which of them to take back.
REASON = "hyperpod node run-scripts"
# The seconds that HyperPod gives the scripts, too (SageMaker Developer Guide, troubleshooting: an hour).
_SECONDS = 3600.0
_ROLES = ("controller", "login", "worker")
_SUMMARY = "summary "
# Into a folder of root's that ends with the run. The run is a session of its own and writes to a file, so that it goes
# on to its end where ours is cut off; cat reads until the last process of the script has closed its output.
_ON_NODE = """
folder=$(mktemp -d /run/hyperpod-scripts.XXXXXX) && trap 'rm -rf "$folder"' EXIT || exit
aws s3 cp --recursive --only-show-errors --region {region} {uri} "$folder/scripts" || exit
bash "$folder/scripts/{entry}" 2>&1 | cat > "$folder/said"
code=${{PIPESTATUS[0]}}
cat "$folder/said"
exit "$code"
"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One node. ``status``: ok, degraded or failed, by its own summary, whose ``steps`` these are.

    ``changed``: the number of files that are others now. ``trouble``: why it failed. ``out``: this verb has taken it
    out of Slurm, and not back.
    """

    node: str
    status: str
    seconds: float = 0.0
    changed: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)
    trouble: str = ""
    out: bool = False

    @property
    def good(self) -> bool:
        """Whether the scripts succeeded."""
        return not self.trouble


def chosen(target: Target, where: Sequence[str]) -> tuple[list[Node], list[Node]]:
    """The cluster's nodes, and those of these names or groups, by default all: the controller first, which has to know
    what the others ask it for. Raises Failure for a name that is none, for a node that does not run, and on EKS."""
    if target.on_eks:
        raise bad_input(
            f"{target.stack} has no Slurm nodes, which this verb is for",
            "hyperpod node update-software, or hyperpod node replace NODE",
        )
    nodes = cluster_nodes.list_nodes(target)
    found = cluster_nodes.several(nodes, where) if where else nodes
    if away := [f"{node.name} is {node.status}" for node in found if node.status != "Running"]:
        raise Failure(f"not every node runs: {', '.join(away)}", "name the others, or wait: hyperpod node list STACK")
    cluster_nodes.controller(nodes)
    return nodes, sorted(found, key=lambda node: _ROLES.index(node.role))


def run(
    target: Target,
    nodes: Sequence[Node],
    wanted: Sequence[Node],
    say: Callable[[str], None] = lambda _: None,
    *,
    at_once: int = 1,
    drain: bool = True,
    patience: float = 86400.0,
) -> Iterator[Ran]:
    """Run them, ``at_once`` nodes of a role at a time, and tell of each node. Ends after the first that failed.

    With ``drain`` a worker takes no new job meanwhile, and those that it has end first, within ``patience`` seconds.
    One that somebody else has taken out of Slurm stays out. Raises Failure, with the nodes back in Slurm, where jobs do
    not end.
    """
    head = cluster_nodes.controller(nodes)
    for batch in _batches(wanted, at_once):
        out = _drained(target, nodes, batch, say, patience) if drain else []
        say(f"Running the scripts on {draining.named(batch)} ...")
        with ThreadPoolExecutor(sessions.AT_ONCE) as pool:
            done = list(pool.map(lambda node: _one(target, node), batch))
        well = [node for node, one in zip(batch, done, strict=True) if one.good and node in out]
        draining.update(target, head, well, "State=RESUME")
        names = {node.name for node in out if node not in well}
        yield from (Ran(**{**one.__dict__, "out": one.node in names}) for one in done)
        if not all(one.good for one in done):
            return


def _batches(wanted: Sequence[Node], at_once: int) -> Iterator[list[Node]]:
    for role in _ROLES:
        of_role = [node for node in wanted if node.role == role]
        for start in range(0, len(of_role), at_once):
            yield of_role[start : start + at_once]


def _drained(
    target: Target, nodes: Sequence[Node], batch: Sequence[Node], say: Callable[[str], None], patience: float
) -> list[Node]:
    hint = "a longer --timeout, or --no-drain: running jobs go on"
    return draining.drain_slurm(target, nodes, batch, say, reason=REASON, patience=patience, hint=hint)


def _one(target: Target, node: Node) -> Ran:
    uri = f"s3://{target.names.bucket}/{PREFIX}"
    script = _ON_NODE.format(region=target.aws.region, uri=uri, entry=ENTRY_POINT)
    command = f"sudo -n setsid --fork --wait bash -c {shlex.quote(script)}"
    try:
        ran = sessions.run_remote(target, node, command, timeout=_SECONDS)
    except (Failure, ClientError, BotoCoreError) as error:
        return Ran(node=node.name, status="failed", trouble=described(error, target.stack).message)
    lines = [line for line in ran.output.splitlines() if line.strip()]
    try:
        found = next(json.loads(line.removeprefix(_SUMMARY)) for line in reversed(lines) if line.startswith(_SUMMARY))
        return _read(node, found, ran.code, lines)
    except (StopIteration, ValueError, KeyError, TypeError):
        last = lines[-1] if lines else "no output"
        return Ran(node=node.name, status="failed", trouble=last)


def _read(node: Node, found: Mapping[str, Any], code: int, lines: Sequence[str]) -> Ran:
    return Ran(
        node=node.name,
        status=str(found["status"]),
        seconds=float(found["boot_seconds"]),
        changed=int(found["changed"]),
        steps=list(found["steps"]),
        trouble=lines[-1] if code else "",
    )
