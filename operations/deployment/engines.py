"""The Pulumi CLI, found or installed, and a stack on it through the Automation API."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, TypeVar

import typer
from pulumi import automation

from ..engine.data_resources import PRECIOUS
from ..engine.events import name_of, type_of
from ..engine.pulumi_cli import Command, CommandRun, InterruptibleCommand, OnEvent, run_command
from ..engine.state import HYPERPOD_CLUSTER, SECRET
from ..failures import Failure, cannot_know
from ..target import Target
from ..terminal import console

T = TypeVar("T")
_PACKAGES = ("aws", "aws-native", "eks", "kubernetes")
# How AWS says that a creation failed (SageMaker API Reference, DescribeCluster; Amazon EKS API Reference, Cluster).
_FAILED = {HYPERPOD_CLUSTER: ("clusterStatus", "Failed"), "aws:eks/cluster:Cluster": ("status", "FAILED")}


@dataclass(frozen=True)
class HalfMade:
    """A resource that does not work: its creation failed and nothing has changed it since (``untouched``), or AWS calls
    it failed.
    """

    urn: str
    untouched: bool

    @property
    def name(self) -> str:
        """Its logical name."""
        return name_of(self.urn)

    @property
    def precious(self) -> bool:
        """Whether it may hold data: it may have become available after Pulumi had stopped waiting."""
        return type_of(self.urn) in PRECIOUS


def half_made(urn: str, outputs: Mapping[str, Any], *, untouched: bool) -> list[HalfMade]:
    """A resource if it is half-made, by its outputs and by whether its creation failed and nothing changed it since."""
    key, failed = _FAILED.get(type_of(urn), ("", ""))
    return [HalfMade(urn, untouched)] if untouched or (key and outputs.get(key) == failed) else []


class Engine(Protocol):
    """One stack on one engine. ``title`` names the engine for people."""

    title: str

    def execute(self, command: Command, on_event: OnEvent) -> CommandRun:
        """Run a command until it ends or is cancelled."""
        ...

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs, secret ones masked."""
        ...

    def unsure(self) -> list[str]:
        """The resources whose last update failed; the state may have their desired values, not the actual ones."""
        ...

    def half_made(self) -> list[HalfMade]:
        """The resources whose creation failed after AWS had accepted it, so that they exist and do not work."""
        ...

    def discard(self, urns: Sequence[str], on_event: OnEvent) -> CommandRun:
        """Delete these resources and what depends on them, also where they are protected."""
        ...

    def cancel(self) -> None:
        """Finish what is in progress and start nothing more."""
        ...

    def configure(self, values: Mapping[str, str]) -> None:
        """Change the stack's configuration: values by path, like ``hyperpod:workers[0].count``."""
        ...

    def restore(self) -> None:
        """Undo ``configure``."""
        ...


class PulumiEngine:
    """A stack of the Pulumi CLI. ``on_aws``: AWS itself answers its providers."""

    on_aws = True

    def __init__(self, stack: automation.Stack, cli: InterruptibleCommand) -> None:
        self.title = f"Pulumi {cli.version}"
        self._stack, self._cli = stack, cli
        self._before: str | None = None

    def execute(self, command: Command, on_event: OnEvent) -> CommandRun:
        """Run a command. Raises CommandError only if the CLI cannot run at all."""
        return run_command(self._stack, command, on_event)

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs, secret ones masked."""
        found = self._stack.outputs()
        return {key: SECRET if one.secret else one.value for key, one in sorted(found.items())}

    def unsure(self) -> list[str]:
        """The resources whose last update failed: Pulumi keeps what the provider said then."""
        return [name_of(one["urn"]) for one in self._resources() if one.get("initErrors")]

    def half_made(self) -> list[HalfMade]:
        """The resources whose creation failed late: Pulumi notes the same time for creation and last change."""
        return [
            found
            for one in self._resources()
            for found in half_made(
                one["urn"],
                one.get("outputs") or {},
                untouched=bool(one.get("initErrors")) and one.get("created") == one.get("modified"),
            )
        ]

    def discard(self, urns: Sequence[str], on_event: OnEvent) -> CommandRun:
        """Delete these resources and what depends on them."""
        for urn in urns:
            self._cli.run(
                ["state", "unprotect", urn, "--yes", "--stack", self._stack.name],
                str(self._stack.workspace.work_dir),
                self._stack.workspace.env_vars,
            )
        return run_command(self._stack, "destroy", on_event, only=urns)

    def _resources(self) -> list[dict[str, Any]]:
        return (self._stack.export_stack().deployment or {}).get("resources") or []

    def cancel(self) -> None:
        """Interrupt the CLI; a second call interrupts it again."""
        self._cli.interrupt()

    @property
    def _file(self) -> Path:
        return Path(str(self._stack.workspace.work_dir)) / f"Pulumi.{self._stack.name}.yaml"

    def configure(self, values: Mapping[str, str]) -> None:
        """Change the stack's file, as `pulumi config set --path` does."""
        self._before = self._file.read_text()
        self._stack.set_all_config({key: automation.ConfigValue(value) for key, value in values.items()}, path=True)

    def restore(self) -> None:
        """Restore the stack's file."""
        if self._before is not None:
            self._file.write_text(self._before)


def find_cli() -> Path | None:
    """The folder above the CLI's ``bin``: from PATH, else where `PulumiCommand.install` puts the SDK's version."""
    if found := shutil.which("pulumi"):
        return Path(found).parent.parent
    installed = Path.home() / ".pulumi" / "versions" / metadata.version("pulumi")
    return installed if os.access(installed / "bin" / "pulumi", os.X_OK) else None


def open_cli(*, install: bool = False) -> InterruptibleCommand:
    """The CLI. A missing one is installed with ``install`` or after a confirmation; otherwise raises Failure."""
    if shutil.which("pulumi"):
        return InterruptibleCommand()
    root = find_cli()
    if root is None:
        if not install:
            _offer()
        root = _install()
    return InterruptibleCommand(root=str(root))


def _offer() -> None:
    missing = cannot_know(
        "there is no Pulumi CLI on this machine",
        "add --install-cli (installs it in ~/.pulumi), or see https://www.pulumi.com/docs/install/, or try --rehearse",
    )
    if not sys.stdin.isatty():
        raise missing
    console.note("There is no Pulumi CLI on this machine.")
    if not typer.confirm(f"Install version {metadata.version('pulumi')} under ~/.pulumi?", err=True):
        raise missing


def _install() -> Path:
    console.note(f"Installing the Pulumi CLI {metadata.version('pulumi')} ...")
    try:
        automation.PulumiCommand.install()
    except (OSError, subprocess.CalledProcessError) as error:
        raise cannot_know(
            f"the Pulumi CLI could not be installed: {error}",
            "check the network and proxy, or install it by hand: https://www.pulumi.com/docs/install/",
        ) from error
    root = find_cli()
    if root is None:
        raise Failure("the Pulumi CLI's installer succeeded, but the CLI is still missing")
    return root


def open_stack(target: Target, *, create: bool, install_cli: bool = False) -> PulumiEngine:
    """The stack in Pulumi's backend, with its plugins installed. With ``create``, a new stack is created."""
    cli = open_cli(install=install_cli)
    options = automation.LocalWorkspaceOptions(pulumi_command=cli, env_vars={"PULUMI_SKIP_UPDATE_CHECK": "true"})
    choose = automation.create_or_select_stack if create else automation.select_stack
    stack = choose(stack_name=target.stack, work_dir=str(target.project.folder), opts=options)
    # A provider that runs already, as one of a served rehearsal, needs no plugin.
    attached = {one.partition(":")[0] for one in os.environ.get("PULUMI_DEBUG_PROVIDERS", "").split(",")}
    for package in _PACKAGES:
        if package not in attached:
            stack.workspace.install_plugin(package, f"v{metadata.version(f'pulumi-{package}')}")
    return PulumiEngine(stack, cli)


def attend(work: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Do the work and turn Ctrl-C or SIGTERM into ``cancel``, after which the work ends by itself.

    This includes background jobs, which shells start with Ctrl-C ignored. Signals reach only the main thread: on any
    other thread the work just runs.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    stops = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in stops}
    try:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            while True:
                try:
                    return future.result()
                except KeyboardInterrupt:
                    console.note(
                        "Cancelling: finishing what is in progress. Press Ctrl-C again to abandon it.", "yellow"
                    )
                    cancel()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
