"""One rehearsal from start to finish, and its result in the documented JSON form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.config import Config
from components.estimates import cost, quotas
from operations.engine.events import Event
from operations.engine.state import HYPERPOD_CLUSTER, SECRET, STACK_TYPE, ResourceState, critical_path
from operations.failures.advice import REHEARSE_AGAIN, Advice, about, next_step
from operations.project.loading import Project

from .account import Account
from .changes import Change, Deployed, Step, apply_steps
from .engines.deployment import Deployment, OnEvent, destroy, up
from .existing import prepare


@dataclass
class Outcome:
    """The result of a rehearsal. ``failures`` has those of `up`, then of `destroy`; a change has its own.

    ``failed`` are the events that tell them, each with its resource, which the state may not have.
    ``cluster_seconds``: the time until the HyperPod cluster is up. Later resources wait for nodes, which come then.
    """

    config: Config
    project: Project
    resources: list[dict[str, Any]] = field(default_factory=list)
    critical_path: list[ResourceState] = field(default_factory=list)
    total_seconds: float = 0.0
    cluster_seconds: float = 0.0
    outputs: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    failed: list[Event] = field(default_factory=list)
    created: int = 0
    destroyed: int = 0
    kept_up: bool = False
    retained: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    skipped: int = 0
    leftovers: list[str] = field(default_factory=list)

    @property
    def cluster_path(self) -> list[ResourceState]:
        """The part of the critical path until the HyperPod cluster is up."""
        return [one for one in self.critical_path if one.finish <= self.cluster_seconds]

    @property
    def after_cluster(self) -> list[ResourceState]:
        """The rest of the critical path: what waits for the nodes, such as queues whose controller runs on them."""
        return [one for one in self.critical_path if one.finish > self.cluster_seconds]

    @property
    def passed(self) -> bool:
        """Whether everything was created, changed and destroyed, and nothing is left."""
        return not self.failures and not self.leftovers and not self.refused

    @property
    def refused(self) -> Change | None:
        """The refused change, if any. No other change follows it."""
        return next((change for change in self.changes if change.refused is not None), None)

    @property
    def cause(self) -> str:
        """What failed or was refused first; empty if nothing was."""
        # A change is only made where `up` has not failed, and `destroy` comes after it.
        return str(self.refused.refused) if self.refused else self.failures[0] if self.failures else ""

    @property
    def known(self) -> Advice | None:
        """What the project knows of the cause; None for no cause."""
        return about(self.cause) if self.cause else None

    @property
    def next_step(self) -> str:
        """What to do about the cause; empty for none, and for a refusal that says it itself."""
        if not self.cause or (self.refused and self.refused.early):
            return ""
        return next_step(self.cause, self.project.stack, REHEARSE_AGAIN)

    def as_json(self) -> dict[str, Any]:
        """The documented form, plus what the report page needs."""
        return {
            "variant": self.config.variant,
            "title": self.config.title,
            "stack": self.project.stack,
            "region": self.config.region.name,
            "passed": self.passed,
            "cause": self.cause,
            "code": self.known.code if self.known else "",
            "more": self.known.more if self.known else "",
            "next_step": self.next_step,
            "resources": self.resources,
            "critical_path": [resource.name for resource in self.critical_path],
            "total_seconds": self.total_seconds,
            "cluster": {"seconds": self.cluster_seconds, "critical_path": [one.name for one in self.cluster_path]},
            "after_cluster": {
                "seconds": self.total_seconds - self.cluster_seconds,
                "critical_path": [one.name for one in self.after_cluster],
            },
            "cost": cost.estimate(self.config).as_json(),
            "quotas": [quota.as_json() for quota in quotas.needed(self.config)],
            "outputs": self.outputs,
            "warnings": self.warnings,
            "failures": self.failures,
            "failed": [event.resource.as_json() | {"operation": event.operation} for event in self.failed],
            "changes": [change.as_json() for change in self.changes],
            "destroyed": None if self.kept_up else self.destroyed,
            "retained": self.retained,
            "leftovers": self.leftovers,
        }


def rehearse(
    project: Project,
    config: Config,
    account: Account,
    *,
    then: Sequence[Step] = (),
    keep_up: bool = False,
    on_event: OnEvent = lambda event: None,
    on_act: Callable[[str, Outcome], None] = lambda act, outcome: None,
) -> Outcome:
    """Deploy, apply each change, destroy, and audit the account. Raises ProgramError.

    ``on_act`` is called with "up", "change", "destroy" and "audit" as each begins.
    """
    outcome = Outcome(config=config, project=project, kept_up=keep_up)

    def noted(event: Event) -> None:
        if event.phase == "failed":
            outcome.failed.append(event)
        on_event(event)

    prepare(account, config, *(step.config for step in then))
    on_act("up", outcome)
    deployment = up(project, account, on_event=noted)
    _describe(outcome, deployment)
    state = deployment.state
    if then and not deployment.failure:
        outcome.changes, deployed = apply_steps(
            then,
            Deployed(config, state, deployment.outputs),
            account,
            began=outcome.total_seconds,
            on_event=on_event,
            on_step=lambda step: on_act("change", outcome),
        )
        state = deployed.state
    outcome.skipped = len(then) - len(outcome.changes)
    if keep_up:
        return outcome
    on_act("destroy", outcome)
    for resource in state.values():
        if resource.retain and resource.in_account:
            outcome.retained.append(f"{resource.name} ({resource.id})")
        if resource.protect and resource.in_account:
            outcome.warnings.append(
                f"{resource.name} is protected: pulumi destroy refuses until hyperpod:protect is false"
            )
            resource.protect = False
    before = sum(resource.in_account for resource in state.values())
    outcome.failures += destroy(state, account, noted)
    outcome.destroyed = before - sum(resource.in_account for resource in state.values()) - len(outcome.retained)
    on_act("audit", outcome)
    outcome.leftovers = account.leftovers()
    return outcome


def _describe(outcome: Outcome, deployment: Deployment) -> None:
    shown = [resource for resource in deployment.state.values() if resource.type != STACK_TYPE]
    outcome.resources = [resource.as_json() for resource in shown]
    outcome.created = sum(resource.in_account for resource in shown)
    outcome.critical_path = critical_path(deployment.state)
    outcome.total_seconds = max((resource.finish for resource in shown), default=0.0)
    clusters = (resource.finish for resource in outcome.critical_path if resource.type == HYPERPOD_CLUSTER)
    outcome.cluster_seconds = max(clusters, default=outcome.total_seconds)
    outcome.outputs = {
        key: SECRET if key in deployment.secret_outputs else value for key, value in sorted(deployment.outputs.items())
    }
    outcome.warnings = list(deployment.warnings)
    if deployment.failure:
        outcome.failures = [*deployment.earlier, deployment.failure]
