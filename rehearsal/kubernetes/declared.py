"""The stack's objects from the embedded engine's state, applied to the API server in the program's order."""

import json
from dataclasses import dataclass, replace

from components.config import Config
from operations.project.loading import Project

from .control_plane import ControlPlane
from .deploy import Deployer, DeployFailed
from .karpenter import arrive, depart
from .kubectl import Manifest
from .objects import Plan, plan


class StackFailed(Exception):
    """The stack did not come up in the embedded account."""


def declare(project: Project, config: Config) -> Plan:
    """Everything that the program declares for Kubernetes, and what it changes when the file system grows.

    Raises StackFailed.
    """
    # The account takes a second to load. Saying what a machine lacks does not need it.
    from ..account import Account
    from ..engines.deployment import up
    from ..engines.program import ProgramError
    from ..existing import prepare

    try:
        with Account(config.region.name) as account:
            prepare(account, config)
            first = up(project, account)
            if first.failure:
                raise StackFailed(f"the stack did not come up: {first.failure}")
            fsx = config.settings.fsx.model_dump(by_alias=True, exclude_unset=True)
            # Twice a valid FSx size is valid too.
            grown = json.dumps({**fsx, "storageGiB": 2 * config.fsx_gib})
            later = up(replace(project, config={**project.config, "hyperpod:fsx": grown}), account, old=first.state)
            if later.failure:
                raise StackFailed(f"the file system did not grow: {later.failure}")
    except ProgramError as refused:
        raise StackFailed(str(refused)) from refused
    before, after = plan(first.state), plan(later.state)
    known = {step.name: step for step in before.steps}
    return replace(before, grown=tuple(step for step in after.steps if step != known.get(step.name)))


@dataclass(frozen=True)
class Declared:
    """Applies the declared objects to the API server and deletes them again, like pulumi-kubernetes."""

    plane: ControlPlane
    config: Config
    plan: Plan
    deployer: Deployer

    def bring_up(self) -> int:
        """Apply everything in the program's order, nodes included. Returns the object count. Raises DeployFailed."""
        self.deployer.apply(self.plan.before_nodes)
        if not arrive(self.plane, self.config):
            raise DeployFailed("not every node became ready")
        self.deployer.apply(self.plan.after_nodes)
        return self.deployer.count(self.plan.steps)

    def take_down(self) -> list[str]:
        """Delete everything in Pulumi's order: what needs nodes, the nodes, the rest. Returns the errors."""
        problems = self.deployer.remove(self.plan.after_nodes)
        depart(self.plane, self.config)
        return problems + self.deployer.remove(self.plan.before_nodes)

    def kept(self) -> list[Manifest]:
        """Objects that may remain after ``take_down`` until the cluster is deleted."""
        return self.deployer.kept(self.plan.steps)
