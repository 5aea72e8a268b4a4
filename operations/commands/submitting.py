"""What ``job run`` and ``run`` have in common: a job is submitted, followed and judged, with either scheduler."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import yaml
from rich.markup import escape

from ..failures import Failure, bad_input
from ..jobs import batch, render
from ..jobs import run as job_run
from ..jobs.choices import Choices
from ..jobs.requests import JobError
from ..jobs.specs import JOBS, Job
from ..target import Target
from ..terminal import console
from .running_jobs import Kubeconfig, api_of, slurm_of

TIMEOUT_SECONDS = 3600
_Asked = TypeVar("_Asked")


@dataclass(frozen=True)
class Following:
    """The options of every verb that submits a job: how it is followed, and in which form it ends."""

    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the log until the job ends.")] = True
    keep: Annotated[bool, typer.Option("--keep", help="Keep the job's objects after it ends.")] = False
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1, help=f"Seconds to wait for the job (default: a test's own deadline, else {TIMEOUT_SECONDS})."
        ),
    ] = None
    kubeconfig_file: Kubeconfig = None
    as_json: console.Json = False


def with_records(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its parameters that are Choices or Following."""
    own = signature(command, eval_str=True)
    records: dict[str, Any] = {
        name: one.annotation for name, one in own.parameters.items() if is_dataclass(one.annotation)
    }
    fields = {name: list(signature(of, eval_str=True).parameters.values()) for name, of in records.items()}

    def called(**given: Any) -> None:
        for name, of in records.items():
            given[name] = of(**{field.name: given.pop(field.name) for field in fields[name]})
        command(**given)

    parameters = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for one in own.parameters.values()
        for parameter in fields.get(one.name, [one])
    ]
    called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__doc__ = command.__doc__
    return called


class _Manifests(yaml.SafeDumper):
    """Writes multi-line strings as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Manifests.add_representer(str, _text)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A job for a stack. One that is not this project's comes as ``job`` with its ``files``, by name."""

    target: Target
    name: str
    choices: Choices
    job: Job | None = None
    files: Mapping[str, str] | None = None
    deadline: float | None = None

    def objects(self) -> list[dict[str, Any]]:
        """Its objects for Kubernetes. Raises Failure where this stack cannot run it so."""
        known = JOBS.get(self.name)
        if not self.job and known and known.recipe and not self.choices.image:
            build = f"hyperpod job image {self.target.stack} --for {self.name} --build"
            raise bad_input(f"no public image has what {self.name} imports", f"{build}, then --image IMAGE")
        return self._asked(render.render)

    def submission(self) -> batch.Submission:
        """What Slurm is asked. Raises Failure where this stack cannot run it so."""
        return self._asked(batch.submission)

    def _asked(self, how: Callable[..., _Asked]) -> _Asked:
        try:
            return how(
                self.name, self.target.config, self.choices, deadline=self.deadline, job=self.job, files=self.files
            )
        except JobError as error:
            raise bad_input(str(error)) from None

    def show(self, as_json: bool) -> None:
        """Print what would be submitted."""
        if self.target.on_eks:
            objects = self.objects()
            if as_json:
                console.emit(objects)
            else:
                print(yaml.dump_all(objects, Dumper=_Manifests, sort_keys=False), end="")
            return
        asked = self.submission()
        if as_json:
            console.emit({"user": asked.user, "command": asked.command, "files": asked.files})
        else:
            console.say(f"# as {asked.user}, in a folder with {', '.join(asked.files)}")
            console.say(asked.command)


def run(wanted: Wanted, following: Following) -> None:
    """Submit a job and, unless told not to wait, follow it and say how it ended. Raises Failure where it failed."""
    keep, as_json = following.keep, following.as_json
    place: _Pods | _Queue = (_Pods if wanted.target.on_eks else _Queue)(wanted, following.kubeconfig_file)
    name, choices, stack = wanted.name, wanted.choices, wanted.target.stack
    place.submit()
    if not following.wait:
        console.prose(f"{name} is submitted: hyperpod job logs {stack} {place.handle} -f")
        return
    started = time.monotonic()
    say = (lambda line: console.note(line, "")) if as_json else console.say
    test = JOBS[name].deadline if name in JOBS else None
    limit = following.timeout or test or TIMEOUT_SECONDS
    try:
        with console.progress().status(f"{name}: submitted") as status:
            succeeded, lines = place.follow(say, lambda phase: status.update(f"{name}: {escape(phase)}"), limit)
    except job_run.TimedOut as error:
        # Training continues, as after Ctrl-C. A test that nobody waits for only occupies nodes.
        if test and not keep:
            place.take_away()
            error.hint = "it was deleted; --keep keeps it"
        else:
            goes_on = "it was kept" if test else "it continues"
            error.hint = f"{goes_on}; {place.more}; to end it: hyperpod job cancel {stack} {place.handle}"
        raise
    if not keep:
        place.ended()
    groups = {one.name: one for one in wanted.target.config.training_groups}
    workers = groups[choices.group] if choices.group else wanted.target.config.training_groups[0]
    nodes, seconds = choices.nodes or workers.count, time.monotonic() - started
    result = job_run.judge(name, place.namespace, workers, nodes, succeeded, lines, seconds)
    if as_json:
        console.emit(result)
    else:
        _show(result)
    if not result.passed:
        raise Failure(f"{name} failed: {'; '.join(result.reasons)}", f"hyperpod validate {stack}")


def _show(result: job_run.Result) -> None:
    for what, value in result.figures.items():
        console.say(f"{what}: {value:g}")
    console.say(
        f"{'PASS' if result.passed else 'FAIL'} after {result.seconds:.0f} s", "green" if result.passed else "red"
    )


class _Pods:
    """A job on Kubernetes. ``handle`` is what the other verbs know it by, ``more`` a command that says more of it."""

    def __init__(self, wanted: Wanted, kubeconfig_file: Path | None) -> None:
        self._wanted, self._objects = wanted, wanted.objects()
        self._api = api_of(wanted.target, kubeconfig_file)
        self.namespace: str | None = self._objects[-1]["metadata"]["namespace"]
        team = f" -n {self.namespace}" if wanted.choices.namespace else ""
        self.handle = f"{wanted.name}{team}"
        self.more = f"kubectl describe {self._objects[-1]['kind'].lower()} {wanted.name} -n {self.namespace}"

    def submit(self) -> None:
        pretrained = "--pretrained" in self._wanted.choices.arguments
        job_run.check(self._api, self._objects, self._wanted.target.config, pretrained=pretrained)
        job_run.submit(self._api, self._objects)
        if self._objects[-1]["metadata"].get("annotations") and not render.resumes(str(self.namespace)):
            console.note(
                "HyperPod resumes jobs only in namespaces whose name begins with hyperpod: in "
                f"{self.namespace} only the training operator starts their pods again"
            )

    def follow(self, say: job_run.OnLine, phase: job_run.OnPhase, limit: float) -> tuple[bool, list[str]]:
        return job_run.follow(self._api, self._objects, say, phase, limit)

    def take_away(self) -> None:
        for document in reversed(self._objects):
            self._api.delete(document)

    ended = take_away


class _Queue:
    """A job on Slurm. Its log stays where it is."""

    namespace: str | None = None

    def __init__(self, wanted: Wanted, kubeconfig_file: Path | None) -> None:
        self._job = wanted.submission()
        self._jobs = slurm_of(wanted.target, kubeconfig_file)
        self.handle = ""
        self.more = f"hyperpod job list {wanted.target.stack}"

    def submit(self) -> None:
        self.handle = self._jobs.submit(self._job)

    def follow(self, say: job_run.OnLine, phase: job_run.OnPhase, limit: float) -> tuple[bool, list[str]]:
        return self._jobs.follow(self.handle, say, phase, limit)

    def take_away(self) -> None:
        self._jobs.cancel(self.handle)

    def ended(self) -> None:
        """Do nothing: Slurm keeps no object of an ended job."""
