"""``job``: print a job for the stack, or run it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.markup import escape

from stack.failures import Failure
from stack.jobs import run as job_run
from stack.jobs.render import resumes
from stack.jobs.specs import JOBS

from .. import console, target
from .running_jobs import Name, api_of, cancel_command, list_command, logs_command, rendered


@dataclass(frozen=True)
class Choices:
    """The options of every job, as ``render`` takes them."""

    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="A team's namespace (default: the first team's).")
    ] = None
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-N", metavar="N", help="Number of nodes (default: all of the group).")
    ] = None
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="Worker group (default: the first).")
    ] = None
    devices: Annotated[
        int | None, typer.Option("--devices", help="GPUs or Trainium chips per node (default: all).")
    ] = None
    efa: Annotated[int | None, typer.Option("--efa", help="EFA interfaces per node (default: all).")] = None
    image: Annotated[
        str | None, typer.Option("--image", help="Container image (default: one of AWS's public images).")
    ] = None
    arguments: Annotated[
        str, typer.Option("--arguments", "-a", help='Arguments for the script, like "--steps 500".')
    ] = ""


def _with_choices(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of Choices instead of its parameter ``choices``."""
    fields = list(signature(Choices, eval_str=True).parameters.values())

    def called(**given: Any) -> None:
        chosen = Choices(**{field.name: given.pop(field.name) for field in fields})
        command(**given, choices=chosen)

    own = signature(command, eval_str=True)
    parameters = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for one in own.parameters.values()
        for parameter in (fields if one.name == "choices" else [one])
    ]
    called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__doc__ = command.__doc__
    return called


_TIMEOUT_SECONDS = 3600

_WIDEST = max(map(len, JOBS))
job_app = typer.Typer(
    help="\n".join(
        (
            "Run jobs on an EKS stack's nodes, and look after them.",
            "\n\b",
            "  hyperpod job run eks-gpu nanogpt",
            "  hyperpod job print eks-gpu nanogpt | kubectl apply -f -",
            "  hyperpod job list eks-gpu",
            "\n\b",
            "Jobs:",
            *(f"  {name:{_WIDEST}}  {job.title}" for name, job in JOBS.items()),
        )
    ),
    add_completion=False,
)


class _Manifests(yaml.SafeDumper):
    """Writes multi-line strings as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Manifests.add_representer(str, _text)


def _rendered(
    stack: str, name: str, choices: Choices, deadline: float | None = None
) -> tuple[target.Target, list[dict[str, Any]]]:
    chosen = target.load(stack)
    return chosen, rendered(name, chosen.config, **vars(choices), deadline=deadline)


@job_app.command("print")
@_with_choices
def print_command(stack: console.Stack, name: Name, choices: Choices, as_json: console.Json = False) -> None:
    """Print a job's objects, for kubectl apply.

    \b
      hyperpod job print eks-gpu nanogpt --nodes 2 | kubectl apply -f -
    """
    _, objects = _rendered(stack, name, choices)
    if as_json:
        console.emit(objects)
    else:
        print(yaml.dump_all(objects, Dumper=_Manifests, sort_keys=False), end="")


job_app.command("list")(list_command)
job_app.command("logs")(logs_command)
job_app.command("cancel")(cancel_command)


@job_app.command("run")
@_with_choices
def run_command(
    stack: console.Stack,
    name: Name,
    choices: Choices,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the log until the job ends.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the job's objects after it ends.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1, help=f"Seconds to wait for the job (default: a test's own deadline, else {_TIMEOUT_SECONDS})."
        ),
    ] = None,
    kubeconfig_file: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Use this kubeconfig instead of asking EKS.", dir_okay=False)
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Run a job. Exits with 0 if it passed, with 1 if it failed.

    Does not submit a job that the cluster would refuse or leave pending: too many devices, a missing namespace, an
    exhausted quota, a missing token.

    \b
      hyperpod job run eks-gpu device-check
      hyperpod job run eks-gpu nanogpt --nodes 2 -a "--steps 500"
      hyperpod job run eks-gpu nccl-tests --json    in CI
    """
    chosen, objects = _rendered(stack, name, choices, deadline=timeout if wait else None)
    api = api_of(chosen, kubeconfig_file)
    job_run.check(api, objects, chosen.config, pretrained="--pretrained" in choices.arguments)
    job_run.submit(api, objects)
    where = objects[-1]["metadata"]["namespace"]
    if objects[-1]["metadata"].get("annotations") and not resumes(where):
        console.note(
            f"HyperPod resumes jobs only in namespaces whose name begins with hyperpod: in {where} only the training "
            "operator starts their pods again"
        )
    if not wait:
        console.say(f"{name} is submitted: kubectl get {objects[-1]['kind'].lower()} {name} -n {where}")
        return
    started = time.monotonic()
    say = (lambda line: console.note(line, "")) if as_json else console.say
    limit = timeout or JOBS[name].deadline or _TIMEOUT_SECONDS

    def take_away() -> None:
        for document in [] if keep else reversed(objects):
            api.delete(document)

    try:
        with console.progress().status(f"{name}: submitted") as status:
            succeeded, lines = job_run.follow(
                api, objects, say, lambda phase: status.update(f"{name}: {escape(phase)}"), limit
            )
    except job_run.TimedOut as error:
        # Training continues, as after Ctrl-C. A test that nobody waits for only occupies nodes.
        if JOBS[name].deadline and not keep:
            take_away()
            error.hint = "it was deleted; --keep keeps it"
        else:
            one = f"{objects[-1]['kind'].lower()} {name} -n {where}"
            goes_on = "it was kept" if JOBS[name].deadline else "it continues"
            error.hint = f"{goes_on}; kubectl describe {one}; to end it: kubectl delete {one}"
        raise
    take_away()
    groups = {one.name: one for one in chosen.config.training_groups}
    workers = groups[choices.group] if choices.group else chosen.config.training_groups[0]
    result = job_run.judge(
        name, where, workers, choices.nodes or workers.count, succeeded, lines, time.monotonic() - started
    )
    if as_json:
        console.emit(result)
    else:
        _show(result)
    if not result.passed:
        raise Failure(f"{name} failed: {'; '.join(result.reasons)}", "hyperpod validate STACK")


def _show(result: job_run.Result) -> None:
    for what, value in result.figures.items():
        console.say(f"{what}: {value:g}")
    console.say(
        f"{'PASS' if result.passed else 'FAIL'} after {result.seconds:.0f} s", "green" if result.passed else "red"
    )
