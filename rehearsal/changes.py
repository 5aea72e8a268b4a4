"""Updates of a deployed stack: what each creates, updates, replaces and deletes, and which are refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from components.config import Config
from components.estimates import cost
from components.estimates.amounts import difference
from operations.engine.data_resources import PRECIOUS
from operations.engine.events import Event, Operation
from operations.engine.state import State
from operations.project.loading import Project, checked, load_project, parse_override
from operations.project.stack_file import ProjectError

from .account import Account
from .engines.deployment import Deployment, OnEvent, up
from .engines.program import ProgramError


@dataclass(frozen=True)
class Step:
    """A further update: the keys that it sets, and the resulting configuration."""

    set: Mapping[str, Any]
    project: Project
    config: Config


@dataclass(frozen=True)
class Deployed:
    """A deployed stack."""

    config: Config
    state: State
    outputs: Mapping[str, Any]


@dataclass
class Change:
    """The result of one update. The lists have logical names; ``seconds`` is how long AWS takes.

    ``refused`` is why the update was refused, ``early`` whether that was known before anything changed. ``hourly_usd``
    is the price difference, None if a price is unknown. ``lost`` names the data that is lost. ``resources`` are the
    changed ones with their components, in the documented form, with the operation, and with times from its beginning.
    """

    set: Mapping[str, Any]
    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    refused: str | None = None
    early: bool = False
    seconds: float = 0.0
    hourly_usd: float | None = 0.0
    lost: dict[str, str] = field(default_factory=dict)
    resources: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        keys = ("set", "created", "updated", "replaced", "deleted", "lost", "refused", "early", "seconds", "resources")
        return {key: getattr(self, key) for key in keys} | {
            "hourly_usd": None if self.hourly_usd is None else round(self.hourly_usd, 4)
        }


def parse_steps(folder: Path, stack: str, overrides: Sequence[str], then: Sequence[Sequence[str]]) -> list[Step]:
    """The updates, each on top of the previous ones. Raises ProjectError or ConfigError for the first bad one."""
    steps, settings = [], list(overrides)
    for texts in then:
        pairs = [parse_override(text, "--then") for text in texts]
        settings += texts
        project = load_project(folder, stack, settings)
        if unknown := [key for key, _ in pairs if ":" in key and not key.startswith(("aws:", f"{project.name}:"))]:
            raise ProjectError(f"--then {unknown[0]}: keys of the program begin with {project.name}: or aws:")
        given = {key.removeprefix(f"{project.name}:"): value for key, value in pairs}
        steps.append(Step(given, project, checked(project)))
    return steps


def step_to(folder: Path, stack: str, other: str) -> Step:
    """The update of a stack to what another one's file says, as when its own file gets that content.

    Raises ProjectError or ConfigError.
    """
    before, after = load_project(folder, stack), load_project(folder, other)
    keys = sorted(before.config.keys() | after.config.keys())
    differing = {key: after.config.get(key) for key in keys if before.config.get(key) != after.config.get(key)}
    given = {key.removeprefix(f"{after.name}:"): value for key, value in differing.items()}
    return Step(given, replace(after, stack=stack), checked(after))


def apply_steps(
    steps: Sequence[Step],
    before: Deployed,
    account: Account,
    *,
    began: float,
    on_event: OnEvent = lambda event: None,
    on_step: Callable[[Step], None] = lambda step: None,
) -> tuple[list[Change], Deployed]:
    """Apply the updates in order until one is refused. Returns their results and the final deployment."""
    changes: list[Change] = []
    for step in steps:
        on_step(step)
        change, before = apply_step(step, before, account, began=began, on_event=on_event)
        changes.append(change)
        if change.refused is not None:
            break
        began += change.seconds
    return changes, before


def apply_step(
    step: Step,
    before: Deployed,
    account: Account,
    *,
    began: float,
    on_event: OnEvent = lambda event: None,
) -> tuple[Change, Deployed]:
    """Preview one update and, if the preview succeeds, apply it, starting at the virtual second ``began``."""
    change = Change(step.set)
    try:
        planned = up(step.project, account, old=before.state, old_outputs=before.outputs, preview=True, began=began)
    except ProgramError as refused:
        change.refused, change.early = str(refused), True
        return change, before
    if planned.failure:
        change.refused, change.early = planned.failure, True
        _name(change, planned.operations, before.state)
        return change, before
    failed: dict[str, str] = {}

    def noted(event: Event) -> None:
        if event.phase == "failed":
            failed[event.resource.urn] = event.operation
        on_event(event)

    done = up(step.project, account, old=before.state, old_outputs=before.outputs, began=began, on_event=noted)
    _name(change, done.operations, {**before.state, **done.state})
    change.resources = _timed(done, {**before.state, **done.state}, failed, began)
    finishes = [resource.finish for resource in done.state.values()]
    change.seconds = max([began, done.finish, *finishes]) - began
    if done.failure:
        change.refused = done.failure
        # Like Pulumi, which does not keep a failed update's outputs.
        return change, replace(before, state=done.state)
    change.hourly_usd = difference(cost.estimate(before.config), cost.estimate(step.config))
    return change, Deployed(step.config, done.state, done.outputs)


def _timed(done: Deployment, state: State, failed: Mapping[str, str], began: float) -> list[dict[str, Any]]:
    """The changed resources and the components around them, with times from the change's beginning."""
    shown: dict[str, dict[str, Any]] = {}
    for urn, operation in done.changes.items():
        if (one := state.get(urn)) is None or not one.in_account:
            continue
        start, finish = (
            done.deletions.get(urn, (one.start, one.finish)) if operation == "delete" else (one.start, one.finish)
        )
        times = {"start": max(start - began, 0.0), "finish": max(finish - began, 0.0)}
        shown[urn] = one.as_json() | times | {"operation": operation, "failed": failed.get(urn, "")}
        while one.parent in state and one.parent not in shown:
            one = state[one.parent]
            shown[one.urn] = one.as_json()
    return list(shown.values())


def _name(change: Change, operations: Mapping[str, Operation], state: State) -> None:
    """Sort the operations into the change's lists, each name once."""
    lists = {
        "create": change.created,
        "update": change.updated,
        "replace": change.replaced,
        "delete": change.deleted,
    }
    for urn, operation in sorted(operations.items()):
        resource = state.get(urn)
        if resource is None or not resource.in_account or operation == "same":
            continue
        if resource.name not in lists[operation]:
            lists[operation].append(resource.name)
        if operation in ("replace", "delete") and resource.type in PRECIOUS:
            change.lost[resource.name] = PRECIOUS[resource.type].what
