"""``benchmark``: the collectives test on the cluster's workers, rated by the wire rate of their network."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hyperpod_commands import bandwidth, nccl_test, nccom_test
from hyperpod_commands.bandwidth import Row

from components.config import InstanceGroup

from .. import records
from ..failures import bad_input
from ..jobs import run as job_run
from ..jobs.run import Test
from ..target import Target
from . import network_tests

HISTORY = "benchmarks"


@dataclass(frozen=True, kw_only=True)
class Result:
    """A test's result, bandwidths in GB/s.

    ``threshold`` is None where there is none (bandwidth.threshold), ``wrong`` is None where no value was checked.
    """

    test: Test
    collective: str
    nodes: int
    ranks_per_node: int
    instance_type: str
    transport: str
    rows: tuple[Row, ...]
    average: float
    peak: float
    threshold: float | None
    wrong: int | None
    passed: bool
    reasons: tuple[str, ...]
    hints: tuple[str, ...]
    picture: str = ""


def collectives(target: Target) -> tuple[str, ...]:
    """The collectives that the test of this cluster's accelerator measures."""
    return tuple(nccom_test.COLLECTIVES) if _test(target) == "nccom" else nccl_test.COLLECTIVES


def _test(target: Target) -> Test:
    return "nccom" if target.config.settings.accelerator == "trainium" else "nccl"


def check(target: Target, collective: str, nodes: int | None) -> None:
    """Refuse a collective that the test lacks, or more nodes than there are. Raises Failure."""
    known, group = collectives(target), target.config.training_groups[0]
    if collective not in known:
        raise bad_input(f'"{collective}" is not a collective of this cluster\'s test', f"one of {', '.join(known)}")
    if not group.count:
        again = f"hyperpod scale {target.stack} {group.name} NUMBER"
        raise bad_input(f"{group.name} has no nodes now", again)
    if nodes is not None and not 1 <= nodes <= group.count:
        raise bad_input(f"{nodes} nodes", f"{group.name} has {group.count}")


def run(
    target: Target, collective: str, nodes: int | None, timeout: float, on_phase: job_run.OnPhase = lambda phase: None
) -> Result:
    """Run the test on ``nodes`` workers of the first group, by default all. Raises Failure where it cannot run.

    ``on_phase`` is told what the test waits for, and each output line, if available before its end.
    """
    check(target, collective, nodes)
    group = target.config.training_groups[0]
    number = nodes or group.count
    if target.on_eks:
        job = "nccom-test" if _test(target) == "nccom" else "nccl-tests"
        succeeded, lines = network_tests.in_pods(target, job, number, timeout, on_phase, collective=collective)
        failure = "" if succeeded else job_run.why_failed(lines)
        return rate_text(target, "\n".join(lines), collective, number, failure)
    return _on_slurm(target, group, collective, number, timeout)


def _on_slurm(target: Target, group: InstanceGroup, collective: str, nodes: int, timeout: float) -> Result:
    program = "run-nccom-test" if _test(target) == "nccom" else "run-nccl-test"
    return _from_record(network_tests.on_controller(target, program, f"{nodes} 0 {collective}", timeout), nodes)


def _from_record(record: Mapping[str, Any], nodes: int) -> Result:
    """The result of a command on the nodes with --json: rated there, by the same rules."""
    transport = str(record["transport"])
    return Result(
        test=record["test"],
        collective=record["collective"],
        nodes=nodes,
        ranks_per_node=record["ranks_per_node"],
        instance_type=record["instance_type"],
        transport=transport,
        rows=tuple(Row(**row) for row in record["rows"]),
        average=record["average"],
        peak=record["peak"],
        threshold=record["threshold"],
        wrong=record["wrong"],
        passed=record["passed"],
        reasons=(*record["reasons"], *record.get("warnings", [])),
        hints=() if record["passed"] else tuple(bandwidth.hints(transport)),
    )


def rate_text(target: Target, text: str, collective: str, nodes: int | None = None, failure: str = "") -> Result:
    """Rate output of nccl-tests or nccom-test, also a truncated one; ``failure`` is what else went wrong."""
    group = target.config.training_groups[0]
    number, per_node, rating = job_run.rate(_test(target), group, collective, text, nodes or group.count, failure)
    return Result(
        test=_test(target),
        collective=collective,
        nodes=number,
        ranks_per_node=per_node,
        instance_type=group.type.name,
        transport=group.type.transport,
        rows=tuple(rating.rows),
        average=rating.average,
        peak=rating.peak,
        threshold=rating.threshold,
        wrong=rating.wrong,
        passed=rating.passed,
        reasons=tuple(rating.reasons),
        hints=() if rating.passed else tuple(bandwidth.hints(group.type.transport)),
    )


def keep(target: Target, result: Result, picture: Path | None = None) -> Result:
    """Plot the result and add it to the stack's history. Returns it with the plot's path."""
    path = picture or records.folder(target) / f"{result.collective}-{time.strftime('%Y%m%dT%H%M%S')}.png"
    if result.rows:
        draw(result, path)
        result = replace(result, picture=str(path))
    record = {**result.__dict__, "rows": [row.__dict__ for row in result.rows]}
    records.add(target, HISTORY, record)
    return result


def draw(result: Result, path: Path) -> None:
    """Plot bus bandwidth over message size; the file name's extension sets the format (png, svg, pdf)."""
    # Importing it takes a second. Figures go to files: no window and no pyplot state.
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot([row.size for row in result.rows], [row.busbw for row in result.rows], marker="o", label="bus bandwidth")
    if result.threshold is not None:
        axes.axhline(result.threshold, color="tab:red", linestyle="--", label=f"threshold {result.threshold:.1f} GB/s")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: readable(size)))
    axes.set_xlabel("message size")
    axes.set_ylabel("GB/s")
    axes.set_ylim(bottom=0)
    verdict = "PASS" if result.passed else "FAIL"
    axes.set_title(
        f"{result.collective}, {result.nodes} x {result.instance_type}, {result.transport}: "
        f"peak {result.peak:.1f} GB/s, {verdict}"
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def readable(size: float) -> str:
    """A size in words, as ``64 KiB``."""
    units = ("B", "KiB", "MiB", "GiB")
    for unit in units[:-1]:
        if size < 1024:
            return f"{size:g} {unit}"
        size /= 1024
    return f"{size:g} {units[-1]}"


def before(target: Target, result: Result) -> dict[str, Any] | None:
    """The last good result of the same test in the history, to compare with."""
    same = [
        one
        for one in records.read(target, HISTORY)
        if one["passed"] and all(one[key] == getattr(result, key) for key in ("collective", "nodes", "instance_type"))
    ]
    return same[-1] if same else None
