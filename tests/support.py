"""What the tests share: plans, deployments, and questions to ask of a graph of resources."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from components.common.names import ENTRY_POINT
from components.config import Config, parse
from operations.engine.state import ResourceState, State, members
from operations.project.loading import Project, load_project
from rehearsal.account import Account
from rehearsal.engines.deployment import Deployment, up
from tests.shared import made_once

ROOT = Path(__file__).parent.parent
READY_STACKS = ("dev", "slurm-gpu", "slurm-trainium", "eks-gpu", "eks-trainium")
VARIANTS = READY_STACKS[1:]
METRICS = {"prometheus": "create", "grafana": "create"}


def project(stack: str = "dev", **settings: Any) -> Project:
    """A ready stack with ``hyperpod`` keys laid over it; ``region`` sets aws:region."""
    overrides = []
    for key, value in settings.items():
        name = "aws:region" if key == "region" else f"hyperpod:{key}"
        overrides.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    return load_project(ROOT, stack, overrides)


def config(stack: str = "dev", **settings: Any) -> Config:
    """A checked configuration. Raises ConfigError."""
    return parse(project(stack, **settings).config)


def few_files() -> AbstractContextManager[object]:
    """Nodes get their entry point alone. The files are more than half of a stack; golden deployments have them all."""
    return patch("components.nodes.lifecycle_bucket.lifecycle_files", lambda folder: [folder / ENTRY_POINT])


def plan(stack: str = "dev", **settings: Any) -> Deployment:
    """What ``pulumi preview`` would say: every registration, outputs unknown, nothing created. Made once.

    With few files, which are in the golden deployments.
    """
    return _plan(stack, json.dumps(settings))


@cache
def _plan(stack: str, settings: str) -> Deployment:
    return made_once(f"plan {stack} {settings}", lambda: _make_plan(stack, settings))


def _make_plan(stack: str, settings: str) -> Deployment:
    loaded = project(stack, **json.loads(settings))
    with few_files():
        deployment = up(loaded, Account(loaded.config["aws:region"]), preview=True)
    assert not deployment.failure, deployment.failure
    return deployment


def one(state: State, name: str, kind: str = "") -> ResourceState:
    """The resource of that logical name; ``kind`` is the end of its type where a name is used twice."""
    found = [r for r in state.values() if r.name == name and r.type.endswith(kind)]
    assert len(found) == 1, f"{len(found)} resources are called {name} {kind}: {sorted(r.name for r in state.values())}"
    return found[0]


def of_type(state: State, kind: str) -> list[ResourceState]:
    """Every resource whose type ends so."""
    return [resource for resource in state.values() if resource.type.endswith(kind)]


def everything_before(state: State, resource: ResourceState) -> set[str]:
    """Names of all that a resource waits for, through any number of steps."""
    seen: set[str] = set()

    def visit(current: ResourceState) -> Iterator[ResourceState]:
        for urn in current.dependencies:
            if urn in state:
                yield from members(state, urn)

    pending = [resource]
    while pending:
        for before in visit(pending.pop()):
            if before.urn not in seen:
                seen.add(before.urn)
                pending.append(before)
    return {state[urn].name for urn in seen}
