"""``job``: print a job for the stack, run it, and look after it."""

from collections.abc import Callable, Mapping
from typing import Any

from .. import target
from ..jobs.choices import Choices
from ..jobs.specs import JOBS
from ..terminal import console
from ..terminal.command_line import add, new_group
from .checkpoints import checkpoints_command
from .image import image_command, pull_command
from .running_jobs import Name, cancel_command, list_command, logs_command
from .submitting import Following, Wanted, run, with_records

_WIDEST = max(map(len, JOBS))


@with_records
def print_command(stack: console.Stack, name: Name, choices: Choices, as_json: console.Json = False) -> None:
    """Print a job, for kubectl apply or sbatch.

    \b
      hyperpod job print eks-gpu nanogpt --nodes 2 | kubectl apply -f -
      hyperpod job print slurm-gpu nanogpt --nodes 2
    """
    Wanted(target=target.load(stack), name=name, choices=choices).show(as_json)


@with_records
def run_command(stack: console.Stack, name: Name, choices: Choices, following: Following) -> None:
    """Run a job. Exits with 0 if it passed, with 1 if it failed.

    Does not submit a job that the cluster would refuse or leave pending: too many devices, a missing namespace, an
    exhausted quota, a missing token. With Slurm the controller submits it, through Session Manager.

    \b
      hyperpod job run eks-gpu device-check
      hyperpod job run eks-gpu nanogpt --nodes 2 -a "--steps 500"
      hyperpod job run slurm-gpu nccl-tests --json    in CI
    """
    deadline = following.timeout if following.wait else None
    run(Wanted(target=target.load(stack), name=name, choices=choices, deadline=deadline), following)


job_app = new_group(
    "\n".join(
        (
            "Run jobs on a stack's nodes, and look after them.",
            "\n\b",
            "  hyperpod job run eks-gpu nanogpt",
            "  hyperpod job print eks-gpu nanogpt | kubectl apply -f -",
            "  hyperpod job list slurm-gpu",
            "\n\b",
            "Jobs:",
            *(f"  {name:{_WIDEST}}  {job.title}" for name, job in JOBS.items()),
        )
    )
)
_VERBS: Mapping[str, Callable[..., Any]] = {
    "run": run_command,
    "list": list_command,
    "logs": logs_command,
    "cancel": cancel_command,
    "print": print_command,
    "image": image_command,
    "pull": pull_command,
    "checkpoints": checkpoints_command,
}
for _name, _verb in _VERBS.items():
    add(job_app, _name, _verb)
