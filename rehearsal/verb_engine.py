"""``--rehearse``: the same verbs in an AWS account embedded in this process, with the Pulumi CLI if installed."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from operations.deployment.engines import Engine, HalfMade, PulumiEngine, half_made
from operations.engine.inputs import changed
from operations.engine.pulumi_cli import Cause, Command, CommandRun, OnEvent
from operations.engine.state import SECRET
from operations.target import Target

if TYPE_CHECKING:
    from rehearsal.account import Account
    from rehearsal.engines.real import RealStack


@contextmanager
def rehearsed(target: Target, *, fail: Sequence[str] = ()) -> Iterator[tuple[Engine, Account]]:
    """An engine for the stack in its own embedded account, which boto3 clients reach as long as it is open.

    ``fail`` makes resources fail, like ``hyperpod rehearse --fail``.
    """
    from rehearsal.account import Account
    from rehearsal.engines.real import real_stack
    from rehearsal.existing import prepare
    from rehearsal.injected import injected

    faults, _ = injected(fail, (), (target.project, target.config))
    with Account(target.config.region.name, faults=faults) as account:
        prepare(account, target.config)
        if shutil.which("pulumi") is None:
            yield EmbeddedEngine(target, account), account
            return
        with real_stack(target.project, account, lambda line: None) as stack:
            yield RehearsedCli(stack, account), account


class RehearsedCli(PulumiEngine):
    """The real CLI, with its state in a temporary folder and the embedded account behind its providers."""

    on_aws = False

    def __init__(self, stack: RealStack, account: Account) -> None:
        super().__init__(stack.stack, stack.cli)
        self.title += ", in an AWS account embedded in this process"
        self._real, self._account = stack, account

    def execute(self, command: Command, on_event: OnEvent) -> CommandRun:
        """Run a command; the account must hear of what the engine keeps without a word."""
        run = self._real.execute(command, on_event)
        if command == "up":
            run.warnings += self._account.awaited()
            run.causes[:0] = map(_cause, self._account.failed_scripts() if run.failed else [])
        return run


class EmbeddedEngine:
    """The embedded engine, for machines without the CLI. The stack's state lasts as long as this object."""

    def __init__(self, target: Target, account: Account) -> None:
        self.title = "the embedded engine (no Pulumi CLI on PATH), in an AWS account embedded in this process"
        self._project, self._account = target.project, account
        self._before = target.project
        self._state: dict[str, Any] = {}
        self._raw: dict[str, Any] = {}
        self._secret: set[str] = set()
        # The virtual second at which the next command begins.
        self._now = 0.0
        self._stop = threading.Event()

    def execute(self, command: Command, on_event: OnEvent) -> CommandRun:
        """Run a command."""
        began = time.monotonic()
        self._stop.clear()
        run = {"preview": self._preview, "up": self._up, "destroy": self._destroy, "refresh": self._refresh}[command](
            on_event
        )
        run.seconds = time.monotonic() - began
        return run

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs, secret ones masked."""
        return {key: SECRET if key in self._secret else value for key, value in sorted(self._raw.items())}

    def cancel(self) -> None:
        """Start nothing more."""
        self._stop.set()

    def configure(self, values: Mapping[str, str]) -> None:
        """Change the program's configuration: values by path, as for `pulumi config set --path`."""
        config = dict(self._project.config)
        for path, value in values.items():
            key, _, rest = path.partition("[")
            items = json.loads(config.get(key, "[]"))
            place, _, member = rest.partition("].")
            items += [{} for _ in range(int(place) + 1 - len(items))]
            items[int(place)][member] = int(value) if value.isdigit() else value
            config[key] = json.dumps(items)
        self._project = replace(self._project, config=config)

    def restore(self) -> None:
        """Undo ``configure``."""
        self._project = self._before

    def _preview(self, on_event: OnEvent) -> CommandRun:
        return self._deploy(on_event, preview=True)

    def _up(self, on_event: OnEvent) -> CommandRun:
        return self._deploy(on_event, preview=False)

    def _deploy(self, on_event: OnEvent, *, preview: bool) -> CommandRun:
        from rehearsal.engines.deployment import up
        from rehearsal.engines.program import ProgramError

        before = self._state
        try:
            deployment = up(
                self._project,
                self._account,
                old=self._state,
                old_outputs=self._raw,
                preview=preview,
                began=self._now,
                on_event=on_event,
                stop=self._stop,
            )
        except ProgramError as refused:
            return CommandRun(causes=[Cause(text=str(refused))], failed=True)
        if not preview:
            self._state = deployment.state
            # Like Pulumi, which does not keep a failed update's outputs.
            if not deployment.failure:
                self._raw, self._secret = deployment.outputs, deployment.secret_outputs
        run = CommandRun(warnings=deployment.warnings)
        run.counts = dict(Counter(str(operation) for operation in deployment.operations.values()))
        if not preview:
            ended = max([self._now, deployment.finish, *(one.finish for one in deployment.state.values())])
            run.predicted_seconds, self._now = ended - self._now, ended
        for urn, operation in deployment.changes.items():
            new, old = deployment.state.get(urn), before.get(urn)
            secrets = (new.secrets if new else frozenset()) | (old.secrets if old else frozenset())
            differing = changed(old.inputs, new.inputs, secrets) if old and new else {}
            run.note_change(urn, operation, parent=new.parent if new else old.parent if old else "", inputs=differing)
        self._fail(run, [*deployment.earlier, deployment.failure] if deployment.failure else [])
        return run

    def _refresh(self, _: OnEvent) -> CommandRun:
        from rehearsal.engines.deployment import refresh

        found = refresh(self._state, self._account)
        run = CommandRun(counts={"same": len(self._state), **Counter(found.values())})
        for urn, operation in found.items():
            run.note_change(urn, operation)
        return run

    def unsure(self) -> list[str]:
        """The resources whose last update failed."""
        return [resource.name for resource in self._state.values() if resource.unsure]

    def half_made(self) -> list[HalfMade]:
        """The resources whose creation failed late."""
        return [
            found
            for one in self._state.values()
            if one.in_account
            for found in half_made(one.urn, one.outputs, untouched=one.half_made)
        ]

    def discard(self, urns: Sequence[str], on_event: OnEvent) -> CommandRun:
        """Delete these resources and what depends on them."""
        from rehearsal.engines.deployment import discard

        return self._delete(lambda: discard(self._state, self._account, urns, on_event, self._stop))

    def _destroy(self, on_event: OnEvent) -> CommandRun:
        from rehearsal.engines.deployment import destroy

        return self._delete(lambda: destroy(self._state, self._account, on_event, self._stop))

    def _delete(self, act: Callable[[], list[str]]) -> CommandRun:
        before = sum(resource.in_account for resource in self._state.values())
        failures = act()
        run = CommandRun(counts={"delete": before - sum(r.in_account for r in self._state.values())})
        self._fail(run, failures)
        return run

    def _fail(self, run: CommandRun, failures: list[str]) -> None:
        """The embedded engine's failures begin with the resource's name and type."""
        from rehearsal.engines.embedded import CANCELLED

        run.failed = bool(failures)
        run.cancelled = CANCELLED in failures
        for text in failures:
            if text != CANCELLED:
                run.causes.append(_cause(text))


def _cause(text: str) -> Cause:
    title, _, cause = text.partition("): ")
    cause = cause.split(" failed: ", 1)[-1]
    name, separator, kind = title.partition(" (")
    return Cause(text=cause, resource=name, type=kind) if separator and cause else Cause(text=text)
