"""Up, preview and destroy on the embedded engine."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from operations.engine.durations import delete_duration
from operations.engine.events import Event, Operation
from operations.engine.state import ResourceState, State, deletion_order
from operations.project.loading import Project

from ..account import Account, Refused
from .embedded import CANCELLED, DeploymentError, Engine, comparable
from .program import ProgramError, run_program

OnEvent = Callable[[Event], None]


@dataclass
class Deployment:
    """The result of running the program: resources, outputs, warnings, and the operation on each resource.

    ``earlier``: what had failed before ``failure``, which the engine does not hear of.
    ``finish`` is the virtual second at which everything was done, deletions included; ``deletions`` has when each of
    them begins and ends, by URN.
    """

    state: State = field(default_factory=dict)
    outputs: dict[str, object] = field(default_factory=dict)
    secret_outputs: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    failure: str = ""
    earlier: list[str] = field(default_factory=list)
    finish: float = 0.0
    deletions: dict[str, tuple[float, float]] = field(default_factory=dict)

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
    began: float = 0.0,
    old_outputs: Mapping[str, Any] | None = None,
    on_event: OnEvent = lambda event: None,
    stop: threading.Event | None = None,
) -> Deployment:
    """Run the program and bring the account to the declared state. With ``preview``, only say what would change.

    ``began`` is the virtual second at which this begins, ``old_outputs`` are the last deployment's outputs. A failed
    deployment is returned with ``failure`` set and the state that it reached. Raises ProgramError where the program
    stops itself before it has registered a resource.
    """
    engine = Engine(
        account,
        project=project.name,
        stack=project.stack,
        old=old,
        preview=preview,
        began=began,
        old_outputs=old_outputs,
        on_event=on_event,
        stop=stop,
    )
    result = Deployment(state=engine.state, operations=engine.operations)
    try:
        run_program(project, engine, result.warnings)
        _end_old(engine, result, on_event)
    except (DeploymentError, ProgramError) as error:
        if isinstance(error, ProgramError) and not any(resource.in_account for resource in engine.state.values()):
            raise
        result.failure = str(error)
        # Resources that the program did not get to register still exist, and so do those that were to be replaced.
        for urn, resource in engine.old.items():
            if urn not in engine.made_way:
                engine.state.setdefault(urn, resource)
        _keep(engine.state, engine.replaced)
    result.outputs, result.secret_outputs = engine.outputs, engine.secret_outputs
    if not preview:
        result.warnings += account.awaited()
        result.earlier = account.failed_scripts() if result.failure else []
    return result


def refresh(state: State, account: Account) -> dict[str, Operation]:
    """Update the state from the account. Returns the differences by URN."""
    found: dict[str, Operation] = {}
    for key, resource in list(state.items()):
        if not resource.in_account:
            continue
        live = account.live.get((resource.type, resource.id))
        if live is None:
            del state[key]
            found[resource.urn] = "delete"
            continue
        inputs = account.refreshed(resource.type, resource.id, resource.inputs)
        changed = comparable(resource.inputs) != comparable(inputs)
        if changed:
            found[resource.urn] = "update"
        if resource.unsure or changed:
            resource.inputs, resource.outputs = inputs, dict(live.outputs)
            resource.unsure = resource.half_made = False
    return found


def dependents(state: State, urns: Iterable[str]) -> State:
    """The part of a state that has these resources and everything that depends on them."""
    found = {urn: state[urn] for urn in urns if urn in state}
    # In the order of the state every resource follows its dependencies.
    for key, resource in state.items():
        if found.keys() & {*resource.dependencies, resource.parent}:
            found[key] = resource
    return found


def discard(
    state: State,
    account: Account,
    urns: Iterable[str],
    on_event: OnEvent = lambda event: None,
    stop: threading.Event | None = None,
) -> list[str]:
    """Delete these resources and what depends on them, also where they are protected. Returns what stays, and why."""
    doomed = dependents(state, urns)
    for resource in doomed.values():
        resource.protect = False
    going = set(doomed)
    failures = destroy(doomed, account, on_event, stop)
    for key in going - doomed.keys():
        del state[key]
    return failures


def _end_old(engine: Engine, result: Deployment, on_event: OnEvent) -> None:
    """Delete replaced resources and those no longer in the program, once everything new exists."""
    gone = [resource for urn, resource in engine.old.items() if urn not in engine.state]
    for resource in gone:
        engine.operations[resource.urn] = "delete"
        if resource.protect and resource.in_account:
            raise DeploymentError(f"{resource.name} ({resource.type}): delete failed: it is protected")
    if engine.preview:
        return
    # In the order of the old state, in which every resource follows its dependencies.
    doomed = {urn: one for urn, one in engine.old.items() if one in gone or one in engine.replaced}
    up_at = max((resource.finish for resource in engine.state.values()), default=engine.began)
    engine.replaced.clear()
    order = deletion_order(doomed)
    failures = _delete(engine.account, order, on_event, doomed)
    begins = max(up_at, engine.began)
    result.deletions = {urn: (begins + start, begins + end) for urn, (start, end) in deletion_times(order).items()}
    result.finish = max((end for _, end in result.deletions.values()), default=begins)
    if failures:
        _keep(engine.state, doomed.values())
        raise DeploymentError(failures[0])


def _keep(state: State, resources: Iterable[ResourceState]) -> None:
    """Keep resources that could not be deleted in the state, beside their replacements, under separate keys."""
    for resource in resources:
        state[f"{resource.urn}#old" if resource.urn in state else resource.urn] = resource


def deletion_times(order: Sequence[ResourceState]) -> dict[str, tuple[float, float]]:
    """When each deletion begins and ends: it waits for its dependents, and independent ones run in parallel."""
    times: dict[str, tuple[float, float]] = {}
    for resource in order:
        after = max(
            (times[one.urn][1] for one in order if one.urn in times and resource.urn in one.dependencies), default=0.0
        )
        times[resource.urn] = (after, after + (delete_duration(resource.type) if resource.in_account else 0.0))
    return times


def deletion_seconds(order: Sequence[ResourceState]) -> float:
    """How long all these deletions take."""
    return max((end for _, end in deletion_times(order).values()), default=0.0)


def destroy(
    state: State,
    account: Account,
    on_event: OnEvent = lambda event: None,
    stop: threading.Event | None = None,
) -> list[str]:
    """Delete everything in reverse dependency order. Returns what could not be deleted; that stays in ``state``.

    Like the real engine, it refuses to begin while a resource is protected.
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
    keys = {id(resource): key for key, resource in (state or {}).items()}
    times = deletion_times(order)
    account.leaving = {(resource.type, resource.id): times[resource.urn] for resource in order}
    for resource in order:
        if stop is not None and stop.is_set():
            return [*failures, CANCELLED]
        if resource.urn in needed:
            needed |= set(resource.dependencies)
            continue
        # Like the real engine: a resource with deletedWith is not deleted separately.
        if resource.in_account and resource.deleted_with not in going:
            failure = _delete_one(account, resource, on_event)
            if failure:
                failures.append(failure)
                needed |= set(resource.dependencies)
                continue
        if state is not None:
            state.pop(keys[id(resource)], None)
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
