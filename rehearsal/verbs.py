"""The verbs that the rehearsal adds to ``hyperpod``, and what ``deploy --rehearse`` gets from it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache

from operations.cli import add_verb
from operations.deployment import bench
from operations.deployment.engines import Engine
from operations.target import Target

from .cli import app
from .commands.policy import policy_command


@cache
def join() -> None:
    """Add them, once."""
    add_verb("The first day", "rehearse", app)
    add_verb("Plan", "policy", policy_command)
    bench.supply(_rehearsed)


def _rehearsed(target: Target, *, fail: Sequence[str] = ()) -> AbstractContextManager[tuple[Engine, bench.Account]]:
    from .verb_engine import rehearsed

    return rehearsed(target, fail=fail)
