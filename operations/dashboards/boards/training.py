"""Training jobs: what the project's trainers report for each rank."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from ..panels import NODE, Look, Query, bars, board, graph, rows, warn, words
from ..shipped import BY_NAME

# On Slurm a job has a number, on EKS a namespace and pods.
_JOB = "cluster, hpc_job, namespace"
_NAMED = "{{hpc_job}} {{namespace}}"
_RANK = f"{_NAMED}, rank {{{{rank}}}} on {{{{node}}}}"
_ABOUT = """
The project's own trainers report these figures (docs/metrics.md says how yours can). A job that stopped keeps its
last figures until its node forgets them: *seconds since the last step* tells a stuck job from a slow one. The
**slowest rank** is known by its own time in a step, before it waits for the others: the step itself takes all ranks
equally long, so its time names nobody.
"""


def _of(metric: str) -> str:
    return f"hyperpod_training_{metric}{{{NODE}}}"


def training() -> Dashboard:
    """Progress first, then who holds it up, then checkpoints."""
    own = f"max by ({_JOB}, rank, node) ({_of('compute_seconds')})"
    return board(
        BY_NAME["training"],
        (
            (
                "Progress",
                (
                    graph("Step", Query(f"max by ({_JOB}) ({_of('step')})", _NAMED), look=Look()),
                    graph(
                        "Tokens a second",
                        Query(f"max by ({_JOB}) ({_of('tokens_per_second')})", _NAMED),
                        look=Look(),
                    ),
                    graph(
                        "Loss", Query(f"avg by ({_JOB}) ({_of('loss')})", _NAMED), look=Look(unit="none", decimals=3)
                    ),
                    graph(
                        "Seconds a step takes",
                        Query(f"quantile by ({_JOB}) (0.5, {_of('step_seconds')})", f"{_NAMED}, median"),
                        Query(f"max by ({_JOB}) ({_of('step_seconds')})", f"{_NAMED}, longest"),
                        look=Look(unit="s"),
                    ),
                    graph(
                        "Since the last step",
                        Query(f"time() - max by ({_JOB}) ({_of('updated_time_seconds')})", _NAMED),
                        look=Look(unit="s", steps=warn(300, 1800)),
                    ),
                    rows(
                        "Ranks that report, by job",
                        f"count by ({_JOB}) ({_of('step')})",
                        "ranks",
                        look=Look(empty="no job reports"),
                    ),
                ),
            ),
            (
                "Who holds it up",
                (
                    bars(
                        "Slowest ranks: own time against the job's median",
                        Query(
                            f"topk(10, {own} / on ({_JOB}) group_left () "
                            f"quantile by ({_JOB}) (0.5, {_of('compute_seconds')}))",
                            _RANK,
                        ),
                        look=Look(unit="none", decimals=2, steps=warn(1.1, 1.3)),
                    ),
                    graph(
                        "Own time in a step: fastest, median, slowest",
                        Query(f"min by ({_JOB}) ({_of('compute_seconds')})", f"{_NAMED}, fastest"),
                        Query(f"quantile by ({_JOB}) (0.5, {_of('compute_seconds')})", f"{_NAMED}, median"),
                        Query(f"max by ({_JOB}) ({_of('compute_seconds')})", f"{_NAMED}, slowest"),
                        look=Look(unit="s"),
                    ),
                ),
            ),
            (
                "Checkpoints",
                (
                    graph(
                        "Since the last checkpoint",
                        Query(f"time() - max by ({_JOB}) ({_of('checkpoint_time_seconds')})", _NAMED),
                        look=Look(unit="s", note="This much work is lost if a node fails now."),
                    ),
                    graph(
                        "Seconds a checkpoint takes",
                        Query(f"max by ({_JOB}) ({_of('checkpoint_seconds')})", _NAMED),
                        look=Look(unit="s"),
                    ),
                    words(_ABOUT),
                ),
            ),
        ),
    )
