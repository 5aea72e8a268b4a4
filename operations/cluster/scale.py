"""``scale``: changes the number of nodes in a worker group, through the stack's configuration and a deployment."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from components.config import InstanceGroup
from components.estimates import cost
from components.estimates.amounts import Cost

from .. import target as targets
from ..failures import bad_input
from ..target import Target

WORKERS = "hyperpod:workers"


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A group's new size. ``values`` are the changed configuration values, by path; ``target``: the stack with them."""

    target: Target
    group: str
    before: int
    after: int
    values: Mapping[str, str]
    cost_before: Cost
    cost_after: Cost
    prepaid: bool

    @property
    def money(self) -> str:
        """What the stack costs before and after, and whether that is the whole truth."""
        before, after = self.cost_before, self.cost_after
        if before.whole.known and after.whole.known:
            return f"${before.whole.least:,.2f} to ${after.whole.least:,.2f} an hour"
        hourly = f"now {before.words}; then {after.words}"
        return f"{hourly}. Its training plan is paid in advance" if self.prepaid else hourly


def worker_group(target: Target, name: str) -> InstanceGroup:
    """A worker group by its name. Raises Failure."""
    found = {one.name: one for one in target.config.worker_groups}
    if name not in found:
        heads = [one.name for one in target.config.instance_groups if one.role != "worker"]
        also = f"; {', '.join(heads)} cannot be scaled" if heads else ""
        raise bad_input(f'there is no worker group "{name}"', f"groups here: {', '.join(found)}{also}")
    return found[name]


def scaled(target: Target, group: str, count: int) -> Scaling:
    """The stack with the new number of nodes, checked. Raises Failure and ConfigError."""
    before = worker_group(target, group).count
    if count < 0:
        raise bad_input(f"{count} nodes", "0 or more")
    given: list[dict[str, Any]] = json.loads(target.project.config.get(WORKERS, "[]"))
    workers = given or [{"name": one.name, "instanceType": one.type.name} for one in target.config.worker_groups]
    place = next(place for place, one in enumerate(workers) if one["name"] == group)
    changed: dict[str, str | int] = {"count": count}
    # HyperPod refuses a minimum above the count.
    if workers[place].get("minCount", 0) > count:
        changed["minCount"] = count
    workers[place] |= changed
    after = targets.load(target.stack, [f"{WORKERS}={json.dumps(workers)}"], target.project.folder)
    return Scaling(
        target=replace(after, aws=target.aws),
        group=group,
        before=before,
        after=count,
        values={
            f"{WORKERS}[{place}].{key}": str(value) for key, value in (changed if given else workers[place]).items()
        },
        cost_before=cost.estimate(target.config),
        cost_after=cost.estimate(after.config),
        prepaid=bool(workers[place].get("trainingPlanArn")),
    )
