"""One command of the Pulumi CLI, through the Automation API: its events, what failed first, and how to stop it."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from pulumi import automation
from pulumi.automation.errors import create_command_error

from . import events
from .events import Event
from .inputs import changed
from .state import STACK_TYPE

Command = Literal["preview", "up", "refresh", "destroy"]
OnEvent = Callable[[Event], None]
# Messages that follow the cause; a component's connection closes when one of its children fails.
_SAYS_NOTHING = re.compile(
    r"^(update|preview|destroy|refresh) (failed|canceled)|program exited with non-zero"
    r"|[Rr]esource monitor (shut down|has terminated)|the client connection is closing$"
)

# How long an interrupted command may finish what is in progress, and how long it may take to abandon it.
_FINISHES_SECONDS, _ABANDONS_SECONDS = 60.0, 10.0


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why something failed. ``resource`` is a logical name, empty if the program or the engine itself failed."""

    text: str
    resource: str = ""
    type: str = ""

    def __str__(self) -> str:
        return f"{self.resource} ({self.type}): {self.text}" if self.resource else self.text


@dataclass
class CommandRun:
    """What a command came to. ``causes`` are in the order in which they were heard: the first is the root.

    ``predicted_seconds`` is how long AWS would take, 0 where only a clock measures.
    ``ended``: the type of each resource that is deleted, and ``replaced`` those of them that come anew.
    ``components`` has the names of what changes, by component and operation, and ``inputs`` what changes of it.
    """

    counts: dict[str, int] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    components: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    inputs: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    replaced: list[str] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    predicted_seconds: float = 0.0
    failed: bool = False
    cancelled: bool = False

    def note_change(
        self, urn: str, operation: str, parent: str = "", inputs: Mapping[str, tuple[str, str]] | None = None
    ) -> None:
        """One change, as an engine announces it. ``inputs`` are those that differ (operations/engine/inputs.py)."""
        name = events.name_of(urn)
        self.changed.append(f"{name} ({operation})")
        component = events.name_of(parent) if parent and events.type_of(parent) != STACK_TYPE else ""
        self.components.setdefault(component, {}).setdefault(operation, []).append(name)
        if inputs:
            self.inputs[f"{name} ({events.type_of(urn)})"] = dict(inputs)
        if operation in ("replace", "delete"):
            self.ended[name] = events.type_of(urn)
        if operation == "replace":
            self.replaced.append(name)


class InterruptibleCommand(automation.PulumiCommand):
    """The CLI in its own process group, so that Ctrl-C reaches it only once and from here.

    Its first SIGINT makes the engine finish what is in progress and stop; a second one abandons it.
    """

    def __init__(self, root: str | None = None) -> None:
        super().__init__(root=root)
        self._running: subprocess.Popen[str] | None = None
        self.interrupted = False

    def interrupt(self) -> None:
        """Ask the command that runs now to stop."""
        self.interrupted = True
        if self._running and self._running.poll() is None:
            self._running.send_signal(signal.SIGINT)

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: Callable[[str], Any] | None = None,
        on_error: Callable[[str], Any] | None = None,
    ) -> automation.CommandResult:
        """As the base class does, but for the process group. Where the caller is interrupted, the command is ended."""
        environment = {**os.environ, **additional_env, "PULUMI_AUTOMATION_API": "true"}
        if (program := Path(self.command)).is_absolute():
            # The language hosts lie beside it.
            environment["PATH"] = os.pathsep.join([str(program.parent), environment.get("PATH", "")])
        with subprocess.Popen(
            [self.command, "--non-interactive", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
            encoding="utf-8",
            process_group=0,
        ) as process:
            try:
                self._running = process
                assert process.stdout is not None
                assert process.stderr is not None
                readers = [_Lines(process.stdout, on_output), _Lines(process.stderr, on_error)]
                for reader in readers:
                    reader.join()
                code = process.wait()
            except BaseException:
                # Whoever is interrupted while waiting would otherwise wait to the end.
                self.interrupt()
                _end(process)
                raise
        out, err = ("\n".join(reader.lines) for reader in readers)
        result = automation.CommandResult(stdout=out, stderr=err, code=code)
        if code != 0:
            raise create_command_error(result)
        return result


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for a command that was asked to stop; ask again, and then no longer, where it does not."""
    try:
        process.wait(_FINISHES_SECONDS)
    except BaseException as impatient:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_ABANDONS_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        if not isinstance(impatient, subprocess.TimeoutExpired):
            raise


class _Lines(threading.Thread):
    """Reads a stream to its end."""

    def __init__(self, stream: IO[str], hear: Callable[[str], Any] | None) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self._stream, self._hear = stream, hear
        self.start()

    def run(self) -> None:
        for line in self._stream:
            self.lines.append(line.rstrip())
            if self._hear:
                self._hear(line.rstrip())


def run_command(
    stack: automation.Stack, command: Command, on_event: OnEvent = lambda event: None, *, only: Sequence[str] = ()
) -> CommandRun:
    """Run a command to its end, on ``only`` these URNs and what depends on them if there are any.

    What fails is in the result; only a CLI that cannot run at all raises CommandError.
    """
    run, began = CommandRun(), time.monotonic()
    pulumi = stack.workspace.pulumi_command
    if isinstance(pulumi, InterruptibleCommand):
        pulumi.interrupted = False

    def hear(event: Any) -> None:
        if event.summary_event:
            run.counts.update({events.text(op): n for op, n in event.summary_event.resource_changes.items()})
        if event.diagnostic_event:
            note(run, event.diagnostic_event)
        if (step := event.resource_pre_event) and _announces(step.metadata):
            _note_change(run, step.metadata)
        if (heard := events.from_automation(event)) is not None:
            on_event(heard)

    try:
        targets = {"target": list(only), "target_dependents": True} if only else {}
        getattr(stack, command)(on_event=hear, color="never", suppress_progress=True, **targets)
    except automation.CommandError:
        run.failed = True
        run.cancelled = isinstance(pulumi, InterruptibleCommand) and pulumi.interrupted
        if not run.causes and not run.cancelled:
            raise
    run.causes = list(dict.fromkeys(run.causes))
    run.seconds = time.monotonic() - began
    return run


def _note_change(run: CommandRun, metadata: Any) -> None:
    old, new = metadata.old, metadata.new
    differing = changed(old.inputs or {}, new.inputs or {}, said=metadata.diffs or ()) if old and new else {}
    run.note_change(
        metadata.urn, events.text(metadata.op), ((new or old).parent or "") if new or old else "", differing
    )


def _announces(metadata: Any) -> bool:
    return events.text(metadata.op) == "replace" or (
        events.changes(metadata) and events.text(metadata.op) in ("create", "update", "delete")
    )


def note(run: CommandRun, diagnostic: Any) -> None:
    """Add an engine's diagnostic to what a command came to, unless it only follows a cause."""
    message = str(diagnostic.message).strip().removeprefix(f"{diagnostic.severity}: ")
    if diagnostic.severity == "warning":
        run.warnings.append(message)
    elif diagnostic.severity == "error" and not _SAYS_NOTHING.search(message):
        urn = diagnostic.urn or ""
        own = not urn or events.type_of(urn) == STACK_TYPE
        run.causes.append(
            Cause(text=message) if own else Cause(text=message, resource=events.name_of(urn), type=events.type_of(urn))
        )


def last_words(text: str) -> str:
    """The end of the CLI's output, for failures without an event."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error:", "stderr: error:"))]
    return [*lines, *errors][-1].split("error: ", 1)[-1] if lines else "it said nothing"
