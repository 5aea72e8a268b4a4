"""The verb ``benchmark``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from .. import target
from ..cluster import benchmark
from ..failures import Exit, bad_input
from ..target import Target
from ..terminal import console


def benchmark_command(
    stack: console.Stack,
    collective: Annotated[
        list[str] | None,
        typer.Option(
            "--collective", help="all_reduce (default), all_gather, reduce_scatter, alltoall, ... Repeatable."
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", "-N", metavar="N", min=1, help="Number of workers. Default: all of the first group."),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Time limit of the test itself, in seconds.")] = 1800,
    output: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Rate the test output in FILE instead of running a test."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="File for the plot (png, svg, pdf).")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Measure and rate the network between workers.

    Runs nccl-tests (GPU) or nccom-test (Trainium) on the cluster, through Slurm
    or as an MPIJob. The threshold depends on the instance type's network
    bandwidth. Results and plots are kept in .operations/STACK. Exits with 1 on
    FAIL.

    \b
      hyperpod benchmark slurm-gpu
      hyperpod benchmark dev --collective all_reduce --collective all_gather
      hyperpod benchmark eks-gpu --from launcher.log
    """
    chosen = target.load(stack)
    collectives = collective or ["all_reduce"]
    if len(collectives) > 1 and (output or picture):
        raise bad_input("--from and --picture work with one --collective only", "run the command once for each")
    for one in collectives:
        benchmark.check(chosen, one, nodes)
    results = []
    for one in collectives:
        result = _measure(chosen, one, nodes, timeout, output)
        earlier = benchmark.before(chosen, result)
        results.append(benchmark.keep(chosen, result, picture))
        if not as_json:
            _show(results[-1], earlier)
    if as_json:
        console.emit([one.__dict__ | {"rows": [row.__dict__ for row in one.rows]} for one in results])
    raise typer.Exit(Exit.GOOD if all(one.passed for one in results) else Exit.FAILED)


def _measure(
    chosen: Target, collective: str, nodes: int | None, timeout: float, output: Path | None
) -> benchmark.Result:
    if output is None:
        what = f"{collective} on {chosen.cluster_name}"
        with console.progress().status(f"{what}, takes minutes ...") as status:
            return benchmark.run(
                chosen, collective, nodes, timeout, lambda said: status.update(f"{what}: {escape(said.strip()[:100])}")
            )
    try:
        text = output.read_text(errors="replace")
    except OSError as error:
        raise bad_input(f"--from {output}: {error.strerror}") from None
    return benchmark.rate_text(chosen, text, collective, nodes)


def _show(result: benchmark.Result, earlier: dict[str, object] | None) -> None:
    ranks = "1 rank" if result.ranks_per_node == 1 else f"{result.ranks_per_node} ranks"
    console.table(
        f"{result.collective}, {result.nodes} x {result.instance_type}, {ranks} each, {result.transport}",
        [
            ("size", "right"),
            ("time (us)", "right"),
            ("algbw (GB/s)", "right"),
            ("busbw (GB/s)", "right"),
            ("wrong", "right"),
        ],
        [
            (benchmark.readable(r.size), f"{r.time_us:.1f}", f"{r.algbw:.2f}", f"{r.busbw:.2f}", _wrong(r.wrong))
            for r in result.rows
        ],
    )
    limit = f"{result.threshold:.2f} GB/s" if result.threshold is not None else "none: only correctness is rated"
    console.prose(
        f"peak {result.peak:.2f} GB/s, average {result.average:.2f} GB/s, threshold {limit}, "
        f"wrong values {_wrong(result.wrong)}"
    )
    if earlier:
        console.prose(f"the last passing run had a peak of {earlier['peak']:.2f} GB/s ({earlier['time']})", "dim")
    for reason in result.reasons:
        console.prose(f"  {reason}", "red")
    if result.hints:
        console.say("Look at:", "bold")
        for hint in result.hints:
            console.prose(f"  - {hint}")
    if result.picture:
        console.say(f"picture: {result.picture}", "dim")
    console.say("PASS" if result.passed else "FAIL", "bold green" if result.passed else "bold red")


def _wrong(number: int | None) -> str:
    return "not checked" if number is None else str(number)
