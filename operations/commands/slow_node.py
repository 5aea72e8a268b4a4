"""The verb ``node find-slow``."""

from typing import Annotated

import typer
from hyperpod_commands import pairs
from rich.markup import escape

from .. import target
from ..cluster import slow_node
from ..failures import Exit
from ..terminal import console


def find_slow_node_command(
    stack: console.Stack,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", "-N", metavar="N", min=2, help="Number of workers. Default: all of the first group."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds for each pair on Slurm (180), for the job on EKS (3600).")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Find the node or link that slows the others down.

    Tests pairs of idle workers with each other, with nccl-tests or
    nccom-test, in about log2(nodes) rounds. Names the node that is slow with
    everybody, the link that only one pair has, or the switch between two
    halves of the topology. Exits with 1 if something is slow.

    \b
      hyperpod node find-slow slurm-gpu
      hyperpod node find-slow eks-gpu --nodes 8 --json
    """
    chosen = target.load(stack)
    number = slow_node.check(chosen, nodes)
    what = f"{number} workers of {chosen.cluster_name} in pairs, takes minutes"
    with console.progress().status(f"{what} ...") as status:
        result = slow_node.run(
            chosen,
            nodes,
            timeout or (3600.0 if chosen.on_eks else 180.0),
            lambda said: status.update(f"{what}: {escape(said.strip()[:100])}"),
        )
    result = slow_node.in_the_verbs_terms(result)
    if as_json:
        console.emit(
            {
                "pairs": [pair.__dict__ for pair in result.pairs],
                **result.findings.record(),
                "passed": result.passed,
            }
        )
    else:
        limit = result.findings.limit
        slow = sorted((pair for pair in result.pairs if (pair.busbw or 0) < limit), key=lambda pair: pair.busbw or 0)
        if slow:
            console.table(
                f"{len(slow)} of {len(result.pairs)} pairs are slow",
                ["node", "node", ("busbw (GB/s)", "right"), ""],
                [(*pair.nodes, "-" if pair.busbw is None else f"{pair.busbw:.2f}", pair.reason) for pair in slow],
            )
        *lines, verdict = pairs.verdict(result.findings)
        for line in lines:
            console.prose(line)
        for name in result.findings.nodes:
            console.say(f"  look at it: hyperpod diagnose {stack} {name}")
            console.say(f"  replace it: hyperpod node replace {stack} {name}")
        console.prose(verdict, "bold green" if result.passed else "bold red")
    raise typer.Exit(Exit.GOOD if result.passed else Exit.FAILED)
