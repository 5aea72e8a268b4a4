"""Somebody who deploys a stack into an account, with a backend of their own for Pulumi's state."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from components.config import Config
from operations.engine.data_resources import PRECIOUS
from operations.engine.durations import duration
from operations.engine.events import Event, Operation, name_of
from operations.engine.state import HYPERPOD_CLUSTER, State, deletion_order
from operations.project.loading import Project

from ..account import Account, Fault
from ..checks import require
from ..engines.deployment import OnEvent, deletion_seconds, destroy, discard, refresh, up
from ..existing import prepare


@dataclass
class Deployer:
    """``clock`` is the virtual second. ``changes``: the last update's, by URN."""

    project: Project
    account: Account
    state: State = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    clock: float = 0.0
    changes: dict[str, Operation] = field(default_factory=dict)

    def up(self, project: Project | None = None, *, until: int = 0) -> str:
        """Deploy, or update. Returns why it failed, or nothing. ``until``: interrupt after so many steps."""
        done = up(
            project or self.project,
            self.account,
            old=self.state,
            old_outputs=self.outputs,
            began=self.clock,
            **_interrupted(until),
        )
        self.state, self.changes = done.state, done.changes
        self.clock = max([self.clock, done.finish, *(one.finish for one in done.state.values())])
        if not done.failure:
            self.outputs = done.outputs
        return done.failure

    def settle(self) -> None:
        """What `hyperpod deploy` does first, after a failure: ask AWS, and delete what never worked."""
        broken = [urn for urn, one in self.state.items() if one.half_made]
        refresh(self.state, self.account)
        before = dict(self.state)
        failures = discard(self.state, self.account, broken)
        require(not failures, f"what failed cannot be deleted: {failures[:1]}")
        self._took(before)

    def nodes_come(self) -> None:
        """Give HyperPod the instances that it keeps requesting; they then boot."""
        if self.account.request_again():
            self.clock += duration(HYPERPOD_CLUSTER, {})

    def destroy(self, *, until: int = 0) -> list[str]:
        """Delete everything. Returns what could not be deleted. ``until``: interrupt after so many steps."""
        for one in self.state.values():
            one.protect = False
        before = dict(self.state)
        failures = destroy(self.state, self.account, **_interrupted(until))
        self._took(before)
        return failures

    def _took(self, before: State) -> None:
        """Let the time pass that the deletions since then take."""
        self.clock += deletion_seconds(deletion_order({k: v for k, v in before.items() if k not in self.state}))

    def drifted(self) -> list[str]:
        """What AWS has lost or has differently, by name. The state then equals AWS's."""
        return [f"{name_of(urn)} ({what})" for urn, what in refresh(self.state, self.account).items()]

    def holdings(self) -> dict[str, str]:
        """The ids of existing resources that hold data or work, by name."""
        return {
            one.name: one.id
            for one in self.state.values()
            if one.type in PRECIOUS and not one.half_made and (one.type, one.id) in self.account.live
        }

    def lost(self, before: dict[str, str]) -> list[str]:
        """Resources that held data and are gone or replaced."""
        now = self.holdings()
        return [f"{name} ({identifier})" for name, identifier in before.items() if now.get(name) != identifier]

    def settled(self) -> None:
        """Raise CheckFailed if a further update would change anything."""
        failure = self.up()
        changed = [f"{name_of(urn)} ({what})" for urn, what in self.changes.items()]
        require(not failure and not changed, failure or f"a further update changes {', '.join(changed)}")

    def leave(self) -> list[str]:
        """Destroy. Returns what is left."""
        return [*self.destroy(), *self.account.leftovers()]


def _interrupted(steps: int) -> dict[str, Any]:
    """Arguments of the engine that end it after so many steps; without a number, nothing does."""
    if not steps:
        return {}
    stop, done = threading.Event(), [0]

    def count(event: Event) -> None:
        done[0] += event.phase == "done"
        if done[0] >= steps:
            stop.set()

    on_event: OnEvent = count
    return {"stop": stop, "on_event": on_event}


@dataclass(frozen=True)
class Ground:
    """Where the account's drills are held: a stack's project and configuration."""

    project: Project
    config: Config

    @contextmanager
    def deployer(self, *faults: Fault, **quotas: int) -> Iterator[Deployer]:
        """A deployer in an account of their own, in which these faults strike. Quotas are by name."""
        with Account(self.config.region.name, faults=faults, quotas=quotas) as account:
            prepare(account, self.config)
            yield Deployer(self.project, account)

    def planned(self) -> State:
        """Every resource that a deployment would make."""
        plan = up(self.project, Account(self.config.region.name), preview=True)
        require(not plan.failure, plan.failure)
        return plan.state

    def tagged(self) -> Project:
        """The stack with one tag more: an update of everything that has tags."""
        key = f"{self.project.name}:tags"
        tags = {**json.loads(self.project.config[key]), "drill": "yes"}
        return replace(self.project, config={**self.project.config, key: json.dumps(tags)})
