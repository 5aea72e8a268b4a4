"""Up, preview and destroy on the embedded engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .account import Account
from .account.kinds import Refused
from .engine import CANCELLED, DeploymentError, Engine
from .events import Event, Operation
from .program import run_program
from .project import Project
from .state import ResourceState, State, deletion_order

OnEvent = Callable[[Event], None]


@dataclass
class Deployment:
    """What a run of the program left behind: its resources, outputs, warnings, and what was done to each resource."""

    state: State = field(default_factory=dict)
    outputs: dict[str, object] = field(default_factory=dict)
    secret_outputs: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    failure: str = ""

    @property
    def changes(self) -> dict[str, Operation]:
        """The operations that change something."""
        return {urn: operation for urn, operation in self.operations.items() if operation != "same"}


def up(
    project: Project,
    account: Account,
    *,
    old: Mapping[str, ResourceState] | None = None,
    preview: bool = False,
    on_event: OnEvent = lambda event: None,
    stop: threading.Event | None = None,
) -> Deployment:
    """Run the program and make the account what it says; with ``preview`` only say what would be done.

    A failed deployment is returned with ``failure`` set and the state as far as it got. Raises ProgramError.
    """
    engine = Engine(
        account, project=project.name, stack=project.stack, old=old, preview=preview, on_event=on_event, stop=stop
    )
    result = Deployment(state=engine.state, operations=engine.operations)
    try:
        result.warnings = run_program(project, engine)
        gone = {urn: resource for urn, resource in engine.old.items() if urn not in engine.state}
        for urn in gone:
            engine.operations[urn] = "delete"
        if not preview:
            _delete_replaced(engine, gone, on_event)
    except DeploymentError as error:
        result.failure = str(error)
        # What the program did not come to say is still there.
        for urn, resource in engine.old.items():
            engine.state.setdefault(urn, resource)
    result.outputs, result.secret_outputs = engine.outputs, engine.secret_outputs
    return result


def _delete_replaced(engine: Engine, gone: State, on_event: OnEvent) -> None:
    """Delete what was replaced and what the program no longer has, after everything new is there."""
    doomed: State = {f"{resource.urn}#replaced": resource for resource in engine.replaced} | gone
    if failures := _delete(engine.account, deletion_order(doomed), on_event):
        raise DeploymentError(failures[0])


def destroy(
    state: State,
    account: Account,
    on_event: OnEvent = lambda event: None,
    stop: threading.Event | None = None,
) -> list[str]:
    """Delete everything in reverse order of dependency. Returns what could not be deleted, and leaves it in ``state``.

    As the real engine, it refuses to begin while a resource is protected.
    """
    protected = [resource for resource in state.values() if resource.protect and resource.in_account]
    if protected:
        return [
            f"{resource.name} ({resource.type}) is protected; set hyperpod:protect to false first"
            for resource in protected
        ]
    return _delete(account, deletion_order(state), on_event, state, stop)


def _delete(
    account: Account,
    order: list[ResourceState],
    on_event: OnEvent,
    state: State | None = None,
    stop: threading.Event | None = None,
) -> list[str]:
    failures: list[str] = []
    needed: set[str] = set()
    going = {resource.urn for resource in order}
    for resource in order:
        if stop is not None and stop.is_set():
            return [*failures, CANCELLED]
        if resource.urn in needed:
            needed |= set(resource.dependencies)
            continue
        # What goes with another is not deleted by itself, as the real engine has it.
        if resource.in_account and resource.deleted_with not in going:
            failure = _delete_one(account, resource, on_event)
            if failure:
                failures.append(failure)
                needed |= set(resource.dependencies)
                continue
        if state is not None:
            state.pop(resource.urn, None)
    return failures


def _delete_one(account: Account, resource: ResourceState, on_event: OnEvent) -> str:
    if resource.retain:
        account.keep(resource.type, resource.id)
        return ""
    on_event(Event("start", "delete", resource))
    try:
        account.delete(resource.type, resource.id)
    except Refused as refused:
        on_event(Event("failed", "delete", resource, str(refused)))
        return f"{resource.name} ({resource.type}): delete failed: {refused}"
    on_event(Event("done", "delete", resource))
    return ""
