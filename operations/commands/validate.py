"""The verb ``validate``."""

from typing import Annotated

import typer

from .. import target
from ..cluster.validate import Validation, worst
from ..terminal import console


def validate_command(
    stack: console.Stack,
    run_jobs: Annotated[
        bool,
        typer.Option("--run-jobs", help="On EKS: also run the job device-check on every worker, for about a minute."),
    ] = False,
    as_json: console.Json = False,
) -> None:
    """Check that a cluster is as configured.

    Checks nodes, network, file system, scheduler, devices and EFA. Changes
    nothing. Nodes are queried through Session Manager, Kubernetes through its
    API. Only a job can check what pods see: without --run-jobs that stays
    UNKNOWN. Exits with 1 if a check failed, with 3 if one could not run.

    \b
      hyperpod validate dev
      hyperpod validate eks-gpu --run-jobs
      hyperpod validate slurm-gpu --json
    """
    chosen = target.load(stack)
    _ = chosen.cluster
    with console.progress().status(f"Checking {chosen.cluster_name} ..."):
        checks = Validation(chosen, run_jobs=run_jobs).run()
    if as_json:
        console.emit(checks)
    else:
        console.table(f"{chosen.cluster_name}", ["", "check", "found"], [(c.result, c.name, c.detail) for c in checks])
        for check in checks:
            if check.hint:
                console.prose(f"  {check.result} {check.name}:")
                console.say(f"    {check.hint}")
        counts = {word: sum(c.result == word for c in checks) for word in ("PASS", "FAIL", "UNKNOWN")}
        console.say(", ".join(f"{number} {word}" for word, number in counts.items() if number), "bold")
    raise typer.Exit(worst(checks))
