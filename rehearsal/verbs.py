"""The verbs that the rehearsal adds to ``hyperpod``, and what ``deploy --rehearse`` gets from it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from operations.cli import add_verb
from operations.deployment import bench
from operations.deployment.engines import Engine
from operations.target import Target
from operations.terminal.command_line import Verbs, add, new_app

from .commands import CANNOT_RUN, deployment, drill, eks, nodes
from .commands.policy import policy_command


class _Commands(Verbs):
    """The commands, of which ``deployment`` need not be named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``deployment`` first where there is no command."""
        named = args and args[0] in {*self.commands, "-h", "--help"}
        return super().parse_args(ctx, args if named else ["deployment", *args])


app = new_app(deployment.EPILOG, _Commands)
add(app, "deployment", deployment.deployment_command, epilog=deployment.EPILOG)
add(app, "nodes", nodes.nodes_command, epilog=CANNOT_RUN)
add(app, "eks", eks.eks_command, epilog=CANNOT_RUN)
add(app, "drill", drill.drill_command, epilog=drill.EPILOG)


@app.callback()
def _introduction() -> None:
    """Rehearse a stack on this machine, without an AWS account.

    \b
      hyperpod rehearse dev              its deployment (or: deployment dev)
      hyperpod rehearse nodes dev        its nodes, with a real Slurm
      hyperpod rehearse eks eks-gpu      its objects, in a real Kubernetes API
      hyperpod rehearse drill dev        what happens when something breaks
    """


@cache
def join() -> None:
    """Add the verbs, once."""
    add_verb("The first day", "rehearse", app)
    add_verb("Plan", "policy", policy_command)
    bench.supply(_rehearsed)


def _rehearsed(target: Target, *, fail: Sequence[str] = ()) -> AbstractContextManager[tuple[Engine, bench.Account]]:
    from .verb_engine import rehearsed

    return rehearsed(target, fail=fail)
