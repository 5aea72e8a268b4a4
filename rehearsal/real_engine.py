"""The real Pulumi engine against the embedded account: preview, up, nothing left to do, refresh, destroy, audit.

The program, its project file and the CLI are the real ones; only the providers are the account's. State lives in a
temporary folder, and the checkout is not written to.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from .account import Account
from .project import Project
from .provider import serve
from .state import PROVIDER_PREFIX, STACK_TYPE

if TYPE_CHECKING:
    from pulumi import automation

OnLine = Callable[[str], None]
Command = Literal["preview", "up", "refresh", "destroy"]
Counts = dict[str, int]

NO_CLI = (
    "there is no `pulumi` on PATH: install the Pulumi CLI (https://www.pulumi.com/docs/install/), or leave out --engine"
)
_DONE = {
    "create": "created",
    "update": "updated",
    "delete": "deleted",
    "create-replacement": "created instead",
    "delete-replaced": "deleted the old",
    "discard-replaced": "gave up the old",
}
# What the CLI says when it has already said why; a component's connection goes when one of its children fails.
_SAYS_NOTHING = re.compile(
    r"^(update|preview|destroy|refresh) failed|program exited with non-zero|the client connection is closing$"
    r"|resource monitor shut down"
)


class EngineFailure(Exception):
    """The engine stopped; the text names each resource that failed and the cause, or is the program's own message."""


@dataclass
class RealRun:
    """What a rehearsal on the real engine came to.

    ``counts`` has for each command, by name, how many resources it created, changed, kept and deleted; ``seconds``
    how long it took. ``state`` is the stack's state after `up` as it is stored, its secrets encrypted.
    """

    outputs: dict[str, Any] = field(default_factory=dict)
    secret_outputs: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    failure: str = ""
    counts: dict[str, Counts] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)


def rehearse_on_real_engine(project: Project, account: Account, on_line: OnLine) -> RealRun:
    """Run the project up and down with `pulumi`. Whatever goes wrong is in the result, not raised."""
    run = RealRun()
    if shutil.which("pulumi") is None:
        run.failure = NO_CLI
        return run
    try:
        with real_stack(project, account, on_line) as stack:
            try:
                _up(stack, run)
            except EngineFailure as failure:
                run.failure = str(failure)
            if stack.state().get("resources"):
                _note(run, "destroy", stack, "destroy")
    except EngineFailure as failure:
        run.failure = "\n".join(filter(None, (run.failure, str(failure))))
    run.leftovers = account.leftovers()
    return run


def _up(stack: RealStack, run: RealRun) -> None:
    _note(run, "preview", stack, "preview")
    _note(run, "up", stack, "up")
    run.outputs, run.secret_outputs = stack.outputs()
    run.state, run.warnings = stack.state(), stack.warnings
    for name, command in (("second preview", "preview"), ("second up", "up"), ("refresh", "refresh")):
        counts = _note(run, name, stack, command)  # type: ignore[arg-type]
        if changes := {op: n for op, n in counts.items() if op != "same"}:
            raise EngineFailure(f"{name}: nothing should change, but {_sentence(changes)}: {', '.join(stack.changed)}")


def _note(run: RealRun, name: str, stack: RealStack, command: Command) -> Counts:
    started = time.monotonic()
    try:
        stack.run(command)
    finally:
        run.counts[name], run.seconds[name] = stack.counts, time.monotonic() - started
    stack.on_line(f"{name}: {_sentence(run.counts[name])} in {run.seconds[name]:.0f} s")
    return run.counts[name]


def _sentence(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {operation}" for operation, number in sorted(counts.items())) or "nothing to do"


class RealStack:
    """One stack on the real engine, while ``real_stack`` lasts."""

    def __init__(self, stack: automation.Stack, backend: Path, account: Account, on_line: OnLine) -> None:
        self._stack, self._backend, self._account, self.on_line = stack, backend, account, on_line
        self.counts: Counts = {}
        self._failures: list[str] = []
        self.changed: list[str] = []
        self.warnings: list[str] = []

    def run(self, command: Command) -> Counts:
        """Run one command. Returns how many resources each operation was for; raises EngineFailure."""
        from pulumi import automation

        counts: Counts = {}
        self.counts, self._failures, self.changed, self.warnings = counts, [], [], []

        def on_event(event: Any) -> None:
            if event.summary_event:
                counts.update({_text(op): n for op, n in event.summary_event.resource_changes.items()})
            self._hear(event, quiet=command == "preview")

        if command == "destroy":
            self._keep_retained()
        try:
            getattr(self._stack, command)(on_event=on_event, color="never", suppress_progress=True)
        except automation.CommandError as error:
            raise EngineFailure("\n".join(dict.fromkeys(self._failures)) or _last_words(str(error))) from None
        return counts

    def outputs(self) -> tuple[dict[str, Any], set[str]]:
        """The stack's outputs, and which of them are secret."""
        found = self._stack.outputs()
        return {key: one.value for key, one in found.items()}, {key for key, one in found.items() if one.secret}

    def state(self) -> dict[str, Any]:
        """The stack's state as it lies in the backend, its secrets encrypted."""
        files = list(self._backend.glob(f".pulumi/stacks/*/{self._stack.name}.json"))
        return dict(json.loads(files[0].read_text())["checkpoint"]["latest"] or {}) if files else {}

    def _hear(self, event: Any, *, quiet: bool) -> None:
        """Collect what failed and what changed, and say what was done."""
        if diagnostic := event.diagnostic_event:
            if diagnostic.severity == "error" and not _SAYS_NOTHING.search(_message(diagnostic)):
                self._failures.append(f"{_title(diagnostic.urn or '')}{_message(diagnostic)}")
            elif diagnostic.severity == "warning":
                self.warnings.append(_message(diagnostic))
            return
        step = event.resource_pre_event or event.res_outputs_event
        if step is None or not _counts(step.metadata):
            return
        operation, name = _text(step.metadata.op), step.metadata.urn.split("::", 3)[3]
        if event.resource_pre_event:
            # Of a replacement, the engine announces its parts as well.
            if operation in ("create", "update", "replace", "delete"):
                self.changed.append(f"{name} ({operation})")
        elif not quiet:
            self.on_line(f"  {_DONE.get(operation, operation)} {name} ({step.metadata.type})")

    def _keep_retained(self) -> None:
        """The engine forgets what is retained on delete without a word to its provider."""
        for resource in self.state().get("resources", []):
            if resource.get("retainOnDelete") and (resource["type"], resource.get("id")) in self._account.live:
                self._account.keep(resource["type"], resource["id"])


def _counts(metadata: Any) -> bool:
    """Whether a step is about a resource that the account has, and changes it."""
    custom = metadata.type != STACK_TYPE and not metadata.type.startswith(PROVIDER_PREFIX) and metadata.provider
    return bool(custom) and _text(metadata.op) not in ("same", "refresh", "read")


def _text(operation: Any) -> str:
    return str(getattr(operation, "value", operation))


def _title(urn: str) -> str:
    """The resource that a message is about; nothing where it is the program's own."""
    if not urn:
        return ""
    type_token, name = urn.split("::", 3)[2].rsplit("$", 1)[-1], urn.split("::", 3)[3]
    return "" if type_token == STACK_TYPE else f"{name} ({type_token}): "


def _message(diagnostic: Any) -> str:
    """The text of a message, without the severity that it begins with."""
    return str(diagnostic.message).strip().removeprefix(f"{diagnostic.severity}: ")


def _last_words(text: str) -> str:
    """What the CLI said at the end, where no event says it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(
        (line for line in reversed(lines) if line.startswith("error:")), lines[-1] if lines else "pulumi failed"
    )


@contextmanager
def real_stack(project: Project, account: Account, on_line: OnLine) -> Iterator[RealStack]:
    """A new stack of the project, in a backend of its own, whose providers are the account."""
    from pulumi import automation

    with tempfile.TemporaryDirectory(prefix="rehearsal-") as scratch, serve(account, project.folder) as providers:
        backend, home, folder = (Path(scratch) / name for name in ("backend", "home", "project"))
        for path in (backend, home, folder):
            path.mkdir()
        _mirror(project, folder)
        environment = {
            **providers,
            "PULUMI_BACKEND_URL": backend.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": secrets.token_urlsafe(),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # All providers are attached; a missing one must not be fetched.
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            stack = automation.create_stack(
                stack_name=project.stack,
                work_dir=str(folder),
                opts=automation.LocalWorkspaceOptions(env_vars=environment, pulumi_home=str(home)),
            )
        except (automation.CommandError, automation.InvalidVersionError) as error:
            raise EngineFailure(_last_words(str(error))) from None
        yield RealStack(stack, backend, account, on_line)


def _mirror(project: Project, folder: Path) -> None:
    """The project as links, with its own copy of what the CLI writes to: `stack init` adds a salt to the stack file."""
    for entry in project.folder.iterdir():
        if not entry.name.startswith((".", "Pulumi.")):
            (folder / entry.name).symlink_to(entry.resolve())
    document = yaml.safe_load((project.folder / "Pulumi.yaml").read_text())
    if sys.prefix != sys.base_prefix:
        # The environment that runs this has what the program needs, wherever the project's own is.
        document["runtime"] = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    config = {"config": _typed(project.config, document.get("config") or {}, project.name)}
    (folder / f"Pulumi.{project.stack}.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def _typed(config: Mapping[str, str], schema: Mapping[str, Any], project: str) -> dict[str, Any]:
    """Configuration as a stack's file has it: lists and objects as such, by the project's own schema."""
    types = {key if ":" in key else f"{project}:{key}": entry.get("type") for key, entry in schema.items()}
    structured = ("array", "object", "integer", "boolean")
    return {key: yaml.safe_load(text) if types.get(key) in structured else text for key, text in config.items()}
