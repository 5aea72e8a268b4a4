"""``job``: print a job for the stack, or run it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.markup import escape

from stack.failures import Failure, bad_input
from stack.jobs import run as job_run
from stack.jobs.render import JobError, render
from stack.jobs.specs import JOBS

from .. import console, target
from ..kubernetes import kubeconfig

Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="A team's namespace (default: the first team's).")
]
Nodes = Annotated[int | None, typer.Option("--nodes", "-N", help="How many nodes (default: all of the group).")]
Group = Annotated[str | None, typer.Option("--group", help="Worker group (default: the first).")]
Devices = Annotated[int | None, typer.Option("--devices", help="GPUs or Trainium chips per node (default: all).")]
Efa = Annotated[int | None, typer.Option("--efa", help="EFA interfaces per node (default: all).")]
Image = Annotated[str | None, typer.Option("--image", help="Container image (default: one of AWS's public images).")]
Arguments = Annotated[str, typer.Option("--arguments", "-a", help='For the script, as "--steps 500".')]
Etcd = Annotated[bool, typer.Option("--etcd", help="Rendezvous through etcd instead of the first worker.")]

_TIMEOUT_SECONDS = 3600

job_app = typer.Typer(
    help="Print or run a job for an EKS stack's nodes.",
    no_args_is_help=True,
    add_completion=False,
)


class _Manifests(yaml.SafeDumper):
    """Writes scripts as blocks, line by line."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Manifests.add_representer(str, _text)


def _rendered(stack: str, name: str, **options: Any) -> tuple[target.Target, list[dict[str, Any]]]:
    chosen = target.load(stack)
    try:
        return chosen, render(name, chosen.config, **options)
    except JobError as error:
        raise bad_input(str(error)) from None


def _printer(name: str) -> Callable[..., None]:
    def command(
        stack: console.StackOption,
        namespace: Namespace = None,
        nodes: Nodes = None,
        group: Group = None,
        devices: Devices = None,
        efa: Efa = None,
        image: Image = None,
        arguments: Arguments = "",
        etcd: Etcd = False,
        as_json: console.Json = False,
    ) -> None:
        _, objects = _rendered(
            stack,
            name,
            namespace=namespace,
            nodes=nodes,
            group=group,
            devices=devices,
            efa=efa,
            image=image,
            arguments=arguments,
            etcd=etcd,
        )
        if as_json:
            console.emit(objects)
        else:
            print(yaml.dump_all(objects, Dumper=_Manifests, sort_keys=False), end="")

    command.__doc__ = f"Print {name}: {JOBS[name].title.removesuffix('?')}."
    return command


for _job in JOBS:
    job_app.command(_job)(_printer(_job))


@job_app.command("run")
def run_command(
    name: Annotated[str, typer.Argument(metavar="JOB", help=f"One of {', '.join(JOBS)}.")],
    stack: console.StackOption,
    namespace: Namespace = None,
    nodes: Nodes = None,
    group: Group = None,
    devices: Devices = None,
    efa: Efa = None,
    image: Image = None,
    arguments: Arguments = "",
    etcd: Etcd = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow its log until it ends.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Keep its objects after it has ended.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1, help=f"Seconds to wait for its end (default: a test's own deadline, else {_TIMEOUT_SECONDS})."
        ),
    ] = None,
    kubeconfig_file: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Use this file instead of asking EKS.", dir_okay=False)
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Run a job. Exits with 0 if it passed, with 1 if it failed.

    Refuses to submit what the cluster would refuse or leave pending: too many devices, a missing namespace, an
    exhausted quota, a missing token.
    """
    chosen, objects = _rendered(
        stack,
        name,
        namespace=namespace,
        nodes=nodes,
        group=group,
        devices=devices,
        efa=efa,
        image=image,
        arguments=arguments,
        etcd=etcd,
        deadline=timeout if wait else None,
    )
    from stack.jobs.kubernetes_api import KubernetesApi  # importing its client takes half of the command's time

    if etcd and not image:
        raise bad_input(
            "rendezvous through etcd needs python-etcd, which AWS's public images lack",
            f"give the stack's own image: python -m operations image {stack}",
        )
    api = KubernetesApi.of(kubeconfig_file or kubeconfig.render(kubeconfig.describe(chosen)))
    job_run.check(api, objects, chosen.config, pretrained="--pretrained" in arguments)
    job_run.submit(api, objects)
    where = objects[-1]["metadata"]["namespace"]
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
        with console.err().status(f"{name}: submitted") as status:
            succeeded, lines = job_run.follow(
                api, objects, say, lambda phase: status.update(f"{name}: {escape(phase)}"), limit
            )
    except job_run.TimedOut as error:
        # Training continues, as after Ctrl-C; a test that nobody waits for only occupies nodes.
        if JOBS[name].deadline and not keep:
            take_away()
            error.hint = "it was deleted; --keep keeps it"
        else:
            one = f"{objects[-1]['kind'].lower()} {name} -n {where}"
            goes_on = "it is left there" if JOBS[name].deadline else "it goes on"
            error.hint = f"{goes_on}; kubectl describe {one}; to end it: kubectl delete {one}"
        raise
    take_away()
    groups = {one.name: one for one in chosen.config.training_groups}
    workers = groups[group] if group else chosen.config.training_groups[0]
    result = job_run.judge(name, where, workers, nodes or workers.count, succeeded, lines, time.monotonic() - started)
    if as_json:
        console.emit(result)
    else:
        _show(result)
    if not result.passed:
        raise Failure(f"{name} failed: {'; '.join(result.reasons)}", "python -m operations validate STACK")


def _show(result: job_run.Result) -> None:
    for what, value in result.figures.items():
        console.say(f"{what}: {value:g}")
    console.say(
        f"{'PASS' if result.passed else 'FAIL'} after {result.seconds:.0f} s", "green" if result.passed else "red"
    )
