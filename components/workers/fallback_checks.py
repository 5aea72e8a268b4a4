"""Checks of groups with several instance types. Every rule yields its own problems.

AWS mixes any types in a flexible instance group. Here all nodes of a group look alike to a job, which fits on each.
"""

from collections.abc import Callable, Iterator, Mapping

from ..catalogue.accelerators import CATALOGUE, InstanceType
from ..schema.problems import Problem
from .keys import MAX_TYPES, ClusterKeys, WorkerGroup

# The facts on which jobs rely, by the words of a problem.
_ALIKE: Mapping[str, Callable[[InstanceType], object]] = {
    "kind of accelerator": lambda row: row.accelerator or "none",
    "number of accelerators": lambda row: row.accelerators,
    "number of NeuronCores": lambda row: row.neuron_cores,
    "architecture": lambda row: row.architecture,
    "network transport": lambda row: row.transport,
    "number of threads in a core": lambda row: row.threads_per_core,
}


def fallback_problems(settings: ClusterKeys, *, continuous: bool, governed: bool) -> Iterator[Problem]:
    """Yield every problem of groups with several types. ``continuous``: how nodes come; ``governed``: SageMaker's task
    governance has the queues.

    SageMaker Developer Guide, "Continuous provisioning for enhanced cluster operations on Amazon EKS", Flexible
    instance groups; "Creating a SageMaker HyperPod cluster".
    """
    for number, group in enumerate(settings.groups):
        if group.fallback_types:
            key = f"hyperpod:workers[{number}]"
            if settings.orchestrator == "slurm":
                yield _alone(f"{key}.fallbackTypes", "HyperPod takes several types in a group only on EKS")
                continue
            yield from _combinations(key, group, continuous=continuous, governed=governed)
            yield from _list(f"{key}.fallbackTypes", group)
            yield from _unlike(f"{key}.fallbackTypes", group)


def _combinations(key: str, group: WorkerGroup, *, continuous: bool, governed: bool) -> Iterator[Problem]:
    if not continuous:
        yield Problem(
            key=f"{key}.fallbackTypes",
            what="several types need continuous provisioning",
            fix="set hyperpod:nodeProvisioning to Continuous",
        )
    if governed:
        yield _alone(
            f"{key}.fallbackTypes",
            "task governance shares out each type's nodes, and nobody knows beforehand which type comes",
            "charts.queues kueue or none, or ",
        )
    if group.training_plan_arn is not None:
        yield _alone(f"{key}.fallbackTypes", "a training plan reserves nodes of one type")
    if group.capacity == "spot":
        yield _alone(f"{key}.fallbackTypes", "no page of AWS describes spot capacity of several types in a group")


def _alone(key: str, what: str, instead: str = "") -> Problem:
    return Problem(key=key, what=what, fix=f"{instead}a group for each type")


def _list(key: str, group: WorkerGroup) -> Iterator[Problem]:
    if len(group.types) > MAX_TYPES:
        what = f"{len(group.types)} types, instanceType among them"
        yield Problem(key=key, what=what, fix=f"HyperPod takes {MAX_TYPES} in a group")
    for name in sorted({name for name in group.types if group.types.count(name) > 1}):
        yield Problem(key=key, what=f"the group has {name} twice", fix="each type once")


def _unlike(key: str, group: WorkerGroup) -> Iterator[Problem]:
    """Report types that differ from the first. Of a type that is not in the catalogue too little is known."""
    first = CATALOGUE.get(group.instance_type)
    for name in group.fallback_types:
        row = CATALOGUE.get(name)
        if row is None or first is None:
            unknown = name if row is None else group.instance_type
            yield _alone(
                key, f"{unknown} is not in the catalogue, so nobody knows whether jobs for it run on the others"
            )
        elif differ := [f"{what} ({of(row)}, not {of(first)})" for what, of in _ALIKE.items() if of(row) != of(first)]:
            yield _alone(
                key,
                f"{name} has another {', '.join(differ)} than {first.name}: a job would not run on both",
                "a type that is like it, or ",
            )
