"""The real Pulumi engine against the embedded account: preview, up, an empty preview, refresh, another, destroy, audit.

The program, its project file and the CLI are the real ones; only the providers are the account's. The state is in a
temporary folder, and the checkout stays unchanged.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pulumi import automation

from components.kubernetes.charts import UNVERIFIED, UNVERIFIED_VARIABLE
from operations.engine.events import Event
from operations.engine.pulumi_cli import Command, CommandRun, InterruptibleCommand, OnEvent, last_words, run_command
from operations.engine.state import SECRET
from operations.failures import cannot_know
from operations.project.loading import Project

from ..account import Account
from ..processes import is_plugin, with_variable
from .provider import PACKAGES, serve

OnLine = Callable[[str], None]
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


@dataclass(frozen=True)
class Surroundings:
    """The environment of a stack on the real engine.

    ``packages``: the packages whose provider is the account; others are plugins, on PATH or in Pulumi's plugin folder.
    ``links``: what to link into the project's folder, by relative path. ``path``: folders to put first on PATH.
    """

    packages: Sequence[str] = PACKAGES
    links: Mapping[str, Path] = field(default_factory=dict)
    path: Sequence[Path] = ()


class EngineFailure(Exception):
    """The engine stopped. The text names each failed resource and the cause, or is the program's own message."""


@dataclass
class RealRun:
    """The result of a rehearsal on the real engine.

    ``counts`` has, by command, how many resources it created, changed, kept and deleted; ``seconds`` how long it took.
    ``state`` is the stack's stored state after `up`, with its secrets encrypted.
    """

    outputs: dict[str, Any] = field(default_factory=dict)
    secret_outputs: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    failure: str = ""
    counts: dict[str, Counts] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """What failed and what is left; empty where all is well."""
        return [*filter(None, [self.failure]), *(f"left over: {leftover}" for leftover in self.leftovers)]

    def as_json(self) -> dict[str, Any]:
        """The documented form, without the state."""
        keys = ("warnings", "counts", "seconds", "leftovers")
        return {key: getattr(self, key) for key in keys} | {
            "engine": "pulumi",
            "passed": not self.problems,
            "outputs": {key: SECRET if key in self.secret_outputs else one for key, one in self.outputs.items()},
            "failures": [self.failure] if self.failure else [],
        }


def rehearse_on_real_engine(project: Project, account: Account, on_line: OnLine) -> RealRun:
    """Deploy and destroy the project with `pulumi`. Failures are in the result, except a missing CLI (Failure)."""
    if shutil.which("pulumi") is None:
        raise cannot_know(NO_CLI)
    run = RealRun()
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
    later: tuple[tuple[str, Command], ...] = (
        ("second preview", "preview"),
        ("second up", "up"),
        ("refresh", "refresh"),
        ("refreshed preview", "preview"),
    )
    for name, command in later:
        _note(run, name, stack, command)
        stack.require_unchanged(name)


def _note(run: RealRun, name: str, stack: RealStack, command: Command) -> None:
    started = time.monotonic()
    try:
        stack.run(command)
    finally:
        run.counts[name], run.seconds[name] = stack.counts, time.monotonic() - started
    stack.on_line(f"{name}: {_sentence(run.counts[name])} in {run.seconds[name]:.0f} s")


def _sentence(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {operation}" for operation, number in sorted(counts.items())) or "nothing to do"


class RealStack:
    """One stack on the real engine, while ``real_stack`` lasts. ``cli`` can be interrupted."""

    def __init__(
        self, stack: automation.Stack, cli: InterruptibleCommand, backend: Path, account: Account, on_line: OnLine
    ) -> None:
        self.stack, self.cli, self.on_line = stack, cli, on_line
        self._backend, self._account = backend, account
        self.last = CommandRun()

    @property
    def counts(self) -> Counts:
        """The number of resources per operation in the last command."""
        return self.last.counts

    @property
    def changed(self) -> list[str]:
        """The operations of the last command that changed something."""
        return self.last.changed

    @property
    def warnings(self) -> list[str]:
        """The last command's warnings."""
        return self.last.warnings

    def run(self, command: Command) -> Counts:
        """Run one command and announce it. Returns the counts. Raises EngineFailure with every cause."""

        def tell(event: Event) -> None:
            if event.phase == "done" and command != "preview":
                operation = _DONE.get(event.operation, event.operation)
                self.on_line(f"  {operation} {event.resource.name} ({event.resource.type})")

        run = self.execute(command, tell)
        if run.failed:
            raise EngineFailure("\n".join(str(cause) for cause in run.causes) or "cancelled")
        return run.counts

    def require_unchanged(self, name: str) -> None:
        """Raise EngineFailure if the last command, ``name``, changed something or would have."""
        if changes := {op: n for op, n in self.counts.items() if op != "same"}:
            raise EngineFailure(f"{name}: nothing should change, but {_sentence(changes)}: {', '.join(self.changed)}")

    def execute(self, command: Command, on_event: OnEvent) -> CommandRun:
        """Run one command, even if the deployment fails. Raises EngineFailure if the CLI itself cannot continue."""
        if command == "destroy":
            self._keep_retained()
        self.last = CommandRun()
        try:
            self.last = run_command(self.stack, command, on_event)
        except automation.CommandError as error:
            raise EngineFailure(last_words(str(error))) from None
        return self.last

    def outputs(self) -> tuple[dict[str, Any], set[str]]:
        """The stack's outputs, and which of them are secret."""
        found = self.stack.outputs()
        return {key: one.value for key, one in found.items()}, {key for key, one in found.items() if one.secret}

    def state(self) -> dict[str, Any]:
        """The stack's state as stored in the backend, with its secrets encrypted."""
        files = list(self._backend.glob(f".pulumi/stacks/*/{self.stack.name}.json"))
        return dict(json.loads(files[0].read_text())["checkpoint"]["latest"] or {}) if files else {}

    def _keep_retained(self) -> None:
        """Mark resources retained on delete as kept, since the engine drops them without telling the provider."""
        for resource in self.state().get("resources", []):
            if resource.get("retainOnDelete") and (resource["type"], resource.get("id")) in self._account.live:
                self._account.keep(resource["type"], resource["id"])


@dataclass(frozen=True)
class Place:
    """A stack's place on the real engine: the environment that `pulumi` needs, and its folders."""

    environment: Mapping[str, str]
    project: Path
    home: Path
    backend: Path


@contextmanager
def place(project: Project, account: Account, around: Surroundings | None = None) -> Iterator[Place]:
    """A temporary backend, home and mirror of the project, with the account as the providers."""
    around = around or Surroundings()
    with (
        tempfile.TemporaryDirectory(prefix="rehearsal-") as scratch,
        serve(account, project.folder, around.packages) as providers,
    ):
        backend, home, folder = (Path(scratch) / name for name in ("backend", "home", "project"))
        for path in (backend, home, folder):
            path.mkdir()
        if plugins_folder().is_dir():
            (home / "plugins").symlink_to(plugins_folder())
        _mirror(project, folder, around.links)
        environment = {
            **providers,
            "PATH": os.pathsep.join([*map(str, around.path), os.environ.get("PATH", os.defpath)]),
            "PULUMI_BACKEND_URL": backend.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": secrets.token_urlsafe(),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # Plugins that are not attached are installed. A missing one must not be downloaded.
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PYTHONDONTWRITEBYTECODE": "1",
            UNVERIFIED_VARIABLE: UNVERIFIED,
        }
        try:
            yield Place(environment, folder, home, backend)
        finally:
            _end_plugins(home)


@contextmanager
def real_stack(
    project: Project, account: Account, on_line: OnLine, around: Surroundings | None = None
) -> Iterator[RealStack]:
    """A new stack of the project in a separate backend, with the account as its providers."""
    with place(project, account, around) as at:
        try:
            cli = InterruptibleCommand()
            stack = automation.create_stack(
                stack_name=project.stack,
                work_dir=str(at.project),
                opts=automation.LocalWorkspaceOptions(
                    env_vars=dict(at.environment), pulumi_home=str(at.home), pulumi_command=cli
                ),
            )
        except (automation.CommandError, automation.InvalidVersionError) as error:
            raise EngineFailure(last_words(str(error))) from None
        yield RealStack(stack, cli, at.backend, account, on_line)


def _end_plugins(home: Path) -> None:
    """End the plugins that an interrupted CLI left behind.

    A shell that sourced the environment, and all that it runs, has this PULUMI_HOME, too: these are somebody's.
    """
    for pid in filter(is_plugin, with_variable("PULUMI_HOME", str(home))):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def plugins_folder() -> Path:
    """Where Pulumi installs plugins."""
    return Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi") / "plugins"


def _mirror(project: Project, folder: Path, links: Mapping[str, Path]) -> None:
    """The project as links, with copies of files that the CLI writes: `stack init` adds a salt to the stack file."""
    replaced = {Path(name).parts[0] for name in links}
    for entry in project.folder.iterdir():
        if not entry.name.startswith((".", "Pulumi.")) and entry.name not in replaced:
            (folder / entry.name).symlink_to(entry.resolve())
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target.resolve())
    document = yaml.safe_load((project.folder / "Pulumi.yaml").read_text())
    if sys.prefix != sys.base_prefix:
        # The current environment has what the program needs, wherever the project's own is.
        document["runtime"] = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    config = {"config": _typed(project.config, document.get("config") or {}, project.name)}
    (folder / f"Pulumi.{project.stack}.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def _typed(config: Mapping[str, str], schema: Mapping[str, Any], project: str) -> dict[str, Any]:
    """Configuration as in a stack file, with lists and objects as such, by the project's own schema."""
    types = {key if ":" in key else f"{project}:{key}": entry.get("type") for key, entry in schema.items()}
    structured = ("array", "object", "integer", "boolean")
    return {key: yaml.safe_load(text) if types.get(key) in structured else text for key, text in config.items()}
