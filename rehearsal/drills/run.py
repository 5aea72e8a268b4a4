"""Choose the drills, hold them one after the other, and say which this machine cannot hold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.config import Config
from operations.failures import bad_input
from operations.project.loading import Project

from ..nodes import requirements
from . import account, drift, kubernetes
from .deployer import Ground
from .model import Drill, Result
from .nodes import DRILLS, NodeDrills

IN_ACCOUNT: tuple[Drill[Ground], ...] = (*account.DRILLS, *drift.DRILLS)
ON_NODES = DRILLS
ON_KUBERNETES = kubernetes.DRILLS
EVERY: tuple[Drill[Any], ...] = (*IN_ACCOUNT, *ON_KUBERNETES, *ON_NODES)
OnStart = Callable[[Drill[Any]], None]
OnEnd = Callable[[Result], None]


@dataclass
class Outcome:
    """The results, and the drills that were not held, with the reason."""

    results: list[Result] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether all drills passed that were held, and any was."""
        return bool(self.results) and all(result.passed for result in self.results)

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        return {
            "drills": [result.as_json() for result in self.results],
            "not_run": [{"name": name, "why": why} for name, why in self.not_run.items()],
        }


def chosen(names: Sequence[str]) -> set[str]:
    """The names of the drills to hold: these, or all. Raises Failure for a name that no drill has."""
    known = [drill.name for drill in EVERY]
    if unknown := [name for name in names if name not in known]:
        raise bad_input(f"there is no drill {', '.join(unknown)}; there are {', '.join(known)}")
    return set(names or known)


def run(
    project: Project,
    config: Config,
    names: set[str],
    on_start: OnStart = lambda drill: None,
    on_end: OnEnd = lambda result: None,
) -> Outcome:
    """Hold the drills of these names on a stack."""
    outcome = Outcome()

    def end(result: Result) -> None:
        outcome.results.append(result)
        on_end(result)

    ground = Ground(project, config)
    for drill in IN_ACCOUNT:
        if drill.name in names and (why := drill.unfit(config)):
            outcome.not_run[drill.name] = why
        elif drill.name in names:
            on_start(drill)
            end(drill.run(ground, project.stack))
    for of_jobs in ON_KUBERNETES:
        if of_jobs.name in names and (why := kubernetes.lacking(config) or of_jobs.unfit(config)):
            outcome.not_run[of_jobs.name] = why
        elif of_jobs.name in names:
            on_start(of_jobs)
            end(of_jobs.run(project, project.stack))
    wanted = [drill for drill in ON_NODES if drill.name in names]
    if why := _no_nodes(config) if wanted else "":
        outcome.not_run |= {drill.name: why for drill in wanted}
        return outcome
    outcome.not_run |= {drill.name: why for drill in wanted if (why := drill.unfit(config))}
    if wanted := [drill for drill in wanted if drill.name not in outcome.not_run]:
        NodeDrills(project, config, on_start, end).hold(wanted)
    return outcome


def of_kubernetes(config: Config, names: set[str]) -> bool:
    """Whether any of these drills runs operators, which need a network of their own: they listen on fixed ports."""
    possible = [drill for drill in ON_KUBERNETES if drill.name in names and not drill.unfit(config)]
    return bool(possible) and not kubernetes.lacking(config)


def _no_nodes(config: Config) -> str:
    """Why no node can be drilled here."""
    if config.settings.orchestrator != "slurm":
        return "the simulated nodes are Slurm's, and this stack runs EKS"
    lacking = requirements.missing()
    return f"this machine lacks: {'; '.join(line.strip() for line in lacking)}" if lacking else ""
